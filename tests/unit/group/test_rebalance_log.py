"""What a rebalance changed, from the assignments and members before and after it."""

import pytest

from assignors.model import TopicPartition
from kafka_source.group.model import GroupAssignment, SlotAssignment
from kafka_source.group.rebalance_log import Reason, rebalance_of
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Rebalance, RebalanceCause
from kafka_source.model.partition_runs import format_partitions

T = [TopicPartition("t", n) for n in range(4)]
REASON = Reason(RebalanceCause.MEMBERS, "somebody joined")


def assigned(*slots: list[TopicPartition]) -> GroupAssignment:
    made = (SlotAssignment(SlotCredentials("g", 3, f"m{n}", None, n), tuple(held)) for n, held in enumerate(slots))
    return GroupAssignment(3, "range", leading=True, slots=tuple(made))


def record(
    before: GroupAssignment | None, now: GroupAssignment, known: set[str] | None, names: set[str] | None
) -> Rebalance:
    members, earlier = (None if found is None else frozenset(found) for found in (names, known))
    return rebalance_of(before, now, REASON, 1.5, 1_000, members=members, known=earlier)


def test_what_moved_and_who_came_and_went() -> None:
    found = record(assigned(T[:2], T[2:]), assigned(T[1:2], T[3:]), {"a", "b"}, {"b", "c", "d"})
    assert (found.gained, found.lost) == ((), (T[0], T[2]))
    assert (found.came, found.went, found.members) == (("c", "d"), ("a",), 3)
    assert (found.generation, found.cause, found.reason, found.took_ms, found.at_ms) == (
        3,
        RebalanceCause.MEMBERS,
        REASON.text,
        1500,
        1_000,
    )


def test_partitions_that_only_change_the_slot_stay_with_the_query() -> None:
    found = record(assigned(T[:2], T[2:]), assigned(T[2:], T[:2]), {"a"}, {"a"})
    assert (found.gained, found.lost) == ((), ())


def test_at_the_first_join_everything_is_gained_and_nobody_is_known_to_have_come() -> None:
    found = record(None, assigned(T), None, {"a", "b"})
    assert found.gained == tuple(T)
    assert (found.came, found.went, found.members) == ((), (), 2)


def test_members_that_could_not_be_described_are_unknown() -> None:
    found = record(assigned(T), assigned(T), {"a"}, None)
    assert (found.came, found.went, found.members) == ((), (), None)


@pytest.mark.parametrize(
    ("partitions", "text"),
    [([], "none"), (T, "t:0-3"), ([T[0], T[2], T[3]], "t:0,2-3"), ([T[0], TopicPartition("u", 7)], "t:0 u:7")],
)
def test_partitions_in_a_short_form(partitions: list[TopicPartition], text: str) -> None:
    assert format_partitions(partitions) == text
