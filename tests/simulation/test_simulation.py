"""Our code in a simulated world: groups, commits and checkpoints, with faults by seed, in virtual time.

`docs/design/simulator.md` says what is simulated and what must hold.
"""

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assignors import Assignment
from kafka_source.group import unread
from kafka_source.group.classic import leader
from kafka_source.group.consumer import slot as consumer_slot
from kafka_source.kafka_client.messages.tables import Request
from kafka_source.kafka_client.messages.transaction import AddOffsetsToTxnRequest, EndTxnRequest
from tests.support.native import kernel
from tests.support.simulator import run_simulator

# Sinks write with the native engine.
kernel()

from tests.simulation.allowances import ALLOWANCES  # noqa: E402
from tests.simulation.clients import other_client  # noqa: E402
from tests.simulation.mutations import MUTATIONS, Mutation  # noqa: E402
from tests.simulation.run import Run  # noqa: E402
from tests.simulation.scenario import CONSUMER, SWARM_FROM, Fault, Scenario  # noqa: E402
from tests.simulation.stories import read_stories  # noqa: E402
from tests.simulation.versions import BREAKS  # noqa: E402
from tests.simulation.world import World  # noqa: E402


@pytest.mark.parametrize("first", (0, SWARM_FROM))
def test_nothing_is_lost_and_every_query_ends_its_work_whatever_the_seed(first: int) -> None:
    assert "50 seeds, 0 with problems" in run_simulator("seeds", str(first), str(first + 50))


def test_a_later_version_that_follows_the_rules_of_each_format_does_no_harm_beside_this_one() -> None:
    assert "20 seeds, 0 with problems" in run_simulator("seeds", "20", "40", "--versions")


def test_a_group_that_is_halted_ends_at_its_boundaries_and_goes_on_when_it_is_resumed() -> None:
    assert "12 seeds, 0 with problems" in run_simulator("seeds", "0", "12", "--halts")


@pytest.mark.parametrize(("strategy", "hours"), [("range", 60), (CONSUMER, 6)])
def test_a_pause_over_a_weekend_outlives_the_time_for_which_brokers_keep_offsets(strategy: str, hours: int) -> None:
    scenario = Scenario(
        seed=3,
        strategy=strategy,
        queries=2,
        slots=1,
        partitions=4,
        session_ms=1_800_000,
        faults=(Fault(30.0, "halt", 0.9, 0.12),),
        retention=hours * 1200.0,
        halted_for=hours * 4500.0,
    )
    run = Run(scenario, 300_000.0)
    for query in run.parts.queries:
        query.load = replace(query.load, idle=600.0)
        query.options |= {"kafka.max.poll.interval.ms": "3600000", "kafka.metadata.max.age.ms": "3600000"}
    assert run.run().problems == []
    assert run.world.now > hours * 3600


def test_a_seed_determines_everything() -> None:
    seeds = [str(seed) for seed in range(12)]
    once, again = run_simulator("trace", *seeds), run_simulator("trace", *reversed(seeds))
    assert sorted(once.splitlines()) == sorted(again.splitlines())
    assert once.count("\n") > 100


def test_the_history_of_a_run_has_each_record_as_written_and_as_read(tmp_path: Path) -> None:
    run_simulator("history", "26", "27", str(tmp_path))
    text = (tmp_path / "26.edn").read_text()
    written = re.findall(r":send (\d+) \[(\d+) \d+\]", text)
    polls = re.findall(r"(\d+) \[(\[\d+ \d+\](?: \[\d+ \d+\])*)\]", text)
    read = [(key, offset) for key, placed in polls for offset in re.findall(r"\[(\d+) ", placed)]
    assert len(written) > 500
    assert sorted(read) == sorted(written)


def test_a_query_whose_first_commit_is_refused_continues_where_others_have_read_on() -> None:
    """The query dies before a commit, restarts, and is suspended in this commit until the group has removed it."""
    # This fault explains the events here.
    kill = Fault(1.0, "kill", 0.0, 0.0)
    scenario = Scenario(1454, "range", queries=2, slots=1, partitions=4, session_ms=6_000, faults=(kill,))
    run = Run(scenario)
    query = run.parts.queries[0]

    def before(request: type[Request], happens: Callable[[], object]) -> None:
        assert query.process is not None
        query.process.before(request.API_KEY, happens)

    def stand_still() -> None:
        assert query.process is not None
        query.process.freeze(15.0)

    def die() -> None:
        query.kill(0.0)
        run.world.after(0.01, lambda: before(EndTxnRequest, stand_still))

    run.world.after(30.0, lambda: before(AddOffsetsToTxnRequest, die))
    assert run.run().problems == []
    assert run.checks.lost_members > 0


def _without_partition_0(world: World, settled: float) -> Callable[[Any], Any]:
    """Remove a partition from each assignment, or from each answer of the brokers, until a point of time."""

    def make(right: Any) -> Any:
        def lose(given: Any) -> Any:
            if world.now > settled:
                return right(given)
            if isinstance(given, Assignment):
                return right(replace(given, partitions=[tp for tp in given.partitions if tp.partition]))
            found = right(given)
            kept = None if found.target is None else frozenset(one for one in found.target if one.partition)
            return replace(found, target=kept)

        return lose

    return make


@pytest.mark.parametrize(
    ("strategy", "others", "where"),
    [
        ("range", 0, (leader, "encode_assignment")),
        ("cooperative-sticky", 0, (leader, "encode_assignment")),
        ("range", 1, (other_client, "encode_assignment")),
        (CONSUMER, 0, (consumer_slot, "_answer")),
    ],
    ids=["classic", "cooperative", "led by another application", "consumer"],
)
def test_a_partition_of_a_lost_assignment_is_read_again(strategy: str, others: int, where: tuple[Any, str]) -> None:
    # The other application becomes leader when the query, which joined first, has died.
    faults = (Fault(21.0, "kill", 0.0, 0.0),) if others else ()
    scenario = Scenario(61, strategy, queries=2 - others, slots=2, partitions=6, others=others, faults=faults)
    unwatched = Mutation("do not look", (unread, "decide"), lambda _: lambda found, look: found)
    for is_watched in (True, False):
        run = Run(scenario, 60.0)
        with contextlib.ExitStack() as defects:
            defects.enter_context(
                Mutation("lose", where, _without_partition_0(run.world, 40.0 if others else 15.0)).applied()
            )
            if not is_watched:
                defects.enter_context(unwatched.applied())
            assert (run.run().problems == []) is is_watched


def test_kept_stories_find_the_defects_that_are_put_back_and_nothing_without_them() -> None:
    defects = {one.name for one in MUTATIONS} | {one.name for one in BREAKS}
    assert set(read_stories()) == defects
    assert run_simulator("mutations").count("found: ") == len(defects)


def test_what_is_allowed_and_harms_a_user_is_on_the_page_of_faults() -> None:
    page = (Path(__file__).parents[2] / "docs/faults.md").read_text()
    assert [one.name for one in ALLOWANCES if one.user and f"\n| {one.user} |" not in page] == []


@pytest.mark.long
def test_a_hundred_thousand_seeds(tmp_path: Path) -> None:
    state = Path(os.environ.get("KAFKAGROUP_SIMULATION_STATE", tmp_path / "simulation.json"))
    last = int(os.environ.get("KAFKAGROUP_SIMULATION_SEEDS", "100000"))
    assert " seeds, 0 with problems" in run_simulator("seeds", "1000", str(1000 + last), "--state", str(state))
