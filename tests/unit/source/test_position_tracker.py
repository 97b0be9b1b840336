"""Where a stream continues: what its checkpoint, its group and the log say, in every combination."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import ListedOffset
from kafka_source.commits.choose import Caller, policy_of
from kafka_source.commits.offsets import Offsets
from kafka_source.commits.policy import max_offset
from kafka_source.errors import DataLossError, InvalidConfigurationError
from kafka_source.group.model import OwnedPartitions, subscription_of
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.stream_offset import Span, StreamOffset
from kafka_source.source.decision import Facts, GroupFacts, LogFacts, Rules, decide
from kafka_source.source.owners import PartitionOwner
from kafka_source.source.position_tracker import PositionTracker, Scope, ShortLogs
from kafka_source.source.positions import Positions
from tests.support.queries import query_of

TP = TopicPartition("t", 0)
MINE = "my-stream"

offsets = st.integers(0, 100)
choices = st.sampled_from(["stop", "follow", "replay"])
commits = st.sampled_from(["batch", "task"])
committers = st.sampled_from([MINE, "another", ""])


class Log:
    """A partition's log that begins at 0, as `Cluster` tells it.

    Args:
        end: The offset after its last record.
        epoch: The epoch of its leader; -1: the brokers do not tell it.
        ends: Where each leader epoch ends.
    """

    def __init__(self, end: int, epoch: int = -1, ends: Mapping[int, int] | None = None) -> None:
        self.end, self.epoch, self.ends = end, epoch, dict(ends or {})
        self.asked: list[dict[TopicPartition, int]] = []

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.asked += [dict(epochs)] if epochs else []
        return {tp: self.ends[epoch] for tp, epoch in epochs.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def at_times(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, int | None]:
        assert not times, "no option of these tests is a time"
        return {}

    def latest_with_epochs(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, ListedOffset]:
        return dict.fromkeys(partitions, ListedOffset(self.end, self.epoch))


class GroupsOffsets(Offsets):
    """A group in memory; whoever sets an offset back commits with its marks."""

    def __init__(self, entries: dict[TopicPartition, CommitOffset], positions: Positions) -> None:
        self.entries, self._positions = entries, positions

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        return self._positions.of_these_topics({tp: self.entries[tp] for tp in partitions if tp in self.entries})

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        self.entries |= self._positions.with_notes(starts)


class Start:
    """A start of a query with a checkpoint at an offset, in a group with another one, on a log with an end."""

    def __init__(
        self,
        entries: dict[TopicPartition, CommitOffset],
        end: int,
        *,
        commit: str = "batch",
        choice: str = "stop",
        loss: bool = False,
        epoch: int = -1,
        ends: Mapping[int, int] | None = None,
        patience_ms: int = 0,
        program: bool = False,
    ) -> None:
        given = {
            "kafka.bootstrap.servers": "a:1",
            "subscribe": "t",
            "kafka.group.id": "g",
            "commit": commit,
            **({"group.on.older.checkpoint": choice} if choice != "stop" else {}),
            "failOnDataLoss": str(loss).lower(),
            "data.loss.patience.ms": str(patience_ms),
        }
        self.log, self.positions = Log(end, epoch, ends), Positions()
        self.group = GroupsOffsets(entries, self.positions)
        query = query_of(given)
        cluster: Any = self.log
        owner = PartitionOwner(cluster, subscription_of(query.options), self.group)
        policy = policy_of(query.options, Caller.PROGRAM if program else Caller.STREAM)
        self.tracker = PositionTracker(query.options, policy, cluster, owner, [TP], self.positions)

    def position(self, checkpoint: StreamOffset, lost_topics: Collection[str] = ()) -> int:
        self.positions.learn(checkpoint)
        self.tracker.compare_with_group(checkpoint)
        owned = OwnedPartitions({TP: 0}, 1, 1)
        self.starts = self.tracker.settle(Scope(checkpoint, owned, [TP], lost_topics)).starts
        return self.starts[TP]

    def planned(self, checkpoint: StreamOffset) -> StreamOffset:
        """The checkpoint after the start, if it needs an empty batch; else as before."""
        if self.tracker.are_durable(checkpoint, self.starts):
            return checkpoint
        spans = {tp: Span(at, at, 0) for tp, at in self.starts.items()}
        rewinds = self.positions.rewinds(spans)
        epochs = self.positions.end_epochs(self.starts, self.starts, {TP: self.log.epoch})
        return StreamOffset(spans, stream=checkpoint.stream, rewinds=rewinds, epochs=epochs)


def at(offset: int, epoch: int | None = None) -> StreamOffset:
    epochs = {} if epoch is None else {TP: epoch}
    return StreamOffset({TP: Span(0, offset, 0)}, stream=MINE, epochs=epochs)


@given(offsets, offsets, commits, committers, choices)
def test_a_group_that_is_ahead_is_followed_unless_it_is_by_own_commits(own, group, commit, who, choice):
    start = Start({TP: CommitOffset(group, metadata=who)}, 100, commit=commit, choice=choice)
    put_back = group > own and who == MINE
    if put_back and choice == "stop":
        with pytest.raises(InvalidConfigurationError, match=f"t-0 from={own} to={group}"):
            start.position(at(own))
        assert start.group.entries == {TP: CommitOffset(group, metadata=who)}
        return
    assert start.position(at(own)) == (own if put_back and choice == "replay" else max(own, group))
    assert start.group.entries[TP].offset == (own if put_back and choice == "replay" else group)


@pytest.mark.parametrize(
    ("noted", "asked", "position"),
    [("new", None, 7), (None, "new", 7), (None, None, 0), ("old", None, 0), ("old", "new", 0)],
)
@pytest.mark.parametrize("who", [MINE, "another"])
@pytest.mark.parametrize("commit", ["batch", "task", "sink"])
def test_a_topic_created_again_continues_where_its_offsets_are(who, commit, noted, asked, position):
    entry = CommitOffset(7, metadata=OffsetNote(who, None, noted, "here").metadata, topic_id=asked)
    start = Start({TP: entry}, 100, commit=commit)
    start.positions.learn(StreamOffset({TP: Span(0, 5, 0)}, stream=MINE, topics={"t": "old"}))
    # Whoever plans leaves lost topics out of the checkpoint's offset.
    start.positions.forget_topics({"t"})
    start.positions.note_topics({"t": "new"}, "here")
    assert start.position(StreamOffset(stream=MINE), {"t"}) == position


@given(offsets, offsets, commits, st.integers(0, 99))
def test_of_two_offsets_the_higher_one_within_the_log_counts(own, group, commit, end):
    start = Start({TP: CommitOffset(group)}, end, commit=commit)
    found = start.position(at(own))
    if max(own, group) <= end:
        assert found == max(own, group)
    else:
        assert found == min(own, group, end) if own > end and group > end else found == min(own, group)


@given(offsets, offsets, commits, offsets, st.booleans())
def test_records_that_are_lost_later_set_nothing_back_to_an_offset_that_did_not_count_before(
    own, group, commit, end, diverges
):
    start = Start({TP: CommitOffset(group)}, 100, commit=commit)
    reached = start.position(at(own, epoch=1))
    start.log.end, start.log.epoch, start.log.ends = end, 2 if diverges else 1, {1: end, 0: end}
    assert start.position(at(reached, epoch=1)) == min(reached, end)


@given(offsets, offsets, commits, st.integers(0, 99), st.integers(0, 200), st.booleans())
def test_no_restart_skips_what_has_come_since_the_position_was_found_beyond_the_end(
    own, group, commit, end, later, logged
):
    """Also where the driver dies before Spark has logged the step back, if anybody has heard of it."""
    assume(max(own, group) > end)
    assume(later >= end)
    entries = {TP: CommitOffset(group)}
    first = Start(entries, end, commit=commit)
    reached = first.position(at(own))
    checkpoint = first.planned(at(own)) if logged else at(own)
    for _ in range(2):
        again = Start(entries, later, commit=commit)
        assert again.position(checkpoint) == reached
        checkpoint = again.planned(checkpoint)


def test_a_program_that_dies_before_its_commit_skips_nothing_that_has_come_since_either():
    """It has no checkpoint: only the group's offset can tell the next one where the log ended."""
    entries = {TP: CommitOffset(140)}
    assert Start(entries, 100, program=True).position(StreamOffset()) == 100
    assert Start(entries, 150, program=True).position(StreamOffset()) == 100


@given(offsets, offsets, commits, st.integers(0, 99))
def test_with_fail_on_data_loss_nothing_is_set_back(own, group, commit, end):
    assume(max(own, group) > end)
    entries = {TP: CommitOffset(group)}
    with pytest.raises(DataLossError):
        Start(entries, end, commit=commit, loss=True).position(at(own))
    assert entries == {TP: CommitOffset(group)}


@given(st.none() | st.just("a1"), st.none() | st.just("c3"), st.sampled_from([(None, None), ("x+/", "y-_@:")]))
def test_a_note_is_read_as_it_was_written(stream, rewound, topic):
    note = OffsetNote(stream, rewound, *topic)
    assert OffsetNote.parse(note.metadata) == note


def test_notes_of_others_are_read():
    assert OffsetNote.parse("") == OffsetNote()
    assert OffsetNote.parse("6f1e") == OffsetNote(stream="6f1e")
    assert OffsetNote.parse("kafkagroup:rewound:6f1e") == OffsetNote(rewound="6f1e")
    assert OffsetNote.parse("consumer of Mr. X") == OffsetNote(stream="consumer of Mr. X")
    assert OffsetNote.parse("6f1e kafkagroup:of-a-later-version:1") == OffsetNote(stream="6f1e")


epochs_read = st.integers(0, 5)


@given(offsets, epochs_read, epochs_read, st.integers(-1, 100), commits)
def test_a_new_leader_without_what_was_read_is_found_and_its_records_are_read(own, read, now, end, commit):
    """The log has grown past the position again, so that only the leader epochs tell."""
    start = Start({}, 200, commit=commit, epoch=now, ends={read: end})
    assert start.position(at(own, read)) == (end if now > read and 0 <= end < own else own)
    assert start.log.asked == ([{TP: read}] if now > read else [])
    # A restart finds the same, and its leader is asked no more than once.
    checkpoint = start.planned(at(own, read))
    again = Start(start.group.entries, 200, commit=commit, epoch=now, ends={read: end})
    assert again.position(checkpoint) == start.starts[TP]
    assert again.position(checkpoint) == start.starts[TP]
    assert len(again.log.asked) == len(start.log.asked)


@given(offsets, epochs_read, st.integers(0, 100), commits)
def test_with_fail_on_data_loss_a_divergence_is_told_and_nothing_is_set_back(own, read, end, commit):
    assume(end < own)
    entries = {TP: CommitOffset(own, read)}
    start = Start(entries, 200, commit=commit, loss=True, epoch=read + 2, ends={read: end})
    with pytest.raises(DataLossError, match=rf"t-0 .* {own}: .* epoch {read}, .* epoch {read + 2} .* offset {end} on"):
        start.position(at(own, read))
    assert entries == {TP: CommitOffset(own, read)}


@given(offsets, offsets, st.integers(-1, 100), commits)
def test_where_logs_diverge_is_where_the_higher_offset_continues_whatever_the_lower_one_is(own, group, end, commit):
    start = Start({TP: CommitOffset(group, 0)}, 200, commit=commit, epoch=1, ends={0: end})
    highest = max(own, group)
    assert start.position(at(own, 0)) == (end if 0 <= end < highest else highest)


@given(offsets, offsets, epochs_read, epochs_read, commits)
def test_the_offset_that_counts_brings_its_epoch(own, group, own_epoch, group_epoch, commit):
    start = Start(
        {TP: CommitOffset(group, group_epoch)}, 200, commit=commit, epoch=9, ends=dict.fromkeys(range(6), 150)
    )
    start.position(at(own, own_epoch))
    expected = own_epoch if own > group else group_epoch if group > own else max(own_epoch, group_epoch)
    assert start.log.asked == [{TP: expected}]


def test_an_offset_without_an_epoch_is_taken_as_it_is_and_has_the_epoch_of_now_from_then_on():
    """For example an offset that another client has committed."""
    start = Start({}, 200, commit="batch", epoch=4)
    assert (start.position(at(150)), start.log.asked) == (150, [])
    assert start.positions.end_epochs({TP: 150}, {TP: 150}, {TP: 4}) == {TP: 4}
    start.log.epoch, start.log.ends = 6, {4: 120}
    assert (start.position(at(150)), start.log.asked) == (120, [{TP: 4}])


def test_brokers_that_tell_no_epochs_are_not_asked_for_any():
    start = Start({}, 200, commit="batch")
    assert (start.position(at(150, 3)), start.log.asked) == (150, [])
    assert start.positions.end_epochs({TP: 150}, {TP: 200}, {TP: -1}) == {}


def test_an_election_alone_changes_no_offset_of_the_checkpoint():
    start = Start({}, 150, commit="batch", epoch=4, ends={3: 150})
    assert start.position(at(150, 3)) == 150
    assert start.planned(at(150, 3)) == at(150, 3)
    assert start.positions.end_epochs({TP: 150}, {TP: 150}, {TP: 4}) == {TP: 3}
    assert start.positions.end_epochs({TP: 150}, {TP: 170}, {TP: 4}) == {TP: 4}


def test_a_commit_has_the_epoch_of_its_offset():
    positions = Positions()
    positions.learn(at(150, 3))
    assert positions.with_notes({TP: 150})[TP].leader_epoch == 3
    assert positions.with_notes({TP: 140})[TP].leader_epoch == -1
    positions.begin(at(150, 3))
    positions.learn(at(180, 4))
    assert [positions.with_notes({TP: at})[TP].leader_epoch for at in (150, 180)] == [3, 4]


def test_topics_of_another_incarnation_lose_their_epochs():
    positions = Positions()
    positions.begin(at(150, 3))
    positions.forget_topics({"t"})
    found = decide(TP, positions.known(TP), Facts(GroupFacts(), 0, LogFacts(9, 9)), Rules(max_offset))
    assert (found.need, found.known.next) == (None, 0)


@given(offsets, offsets, epochs_read, commits)
def test_a_leader_that_may_be_behind_is_given_time_where_an_earlier_one_had_the_records(own, end, read, commit):
    assume(end < own)
    known = Start({}, end, commit=commit, loss=True, epoch=read, patience_ms=60_000)
    assert known.position(at(own, read)) == own
    assert known.tracker.awaits_longer_logs
    known.log.end = own
    assert known.position(at(own, read)) == own
    assert not known.tracker.awaits_longer_logs
    # Nobody knows whether an offset without an epoch has ever been in this log, and the log may soon be longer.
    unknown = Start({TP: CommitOffset(own)}, end, commit=commit, loss=True, epoch=read, patience_ms=60_000)
    with pytest.raises(DataLossError, match=f"t-0 cannot be read from offset {own}"):
        unknown.position(at(own))


def test_a_short_log_is_waited_for_so_long_only():
    seconds = 0.0
    logs = ShortLogs(30, lambda: seconds)
    other = TopicPartition("t", 1)
    logs.wait_for(TP)
    seconds = 29
    logs.wait_for(TP)
    logs.wait_for(other)
    seconds = 31
    assert [logs.seconds(TP), logs.seconds(other)] == [31, 2]
    assert logs
    seconds = 60
    assert not logs
    # Its log has been long enough in between.
    logs.keep([other])
    assert [logs.seconds(TP), logs.seconds(other)] == [0, 31]
    logs.wait_for(TP)
    assert logs
    logs.keep([])
    assert not logs
