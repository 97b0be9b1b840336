"""Where a stream goes on whose sink commits, and what is left of a batch that is replayed."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.commits.by_sink import (
    check_undecided,
    handoff_of,
    handoffs_of,
    is_handed_over,
    only_decided,
    plan_id,
    remaining,
)
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import PlannedInput, Range, Span, StreamOffset
from kafka_source.source.plan import plan

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("note", "known"),
    [
        (OffsetNote(), False),
        (OffsetNote("mine", "followed"), False),
        # Also a step back of this query itself, before which the sink has committed: it is in no planned batch yet.
        (OffsetNote("mine", "later"), True),
    ],
)
def test_a_group_that_was_set_back_to_where_the_first_batch_began_tells_nothing_of_the_sink(
    note: OffsetNote, known: bool
) -> None:
    batch = StreamOffset({A: Span(10, 20, 0), B: Span(5, 5, 0)}, rewinds={A: "followed"})
    assert is_handed_over(batch, {A: CommitOffset(10, metadata=note.metadata), B: CommitOffset(7)}) == known
    # A topic that was created again since has taken them along.
    assert is_handed_over(batch, {B: CommitOffset(7)})


PLANNED = [PlannedInput(0, (Range("t", 0, 10, 20),)), PlannedInput(1, (Range("t", 1, 5, 9),))]
OTHERS = ""
BATCH = StreamOffset(stream="mine", by_sink=True)


def test_a_batch_that_nobody_decided_on_is_read_as_planned_where_the_group_has_not_moved() -> None:
    committed = {A: CommitOffset(10, metadata="mine"), B: CommitOffset(5, metadata="mine")}
    assert remaining(PLANNED, {A: 0, B: 1}, committed, BATCH) == PLANNED
    assert remaining(PLANNED, {A: 0, B: 1}, {}, BATCH) == PLANNED


def test_what_others_have_read_is_left_out() -> None:
    committed = {A: CommitOffset(13, metadata=OTHERS), B: CommitOffset(30, metadata=OTHERS)}
    assert remaining(PLANNED, {A: 0, B: 1}, committed, BATCH) == [(0, (Range("t", 0, 13, 20),))]


@pytest.mark.parametrize(("epoch", "follows"), [(2, 2), (0, 1), (-1, 1)])
def test_a_replay_follows_the_log_from_which_others_have_read(epoch: int, follows: int) -> None:
    planned = [PlannedInput(0, (Range("t", 0, 10, 15, epoch=1),)), PlannedInput(1, (Range("t", 0, 15, 20, epoch=1),))]

    def left(offset: int) -> list[Range]:
        found = remaining(planned, {A: 0}, {A: CommitOffset(offset, epoch, OTHERS)}, BATCH)
        return [r for one in found for r in one.ranges]

    last = Range("t", 0, 15, 20, epoch=follows)
    assert left(10) == [Range("t", 0, 10, 15, epoch=follows), last]
    assert left(13) == [Range("t", 0, 13, 15, epoch=follows), last]
    # The group was set back.
    assert left(7) == []


def test_what_others_own_is_theirs_to_read() -> None:
    assert remaining(PLANNED, {B: 1}, {A: CommitOffset(10, metadata="mine")}, BATCH) == PLANNED[1:]


def test_a_replay_of_a_decided_batch_reads_what_was_decided_as_it_was_planned() -> None:
    assert only_decided(PLANNED, {A: (10, 20), B: (5, 9)}) == PLANNED
    assert only_decided(PLANNED, {A: (13, 20)}) == [(0, (Range("t", 0, 13, 20),))]
    cut = [PlannedInput(0, (Range("t", 0, 10, 14),)), PlannedInput(0, (Range("t", 0, 14, 20),))]
    assert only_decided(cut, {A: (12, 20)}) == [(0, (Range("t", 0, 12, 14),)), cut[1]]


def test_the_id_of_a_batch_outlives_its_checkpoint_and_is_another_one_after_a_rewind() -> None:
    end = StreamOffset({A: Span(10, 20, 0), B: Span(5, 9, 1)}, slots=2, topics={"t": "id"}, stream="mine", by_sink=True)
    assert plan_id(StreamOffset.from_json(end.to_json())) == plan_id(end)
    others = [
        replace(end, rewinds={A: "r"}),
        replace(end, topics={"t": "new"}),
        replace(end, partitions={A: end.partitions[A]}),
    ]
    assert len({plan_id(one) for one in [end, *others]}) == 4


@given(st.sampled_from(["mine", OTHERS]), st.integers(0, 30), st.booleans(), st.booleans())
def test_a_batch_is_undecided_only_where_that_is_known(mark: str, stands: int, owned: bool, has_record: bool) -> None:
    committed = {A: CommitOffset(stands, metadata=mark)}
    is_unknown = stands > 10 and (not has_record or (mark == "mine" and stands <= 20))
    with pytest.raises(InvalidConfigurationError, match="t-0 from=10") if is_unknown else nullcontext():
        check_undecided(PLANNED[:1], committed, "mine", "record", has_record=has_record)
    left = remaining(PLANNED[:1], {A: 0} if owned else {}, committed, BATCH)
    # Nothing is read that another may have read too.
    read = {offset for _, ranges in left for r in ranges for offset in range(r.start, r.end)}
    assert read == (set(range(stands, 20)) if owned and stands >= 10 else set())


def test_a_replay_is_committed_by_the_slots_that_own_its_partitions_now() -> None:
    # Slot 0 keeps its place when the group removes slot 1, which had nothing to do with the first run.
    planned = [PlannedInput(0, (Range("t", 0, 10, 20), Range("t", 1, 5, 9))), PlannedInput(1, (Range("t", 2, 0, 4),))]
    owned = {A: 1, B: 0, TopicPartition("t", 2): 0}
    left = remaining(planned, owned, {}, BATCH)
    assert left == [
        PlannedInput(0, (Range("t", 1, 5, 9),)),
        PlannedInput(1, (Range("t", 0, 10, 20),)),
        PlannedInput(0, (Range("t", 2, 0, 4),)),
    ]
    members = {
        slot: SlotCredentials("g", 3 + slot, f"m{slot}", None, slot=slot, per_member_epoch=True) for slot in (0, 1)
    }
    found = {one.member.member_id: one.ranges.keys() for one in handoffs_of(left, members, "mine", "id", {})}
    assert found == {"m0": {B, TopicPartition("t", 2)}, "m1": {A}}


def test_a_handoff_has_each_partition_once_however_it_was_cut() -> None:
    planned = [PlannedInput(0, (Range("t", 0, 10, 15),)), PlannedInput(1, (Range("t", 0, 15, 20), Range("t", 1, 5, 9)))]
    member = SlotCredentials("g", 3, "m", "i", slot=4, partitions=(A,))
    handoff = handoff_of(planned, member, "mine", "id", {})
    assert handoff.ranges == {A: (10, 20), B: (5, 9)}
    assert handoff.member == SlotCredentials("g", 3, "m", "i")


def test_each_member_hands_its_own_ranges_over_where_members_have_epochs_of_their_own() -> None:
    planned = [PlannedInput(0, (Range("t", 0, 10, 20),)), PlannedInput(1, (Range("t", 1, 5, 9),))]
    of_another = PlannedInput(7, (Range("t", 2, 7, 9),))  # A replayed batch may have had more slots.
    members = {
        slot: SlotCredentials("g", 3 + slot, f"m{slot}", None, slot=slot, per_member_epoch=True) for slot in (0, 1)
    }
    first, second = handoffs_of([*planned, of_another], members, "mine", "id", {})
    assert (first.member.generation, first.ranges) == (3, {A: (10, 20), TopicPartition("t", 2): (7, 9)})
    assert (second.member.generation, second.ranges) == (4, {B: (5, 9)})
    together = {slot: replace(one, per_member_epoch=False) for slot, one in members.items()}
    (whole,) = handoffs_of([*planned, of_another], together, "mine", "id", {})
    assert whole == handoff_of([*planned, of_another], together[0], "mine", "id", {})


def test_a_batch_that_begins_before_the_last_ones_end_is_read_where_the_group_was_rewound() -> None:
    start = StreamOffset({A: Span(0, 100, 0)}, stream="mine", by_sink=True, slots=1)
    end = StreamOffset({A: Span(20, 150, 0)}, stream="mine", by_sink=True, slots=1)
    assert plan(end, start) == [PlannedInput(0, (Range("t", 0, 20, 150),))]
    # Planned without knowing the start, as Spark before 4.2 asks: the stream has another id.
    assert plan(replace(end, stream="new"), start) == [PlannedInput(0, (Range("t", 0, 100, 150),))]
    without = replace(start, stream=None, by_sink=False), replace(end, stream=None, by_sink=False)
    assert plan(without[1], without[0]) == [PlannedInput(0, (Range("t", 0, 100, 150),))]


def test_ranges_and_handoffs_have_the_leader_epochs_of_the_plan() -> None:
    end = StreamOffset({A: Span(20, 150, 0), B: Span(5, 7, 0)}, slots=1, max_records=100, epochs={A: 4, B: 3})
    planned = plan(end)
    assert {(r.partition, r.epoch) for one in planned for r in one.ranges} == {(0, 4), (1, 3)}
    handoff = handoff_of(planned, SlotCredentials("g", 3, "m", None), "mine", "id", {})
    assert handoff.ends({}, None) == {A: CommitOffset(150, 4, "mine"), B: CommitOffset(7, 3, "mine")}
