"""Run many seeds one after another: their totals, the error codes that they have reached, and their failures."""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kafka_source.error_codes import ErrorCode
from tests.simulation.checks import Verdict
from tests.simulation.run import Run, shortened
from tests.simulation.scenario import Scenario, scenario_of

# After this number of seeds, the garbage of their worlds is collected and the totals are saved.
_COLLECT_AFTER = 25
_MAX_STORIES = 3
# Virtual seconds: a world with a defect may never become quiet. Without defects, 300 seeds need less than half of this.
_QUIET_WITHIN = 120.0


@dataclass
class Totals:
    """The totals of a series of seeds.

    Attributes:
        next: The first seed that has not run yet.
        reached: The error codes that were answered, as `API ERROR`, with their numbers.
        failed: The seeds in which a check failed.
    """

    next: int
    seeds: int = 0
    steps: int = 0
    records: int = 0
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, verdict: Verdict, cpu_seconds: float) -> None:
        """Add a run."""
        self.next = verdict.scenario.seed + 1
        self.seeds += 1
        self.steps += verdict.steps
        self.records += verdict.records
        self.virtual_seconds += verdict.seconds
        self.cpu_seconds += cpu_seconds
        self.faults += verdict.faults
        self.requests += verdict.requests
        self.failures += verdict.failures
        self.allowed += verdict.allowed
        for (api, code), count in verdict.errors.items():
            known = ErrorCode.find(code)
            self.reached[f"{api} {known.kafka_name if known is not None else code}"] += count
        if verdict.problems:
            self.failed.append(verdict.scenario.seed)

    def table(self) -> str:
        """Return the totals as text."""
        cpu = max(self.cpu_seconds, 0.001)
        requests, faults = sum(self.requests.values()), sum(self.faults.values())
        lines = [
            f"{self.seeds} seeds, {len(self.failed)} with problems: {self.failed[:20]}",
            f"{self.virtual_seconds / 60:.0f} virtual minutes in {cpu:.0f} s of CPU; {self.records} records",
            f"{requests} requests ({requests / cpu:.0f}/s), {faults} faults ({faults / cpu:.1f}/s), {self.steps} steps",
            f"queries that ended with an error: {dict(self.failures)}",
            "",
        ]
        for title, counts in (
            ("fault", self.faults),
            ("request", self.requests),
            ("answered error", self.reached),
            ("allowed", self.allowed),
        ):
            lines += [f"{title:<20} number", *(f"  {name}: {count}" for name, count in sorted(counts.items()))]
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        """Keep the totals for a later run."""
        path.write_text(json.dumps(vars(self)))

    @staticmethod
    def load(path: Path) -> Totals:
        """Return totals that were saved."""
        kept = json.loads(path.read_text())
        for name in ("faults", "requests", "reached", "allowed", "failures"):
            kept[name] = Counter(kept[name])
        return Totals(**kept)


def run_seeds(
    first: int, last: int, state: Path | None = None, *, drawn: Callable[[Scenario], Scenario] | None = None
) -> Totals:
    """Run the seeds from `first` to `last` (exclusive), and print the stories of seeds that fail.

    Args:
        first: The first seed.
        last: The seed after the last one.
        state: The file that keeps the totals, from which a later run continues; None: no file.
        drawn: Changes the scenario of a seed.
    """
    totals = Totals.load(state) if state is not None and state.exists() else Totals(first)
    with _few_collections():
        for seed in range(totals.next, last):
            scenario = scenario_of(seed) if drawn is None else drawn(scenario_of(seed))
            began = time.process_time()
            verdict = Run(scenario).run()
            totals.add(verdict, time.process_time() - began)
            if verdict.problems and len(totals.failed) <= _MAX_STORIES:
                print(Run(shortened(verdict.scenario)).run().tell())
            if totals.seeds % _COLLECT_AFTER == 0:
                gc.collect()
                if state is not None:
                    totals.save(state)
    if state is not None:
        totals.save(state)
    return totals


def find(scenarios: Iterable[Scenario]) -> Verdict | None:
    """Return the first of these runs in which a check fails."""
    for scenario in scenarios:
        verdict = Run(scenario, _QUIET_WITHIN, to_first_problem=True).run()
        if verdict.problems:
            return verdict
    return None


class _few_collections:
    """Let Python collect garbage rarely while a world exists, because a world is large and is freed as a whole."""

    def __enter__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
        gc.unfreeze()
