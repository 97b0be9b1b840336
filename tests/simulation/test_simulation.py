"""Our code in a simulated world: groups, commits and checkpoints, with faults by seed, in virtual time.

`docs/design/simulator.md` says what is simulated, what must hold, and what the seeds have found.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_source.kafka_client.messages.tables import Request
from kafka_source.kafka_client.messages.transaction import AddOffsetsToTxnRequest, EndTxnRequest
from tests.support.native import kernel
from tests.support.simulator import run_simulator

# Sinks write with the native engine.
kernel()

from tests.simulation import campaign  # noqa: E402
from tests.simulation.mutations import MUTATIONS  # noqa: E402
from tests.simulation.run import Run  # noqa: E402
from tests.simulation.scenario import Fault, Scenario  # noqa: E402
from tests.simulation.stories import read_stories  # noqa: E402


@pytest.mark.parametrize("first", range(0, campaign.SEEDS_IN_CI, 100))
def test_nothing_is_lost_and_every_query_ends_its_work_whatever_the_seed(first: int) -> None:
    assert f"{100} seeds, 0 with problems" in run_simulator("seeds", str(first), str(first + 100))


def test_a_seed_determines_everything() -> None:
    seeds = [str(seed) for seed in range(24)]
    once, again = run_simulator("trace", *seeds), run_simulator("trace", *reversed(seeds))
    assert sorted(once.splitlines()) == sorted(again.splitlines())
    assert once.count("\n") > 100


def test_a_query_whose_first_commit_is_refused_continues_where_others_have_read_on() -> None:
    """It dies before a commit, starts again, and stands still in that commit until the group has removed it."""
    scenario = Scenario(
        seed=1454,
        strategy="range",
        queries=2,
        slots=1,
        partitions=4,
        brokers=1,
        transactional=True,
        session_ms=6_000,
        share_of_long=0.0,
        on_lost="rejoin",
        static=False,
        # It explains what happens here.
        faults=(Fault(1.0, "kill", 0.0, 0.0),),
    )
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


def test_kept_stories_find_the_defects_that_are_put_back_and_nothing_without_them() -> None:
    assert set(read_stories()) == {one.name for one in MUTATIONS}
    told = run_simulator("mutations")
    assert told.count("found: ") == len(MUTATIONS)


@pytest.mark.long
def test_a_hundred_thousand_seeds(tmp_path: Path) -> None:
    state = Path(os.environ.get("KAFKAGROUP_SIMULATION_STATE", tmp_path / "simulation.json"))
    last = int(os.environ.get("KAFKAGROUP_SIMULATION_SEEDS", "100000"))
    assert " seeds, 0 with problems" in run_simulator("seeds", "1000", str(1000 + last), "--state", str(state))
