"""The simulator's command line: `python -m tests.simulation seeds 0 300`, `story 17`, `mutations` and others."""

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.simulation.campaign import find, run_seeds
from tests.simulation.checks import Verdict
from tests.simulation.halts import with_halts
from tests.simulation.history import history_of, scenario_to_judge
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.run import Run, run, shortened
from tests.simulation.scenario import Scenario
from tests.simulation.sink_trace import trace_of
from tests.simulation.stories import read_stories, write_stories
from tests.simulation.versions import BREAKS, FOLLOWS, Change, with_versions

_ALL_LINES = 1_000_000
_TRIES = 50


def main() -> int:
    """Run the command in the arguments; return the exit code."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set of names must be the same in each run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    # These warnings are about processes that were killed.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    seeds = commands.add_parser("seeds", help="run seeds, and print their totals")
    seeds.add_argument("first", type=int)
    seeds.add_argument("last", type=int)
    seeds.add_argument("--state", type=Path, help="the file that keeps the totals for a later run")
    seeds.add_argument("--versions", action="store_true", help="let queries change to a later version and back")
    seeds.add_argument("--halts", action="store_true", help="let the group be paused, stopped and resumed")
    story = commands.add_parser("story", help="print the story of a seed, with no more faults than its failure needs")
    story.add_argument("seed", type=int)
    trace = commands.add_parser("trace", help="print everything that happens in some seeds")
    trace.add_argument("seeds", type=int, nargs="+")
    actions = commands.add_parser("actions", help="print what the sinks of some seeds do, as actions of the model")
    actions.add_argument("seeds", type=int, nargs="+")
    history = commands.add_parser("history", help="write the histories of some seeds for Jepsen's checker of Kafka")
    history.add_argument("first", type=int)
    history.add_argument("last", type=int)
    history.add_argument("folder", type=Path)
    for one in (actions, history):
        one.add_argument("--with-defect", default="", help="apply the mutation of this name")
    search = commands.add_parser("mutations", help="put defects back, and check whether their stories find them")
    search.add_argument("--seeds", type=int, default=0, help="seeds to try if a defect's story does not find it")
    search.add_argument("--count", action="store_true", help="try no stories, and print how many seeds a defect needs")
    search.add_argument("--first", type=int, default=0, help="the first of these seeds")
    search.add_argument("--keep", action="store_true", help="write the stories that find a defect, and no others")
    search.add_argument("--only", default="", help="only mutations with these words in their names")
    given = parser.parse_args()
    if given.command == "seeds":
        with contextlib.ExitStack() as later:
            for change in FOLLOWS if given.versions else ():
                later.enter_context(change.applied())
            drawn = with_versions if given.versions else with_halts if given.halts else None
            totals = run_seeds(given.first, given.last, given.state, drawn=drawn)
        print(totals.table())
        return 1 if totals.failed else 0
    if given.command == "story":
        verdict = run(given.seed)
        if verdict.problems:
            verdict = Run(shortened(verdict.scenario)).run()
        print(verdict.tell(_ALL_LINES))
        return 1 if verdict.problems else 0
    if given.command == "trace":
        verdicts = [run(seed) for seed in given.seeds]
        print("\n".join(verdict.tell(_ALL_LINES) for verdict in verdicts))
        return 1 if any(verdict.problems for verdict in verdicts) else 0
    if given.command in ("actions", "history"):
        defects = [one for one in MUTATIONS if one.name == given.with_defect]
        with defects[0].applied() if given.with_defect else contextlib.nullcontext():
            if given.command == "history":
                _write_histories(range(given.first, given.last), given.folder)
                return 0
            found = [trace_of(seed) for seed in given.seeds]
        print(json.dumps([one.as_json() for one in found if one is not None]))
        return 0
    if given.count:
        return _count_seeds(given.first, given.seeds, given.only)
    return _mutations(given.first, given.seeds, given.only, keep=given.keep)


def _write_histories(seeds: range, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        scenario = scenario_to_judge(seed)
        if scenario is not None:
            judged = Run(scenario)
            judged.run()
            history_of(judged).write(folder / f"{seed}.edn")


def _defects(only: str) -> list[Mutation | Change]:
    defects: tuple[Mutation | Change, ...] = (*MUTATIONS, *BREAKS)
    return [one for one in defects if only in one.name]


def _scenarios_for(mutation: Mutation | Change, first: int, seeds: int) -> Iterator[Scenario]:
    drawn = (mutation.scenario_of(seed) for seed in itertools.count(first))
    return itertools.islice((one for one in drawn if one.sink or not mutation.of_sink), seeds)


def _count_seeds(first: int, seeds: int, only: str) -> int:
    needed = []
    for mutation in _defects(only):
        drawn = list(_scenarios_for(mutation, first, seeds))
        found = _find_only_with(mutation, drawn)
        needed.append(math.inf if found is None else drawn.index(found.scenario) + 1)
        print(f"{needed[-1]:6} seeds: {mutation.name}", flush=True)
    print(f"{statistics.median(needed):6} seeds: the median of {len(needed)} defects")
    return 1 if math.inf in needed else 0


def _mutations(first: int, seeds: int, only: str, *, keep: bool) -> int:
    stories, missed = read_stories(), 0
    for mutation in _defects(only):
        story = stories.pop(mutation.name, None)
        # If a change of the requests has made the story fail to find the defect, try other delays and choices.
        known = [] if story is None else [replace(story, seed=story.seed + 100_000 * n) for n in range(_TRIES)]
        found = _find_only_with(mutation, known) or _find_only_with(mutation, _scenarios_for(mutation, first, seeds))
        if found is not None:
            with mutation.applied():
                stories[mutation.name] = found.scenario if found.scenario in known else shortened(found.scenario)
        missed += found is None
        where = "" if found is None else f" by seed {found.scenario.seed}: {found.problems[0][:200]}"
        print(f"{'MISSED' if found is None else 'found'}: {mutation.name}{where}", flush=True)
        if keep:
            write_stories(stories)
    return 1 if missed else 0


def _find_only_with(mutation: Mutation | Change, scenarios: Iterable[Scenario]) -> Verdict | None:
    """Return the first of these runs in which a check fails with the defect and all checks hold without it."""
    for scenario in scenarios:
        with mutation.applied():
            found = find([scenario])
        if found is not None and find([scenario]) is None:
            return found
    return None


if __name__ == "__main__":
    sys.exit(main())
