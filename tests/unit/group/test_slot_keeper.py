"""Which partitions of a batch the keeper of its slots still waits for."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from assignors import TopicPartition
from kafka_source.group.slot_keeper import still_missing
from kafka_source.model.commits import CommitOffset, OffsetNote

P = [TopicPartition("orders", number) for number in range(3)]
BY_TASK = OffsetNote("batch-1").metadata

Offsets = Mapping[TopicPartition, CommitOffset]
ENTRIES = st.builds(CommitOffset, st.integers(0, 9), metadata=st.sampled_from(["", BY_TASK]))
COMMITTED = st.dictionaries(st.sampled_from(P), ENTRIES)
ENDS = st.dictionaries(st.sampled_from(P), st.integers(0, 9))


def missing(before: Offsets, committed: Offsets) -> dict[TopicPartition, int]:
    return still_missing({P[0]: 5}, before, committed)


def test_a_commit_of_the_end_ends_the_wait() -> None:
    assert missing({}, {P[0]: CommitOffset(5, metadata=BY_TASK)}) == {}
    assert missing({P[0]: CommitOffset(3)}, {P[0]: CommitOffset(7)}) == {}


def test_a_group_that_was_further_at_the_plan_is_waited_for() -> None:
    further = {P[0]: CommitOffset(9)}
    assert missing(further, further) == {P[0]: 5}
    assert missing(further, {P[0]: CommitOffset(9, metadata=BY_TASK)}) == {}
    assert missing(further, {P[0]: CommitOffset(10)}) == {}


def test_a_commit_inside_of_the_batch_is_not_its_end() -> None:
    assert missing({}, {P[0]: CommitOffset(4, metadata=BY_TASK)}) == {P[0]: 5}
    assert missing({}, {}) == {P[0]: 5}


@given(ENDS, COMMITTED, COMMITTED)
def test_missing_is_what_nobody_has_committed_up_to_its_end_since_the_plan(
    ends: dict[TopicPartition, int], before: Offsets, committed: Offsets
) -> None:
    found = still_missing(ends, before, committed)
    assert found.items() <= ends.items()
    for tp, end in ends.items():
        entry = committed.get(tp)
        assert (tp in found) == (entry is None or entry.offset < end or entry == before.get(tp))
    # Nothing that was not missing once is missing later, while nobody commits.
    assert still_missing(found, before, committed) == found
    assert still_missing(ends, before, before) == ends
