"""What a query's membership says about itself before it has spoken to a broker, and why its slots rejoin."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import TopicPartition, load
from kafka_source.client_config import Settings
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.classic.membership import ClassicMembership, rebalance_reason
from kafka_source.group.classic.slot import Slot
from kafka_source.group.model import BatchInFlight, GroupSettings, Topics
from kafka_source.kafka_client import KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import RebalanceCause

NOWHERE = Settings({"bootstrap.servers": "127.0.0.1:1"})
P = TopicPartition("orders", 0)
WORKING = (State.STABLE, State.REBALANCING, State.JOINING, State.AWAITING_SYNC)


@pytest.fixture(scope="module")
def slots() -> Iterator[Sequence[Slot]]:
    with closing(KafkaClient(NOWHERE)) as client:
        yield [Slot(number, client, GroupSettings("g", slots=2), [load("range")]) for number in range(2)]


def put(slots: Sequence[Slot], states: Sequence[State], *, held: bool = False) -> None:
    for slot, state in zip(slots, states, strict=True):
        slot.member.status = MemberStatus(state, "m", 3)
        slot.held = (P,) if held else ()


@given(
    st.tuples(st.sampled_from(WORKING), st.sampled_from(WORKING)), st.booleans(), *[st.sampled_from([None, "why"])] * 4
)
def test_slots_rejoin_for_the_most_urgent_reason(
    slots: Sequence[Slot],
    states: tuple[State, State],
    held: bool,
    lost: str | None,
    rejoin_failed: str | None,
    topics_changed: str | None,
    unbalanced: str | None,
) -> None:
    put(slots, states, held=held)
    causes = [
        (lost is not None or bool({State.JOINING, State.AWAITING_SYNC} & {*states}), RebalanceCause.LOST),
        (State.REBALANCING in states, RebalanceCause.MEMBERS),
        (held, RebalanceCause.REVOKED),
        (rejoin_failed is not None, RebalanceCause.SIBLING),
        (topics_changed is not None, RebalanceCause.TOPICS),
        (unbalanced is not None, RebalanceCause.BALANCE),
    ]
    reason = rebalance_reason(
        slots, lost=lost, rejoin_failed=rejoin_failed, topics_changed=topics_changed, unbalanced=unbalanced
    )
    assert (None if reason is None else reason.cause) == next((cause for applies, cause in causes if applies), None)


def test_slots_that_are_stable_and_hold_nothing_stay(slots: Sequence[Slot]) -> None:
    put(slots, [State.STABLE, State.STABLE])
    assert rebalance_reason(slots) is None


@pytest.fixture
def membership() -> Iterator[ClassicMembership]:
    settings = GroupSettings("g", "app", slots=2, heartbeat_interval_ms=60_000, leave_on_close=False)
    with closing(ClassicMembership(NOWHERE, settings, Topics(("orders",)), [load("range")])) as made:
        yield made


def test_a_membership_needs_an_assignor() -> None:
    with pytest.raises(ValueError, match="needs an assignor"):
        ClassicMembership(NOWHERE, GroupSettings("g"), Topics(("orders",)), [])


def test_slots_that_another_process_has_joined_go_on_and_the_others_are_dropped(membership: ClassicMembership) -> None:
    credentials = SlotCredentials("g", 7, "m1", "app-1", 1, (P,))
    membership.resume([credentials])
    [slot] = membership.assignment.slots
    assert (slot.credentials, slot.partitions, membership.assignment.generation) == (credentials, (P,), 7)
    assert membership.rebalance_needed() is None
    with membership.rebalance_paused():
        membership.set_batch_in_flight(BatchInFlight({P: 5}))
    membership.detach()
