"""Bound the time of a trigger, the time of a stop and the time without reads, when one part of the cluster is slow.

The bounds are those of `docs/design/simulator.md`. A trigger commits the previous batch.
"""

import itertools
from dataclasses import dataclass, replace

import pytest

from kafka_source.kafka_client import GROUP
from tests.support.native import kernel

# Tasks read and write with the native engine.
kernel()

from tests.simulation.brokers.cluster import Broker  # noqa: E402
from tests.simulation.parts import GROUP_ID, Parts  # noqa: E402
from tests.simulation.run import Run  # noqa: E402
from tests.simulation.scenario import CONSUMER, Fault, Scenario  # noqa: E402

_QUIET = Scenario(
    seed=7,
    strategy="range",
    queries=2,
    slots=2,
    partitions=4,
    brokers=3,
    # Both queries stop once, and start again.
    faults=(
        Fault(30.0, "stop query", 0.0, 0.0),
        Fault(34.0, "start query", 0.0, 0.0),
        Fault(45.0, "stop query", 0.9, 0.0),
        Fault(49.0, "start query", 0.9, 0.0),
    ),
)


@dataclass(frozen=True)
class Bounds:
    """The bounds in virtual seconds, and the number of rebalances."""

    trigger: float
    stop: float
    silence: float
    rebalances: int


def _slow(parts: Parts, what: str) -> list[Broker]:
    brokers, coordinator = parts.cluster.brokers, parts.cluster.coordinator(GROUP, GROUP_ID)
    others = [one for node, one in brokers.items() if node != coordinator]
    return {"coordinator": [brokers[coordinator]], "broker": others[:1]}.get(what, [])


@pytest.mark.parametrize("strategy", ["range", CONSUMER])
@pytest.mark.parametrize(
    ("slow", "bounds"),
    [
        ("nothing", Bounds(4.0, 1.0, 4.0, 12)),
        ("broker", Bounds(15.0, 1.0, 15.0, 12)),
        ("coordinator", Bounds(30.0, 2.0, 20.0, 12)),
        ("disk", Bounds(4.0, 1.0, 4.0, 12)),
    ],
)
def test_a_slow_part_of_the_cluster_costs_a_bounded_time(slow: str, bounds: Bounds, strategy: str) -> None:
    run = Run(replace(_QUIET, strategy=strategy, slow_markers=slow == "disk"))
    for broker in _slow(run.parts, slow):
        broker.slow = 0.5
    assert run.run().problems == []
    planned = sorted(at for at, _ in run.parts.output.plans)
    begun = [what for _, by, what in run.world.story if by == "group" and what.startswith(("generation", "epoch"))]
    assert all(query.longest["trigger"] <= bounds.trigger for query in run.parts.queries)
    assert all(query.longest["stop"] <= bounds.stop for query in run.parts.queries)
    assert max(later - earlier for earlier, later in itertools.pairwise(planned)) <= bounds.silence
    assert len(begun) <= bounds.rebalances
    assert run.checks.lost_members == 0
