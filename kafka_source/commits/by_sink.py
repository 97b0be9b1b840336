"""The sink commits the offsets, in the transaction of its decision (`commit=sink`).

A micro-batch that was planned but not decided has changed neither the output nor the group. While the query was down,
other members may have read further. So a replay begins at the group's offsets, and reads only the partitions that the
query owns. A decision records its ranges. The replay of a decided batch reads exactly the ranges of the decision:
operators between source and sink need the rows again, but the sink drops the rows.
"""

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from uuid import uuid4

from assignors.model import TopicPartition
from kafka_source.commits.handoff import DecisionRecord, Handoff
from kafka_source.commits.policy import CommitPolicy, Committed, Replay, Rule, StreamGroup, ends_of, max_offset
from kafka_source.commits.rights import Right
from kafka_source.errors import InvalidConfigurationError
from kafka_source.kafka_client import cached_client
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import format_moves
from kafka_source.model.stream_offset import PlannedInput, Range, StreamOffset
from kafka_source.options import ReadOptions

log = logging.getLogger(__name__)


class BySink(CommitPolicy):
    """The exactly-once sink of the same query commits the offsets of a batch together with the batch's rows."""

    keeps = signs = is_output = True
    driver_id = "-driver"

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._has_committed = self._is_told = False

    @cached_property
    def _record(self) -> DecisionRecord:
        options = self._options
        seconds = options.coordinator_timeout_ms / 1000
        return DecisionRecord(cached_client(options.settings), options.group_id or "", seconds)

    @cached_property
    def right_id(self) -> str | None:
        """The id of the right; None: the right is not renewed."""
        # In the consumer protocol epochs rise during a batch, so the sink needs new credentials in any case.
        renews = self._options.group_on_lost != "stop" or self._options.group_protocol == "consumer"
        return uuid4().hex if renews else None

    @cached_property
    def right(self) -> Right:
        """The sink's right to commit a batch."""
        return Right(self.right_id)

    def counts(self, start: StreamOffset) -> Rule:
        """Return the rule: after the sink's first decision, the query continues at the group's offset."""
        return group_or_own if start.by_sink and start.stream is not None else max_offset

    def keep_record(
        self, stream: str | None, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> None:
        """Write the stream's first decision record, or repeat the record; see `DecisionRecord.keep`."""
        self._record.keep(stream or "", partitions, topic_ids)

    def check_finished(self, batch: StreamOffset, committed: Committed, *, has_new: bool) -> None:
        """If the sink has committed nothing, warn, and refuse to plan a second micro-batch.

        The source does not know its sink, but the group's offsets show whether the sink has committed. Check only
        batches of this process: while the process runs, no tool can set the group back to a batch's start.
        """
        if self._has_committed:
            return
        if is_handed_over(batch, committed(sorted(batch.partitions))):
            self._has_committed = True
            return
        message = _describe_idle_sink(self._options.group_id)
        if has_new:
            raise InvalidConfigurationError(message)
        if not self._is_told:
            log.warning("%s A second micro-batch is refused.", message)
            self._is_told = True

    @property
    def may_plan_empty(self) -> bool:
        """Whether the sink has committed a batch. If not, no second batch is planned."""
        return self._has_committed

    def replay(self, planned: list[PlannedInput], batch: StreamOffset, group: StreamGroup) -> Replay:
        """Return the ranges of the decision; without a decision, the ranges that this query still has to read."""
        owned = group.rejoined()
        partitions, stream = sorted(ends_of(planned)), batch.stream
        # A stream without an id has committed nothing.
        decided = self._record.decided(stream, plan_id(batch), partitions) if stream else {}
        if decided:
            return Replay(only_decided(planned, decided))
        committed = group.committed(partitions)
        if stream:
            name = self._record.name(stream)
            check_undecided(planned, committed, stream, name, has_record=decided is not None)
        return Replay(remaining(planned, owned.slots, committed, batch))

    def tasks_made(
        self,
        planned: Sequence[PlannedInput],
        members: Mapping[int, SlotCredentials],
        batch: StreamOffset,
        topic_ids: Mapping[str, str],
    ) -> tuple[Handoff, ...]:
        """Return the hand-offs of the whole batch.

        Raises:
            ValueError: The tasks have no credentials of slots, which the sink's commit needs.
        """
        if not members:
            raise ValueError("commit=sink needs tasks of a group's members")
        return handoffs_of(planned, members, batch.stream or "", plan_id(batch), topic_ids)


def group_or_own(own: int | None, committed: int | None) -> int | None:
    """Return the group's committed offset or, if it has no offset, the query's position; None: neither exists.

    A stream gets an id with its first batch with `commit=sink`. From this batch on, every finished batch is decided, so
    the group's offsets describe the output, even after a rewind. Without an id, `max_offset` applies, because another
    value of `commit` may not have committed the last batch.
    """
    return own if committed is None else committed


def is_handed_over(batch: StreamOffset, committed: Mapping[TopicPartition, CommitOffset]) -> bool:
    """Return whether the sink has committed a finished batch, or the group has no offsets to compare.

    If the sink does not commit, the group has the offsets at which the batch began. A group that was set back, by a
    rewind or for a truncated log, may have the starting offsets again. A topic that was created again has no offsets.
    """

    def is_moved(tp: TopicPartition, entry: CommitOffset) -> bool:
        is_rewound = entry.unfollowed_rewind(batch.rewinds.get(tp)) is not None
        return is_rewound or entry.offset != batch.partitions[tp].start

    read = [tp for tp, span in batch.partitions.items() if span.end > span.start and tp in committed]
    return not read or any(is_moved(tp, committed[tp]) for tp in read)


def _describe_idle_sink(group: str | None) -> str:
    """Return the error for a sink that has not committed the first batch of a query with `commit=sink`."""
    return (
        f"Option commit is sink, but the sink has not committed the first micro-batch of this query: group {group} "
        "still has the query's starting offsets. The rows were written. Write to Kafka with format kafkagroup, "
        f"transactional=true and commit.group={group}. With any other sink, or with foreachBatch, set commit=batch, "
        "which commits after each micro-batch."
    )


def plan_id(end: StreamOffset) -> str:
    """Return an id of the batch with this end offset. A restarted query finds the batch's decision by this id."""
    spans = [
        (tp.topic, tp.partition, span.start, span.end, end.rewinds.get(tp))
        for tp, span in sorted(end.partitions.items())
    ]
    return sha256(json.dumps((spans, sorted(end.topics.items()))).encode()).hexdigest()[:16]


def only_decided(
    planned: Iterable[PlannedInput], decided: Mapping[TopicPartition, tuple[int, int]]
) -> list[PlannedInput]:
    """Return the ranges of a decided batch's replay, which are the ranges of the decision."""
    found = []
    for one in planned:
        cut = (
            r._replace(start=max(r.start, start), end=min(r.end, end))
            for r in one.ranges
            for start, end in [decided.get(r.topic_partition, (0, 0))]
        )
        if ranges := tuple(r for r in cut if r.size):
            found.append(one._replace(ranges=ranges))
    return found


def check_undecided(
    planned: Iterable[PlannedInput],
    committed: Mapping[TopicPartition, CommitOffset],
    stream: str,
    record: str,
    *,
    has_record: bool,
) -> None:
    """If no record names a batch, check that the batch was not decided.

    Args:
        planned: The batch's inputs, as its end offset defines them.
        committed: The group's committed offsets.
        stream: The stream's id.
        record: The name of the record's group.
        has_record: Whether a record of other batches exists.

    Raises:
        InvalidConfigurationError: The record is lost, and the group is past the start of the batch; or this stream has
            committed offsets inside of the batch.
    """
    past = {
        r.topic_partition: (r.start, committed[r.topic_partition].offset)
        for one in planned
        for r in one.ranges
        if r.topic_partition in committed
        and committed[r.topic_partition].offset > r.start
        and not (has_record and not _is_own(r, committed[r.topic_partition], stream))
    }
    if past:
        raise InvalidConfigurationError(
            f"Group {record} has no entry about whether the sink committed this query's unfinished micro-batch, and "
            f"the query's group is past its start: {format_moves(past)}. The offsets of {record} have expired "
            "(offsets.retention.minutes), were deleted, or the batch was planned with another value of commit. Nothing "
            "was read. Start the query once with that value, or with a new checkpointLocation, which continues at the "
            "group's offsets."
        )


def _is_own(r: Range, entry: CommitOffset, stream: str) -> bool:
    return OffsetNote.parse(entry.metadata).stream == stream and entry.offset <= r.end


def remaining(
    planned: Sequence[PlannedInput],
    owned: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, CommitOffset],
    batch: StreamOffset,
) -> list[PlannedInput]:
    """Return the ranges of an undecided batch's replay.

    Each slot reads its current partitions, because the slot's credentials commit their offsets. The coordinator would
    not refuse a commit in a partition that the slot has lost.

    Args:
        planned: The batch's inputs, as its end offset defines them.
        owned: The partitions that the query owns now, with their slots.
        committed: The group's committed offsets.
        batch: The end offset of the batch.
    """
    starts: dict[TopicPartition, int] = {}
    for r in (r for one in planned for r in one.ranges):
        starts[r.topic_partition] = min(r.start, starts.get(r.topic_partition, r.start))

    def left(r: Range) -> Range:
        tp = r.topic_partition
        if tp not in owned:
            # The new owner starts at the group's offset and reads the range.
            return r._replace(start=r.end)
        if (entry := committed.get(tp)) is None:
            return r
        # The group's offset is of a later leader's log, so the log may have been truncated after the plan.
        is_of_later_leader = 0 <= r.epoch < entry.leader_epoch
        is_rewound = entry.unfollowed_rewind(batch.rewinds.get(tp)) is not None
        if entry.offset < starts[tp]:
            # If the group was set back after the batch was planned, the next batch begins at the group's offset. If the
            # batch was planned with another value of `commit`, the group may only lack the commit of the last batch.
            return r._replace(start=r.end) if batch.by_sink or is_of_later_leader or is_rewound else r
        epoch = entry.leader_epoch if is_of_later_leader else r.epoch
        return r._replace(start=max(r.start, entry.offset), epoch=epoch)

    found = []
    for slot, ranges in planned:
        of_slot: dict[int, list[Range]] = {}
        for r in map(left, ranges):
            if r.size:
                of_slot.setdefault(owned.get(r.topic_partition, slot), []).append(r)
        found += [PlannedInput(owner, tuple(of_it)) for owner, of_it in sorted(of_slot.items())]
    return found


def handoff_of(
    planned: Iterable[PlannedInput], member: SlotCredentials, stream: str, plan_id: str, topic_ids: Mapping[str, str]
) -> Handoff:
    """Return the hand-off of a batch from the source to the sink.

    Args:
        planned: The ranges of the batch.
        member: The credentials of any member of the query; a broker checks only its generation.
        stream: The stream's id.
        plan_id: See `plan_id`.
        topic_ids: The ids that the topics had when the batch was planned.
    """
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    epochs = {}
    for _, parts in planned:
        for r in parts:
            start, end = ranges.get(r.topic_partition, (r.start, r.end))
            ranges[r.topic_partition] = (min(start, r.start), max(end, r.end))
            epochs[r.topic_partition] = r.epoch
    without_slot = replace(member, slot=0, partitions=(), per_member_epoch=False)
    ids = {tp.topic: topic_ids[tp.topic] for tp in ranges if tp.topic in topic_ids}
    return Handoff(without_slot, ranges, stream, plan_id, ids, epochs)


def handoffs_of(
    planned: Sequence[PlannedInput],
    members: Mapping[int, SlotCredentials],
    stream: str,
    plan_id: str,
    topic_ids: Mapping[str, str],
) -> tuple[Handoff, ...]:
    """Return a batch's hand-off from the source to the sink, or a hand-off for each member that commits separately.

    Args:
        planned: The ranges of the batch.
        members: The credentials of the slots that read, by slot number; at least one.
        stream: The stream's id.
        plan_id: See `plan_id`.
        topic_ids: The ids that the topics had when the batch was planned.
    """
    first_member = members[min(members)]
    if not first_member.per_member_epoch:
        return (handoff_of(planned, first_member, stream, plan_id, topic_ids),)
    parts: dict[int, list[PlannedInput]] = {}
    for one in planned:
        parts.setdefault(members.get(one.slot, first_member).slot, []).append(one)
    return tuple(handoff_of(part, members[slot], stream, plan_id, topic_ids) for slot, part in sorted(parts.items()))
