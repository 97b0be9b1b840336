"""Batches that an earlier start of a stream has planned and not finished: what a replay of them reads.

With `commit=sink` a micro-batch that was planned but not decided has left nothing behind, neither in the output nor in
the group. While the query was down, other members may have read further, so a replay reads only what the group still
leaves to this query. A decision records its ranges, and a replay of its batch reads exactly these, because operators
between source and sink need the rows again; the sink drops them.

A batch of Spark's own Kafka source is planned again. Spark's offsets say where it ends, and the offset before says
where it starts. The start of a query's first batch is in the file `sources/0/0` of the checkpoint. Spark does not tell
a Python source where the checkpoint is, so this start is resolved from the options, or, where they cannot give the same
offsets again, imported by a command.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import LATEST
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.handoff import Handoff
from kafka_source.errors import NEW_OUTPUT, DataLossError, InvalidConfigurationError
from kafka_source.group.strategies import new_id
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import Range, Span, StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import StartingValues
from kafka_source.source.plan import PlannedInput
from kafka_source.source.start_and_end import earliest_of_added, format_moves, raise_or_warn, starting_offsets

# ---- a sink that commits the offsets, and the hand-off to it


def is_handed_over(batch: StreamOffset, committed: Mapping[TopicPartition, CommitOffset]) -> bool:
    """Return whether the sink has committed a batch that is done, or whether the group's offsets do not tell that.

    Without a sink that commits them the group has the offsets with which the batch began. A group that was set back
    since, by a rewind or by this query itself where a log was truncated, may have them again.
    """

    def is_moved(tp: TopicPartition, entry: CommitOffset) -> bool:
        rewound = OffsetNote.parse(entry.metadata).rewound
        return entry.offset != batch.partitions[tp].start or rewound not in (None, batch.rewinds.get(tp))

    return any(is_moved(tp, committed[tp]) for tp in records_of(batch) if tp in committed)


def describe_idle_sink(group: str | None) -> str:
    """Return the error for a sink that has not committed the first batch of a query with `commit=sink`."""
    return (
        f"Option commit is sink, and the sink has not committed the first micro-batch of this query: group {group} "
        "stands where the query has started. The rows were written. Write to Kafka with format kafkagroup, "
        f"transactional=true and commit.group={group}; or, with any other sink and with foreachBatch, set "
        "commit=batch, which commits after each micro-batch."
    )


def plan_id(end: StreamOffset) -> str:
    """Return an id of the batch that ends at an offset, by which a decision about it is known after a restart."""
    spans = [
        (tp.topic, tp.partition, span.start, span.end, end.rewinds.get(tp))
        for tp, span in sorted(end.partitions.items())
    ]
    return sha256(json.dumps((spans, sorted(end.topics.items()))).encode()).hexdigest()[:16]


def only_decided(
    planned: Iterable[PlannedInput], decided: Mapping[TopicPartition, tuple[int, int]]
) -> list[PlannedInput]:
    """Return what a replay of a decided batch reads: the ranges of the decision, as the batch was planned."""
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
    """Check that a batch that no record names was not decided.

    Args:
        planned: The batch as its end offset plans it.
        committed: The group's committed offsets.
        stream: The stream's id.
        record: The name of the record's group.
        has_record: Whether there is a record, of other batches.

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
            f"Group {record} does not say whether the unfinished micro-batch of this query was decided, and the group "
            f"of the query is past its start: {format_moves(past)}. The offsets of {record} have expired "
            "(offsets.retention.minutes), were deleted, or the batch was planned with another value of commit. Nothing "
            "was read. Start the query once with that value; or with a new checkpointLocation, which continues at the "
            "group's offsets."
        )


def _is_own(r: Range, entry: CommitOffset, stream: str) -> bool:
    return OffsetNote.parse(entry.metadata).stream == stream and entry.offset <= r.end


def remaining(
    planned: Iterable[PlannedInput],
    owned: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, CommitOffset],
) -> list[PlannedInput]:
    """Return what a replay of an undecided batch reads.

    Each slot reads what it owns now: the offsets are committed as that slot, and the group would not notice if another
    one had lost them.

    Args:
        planned: The batch as its end offset plans it.
        owned: The partitions that the query owns now, with their slots.
        committed: The group's committed offsets.
    """
    found = []
    for slot, ranges in planned:
        kept = [_remaining(r, owned, committed.get(r.topic_partition)) for r in ranges]
        of_slot: dict[int, list[Range]] = {}
        for r in kept:
            if r.size:
                of_slot.setdefault(owned.get(r.topic_partition, slot), []).append(r)
        found += [PlannedInput(owner, tuple(of_it)) for owner, of_it in sorted(of_slot.items())]
    return found


def by_present_slots(
    planned: Iterable[PlannedInput], owned: Mapping[TopicPartition, int], slots: int
) -> list[PlannedInput]:
    """Return a batch whose tasks commit, with one input for each slot of now, which reads a partition in one range.

    Tasks that commit as one slot take its transactional id, so they would fence each other. The batch may have been
    planned with other slots, with pieces of partitions, or without a group.

    Args:
        planned: The batch as its end offset plans it.
        owned: The partitions that the query owns now, with their slots.
        slots: How many slots it has now.
    """
    found: dict[int, dict[tuple[TopicPartition, int], Range]] = {}
    for slot, ranges in planned:
        for r in ranges:
            owner = (owned.get(r.topic_partition, slot) if r.replica == 0 else slot) % slots
            of_slot, copy = found.setdefault(owner, {}), (r.topic_partition, r.replica)
            before = of_slot.get(copy, r)
            of_slot[copy] = r._replace(start=min(r.start, before.start), end=max(r.end, before.end))
    return [PlannedInput(slot, tuple(of_slot.values())) for slot, of_slot in sorted(found.items())]


def before_rewinds(planned: Iterable[PlannedInput], targets: Mapping[TopicPartition, int]) -> list[PlannedInput]:
    """Return what a batch whose tasks commit reads in partitions that were rewound since it was planned, and elsewhere.

    The next batch begins at the rewind's target. What is before it is in no output, also if the tasks have committed.

    Args:
        planned: The batch.
        targets: The group's offsets in the rewound partitions.
    """

    def before(r: Range) -> Range:
        return r._replace(end=min(r.end, max(r.start, targets.get(r.topic_partition, r.end))))

    cut = (one._replace(ranges=tuple(c for r in one.ranges if (c := before(r)).size)) for one in planned)
    return [one for one in cut if one.ranges]


def _remaining(r: Range, owned: Collection[TopicPartition], committed: CommitOffset | None) -> Range:
    group_offset = r.start if committed is None else committed.offset
    if committed is not None and OffsetNote.parse(committed.metadata).rewound is not None and group_offset < r.start:
        # Somebody has rewound the group since the batch was planned. The next batch begins at the group's offset.
        return r._replace(start=r.end)
    if r.topic_partition not in owned:
        # The new owner starts at the group's offset and reads the range.
        return r._replace(start=r.end)
    return r._replace(start=max(r.start, group_offset))


def ends_of(planned: Iterable[PlannedInput]) -> dict[TopicPartition, int]:
    """Return the next offset after what is planned, by partition; a partition may be cut into several ranges."""
    ends: dict[TopicPartition, int] = {}
    for one in planned:
        for r in one.ranges:
            if r.replica == 0:
                ends[r.topic_partition] = max(r.end, ends.get(r.topic_partition, 0))
    return ends


def handoff_of(
    planned: Iterable[PlannedInput], member: SlotCredentials, stream: str, plan_id: str, topic_ids: Mapping[str, str]
) -> Handoff:
    """Return what the source tells the sink about a batch.

    Args:
        planned: What the batch reads.
        member: Any member of the query: a broker checks the generation, not who owns a partition.
        stream: The stream's id.
        plan_id: See `plan_id`.
        topic_ids: The ids of the topics that the batch was planned with.
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
    """Return what the source tells the sink about a batch: one hand-off, or one for each member that commits by itself.

    Args:
        planned: What the batch reads.
        members: The credentials of the slots that read, by slot number; at least one.
        stream: The stream's id.
        plan_id: See `plan_id`.
        topic_ids: The ids of the topics that the batch was planned with.
    """
    anybody = members[min(members)]
    if not anybody.per_member_epoch:
        return (handoff_of(planned, anybody, stream, plan_id, topic_ids),)
    parts: dict[int, list[PlannedInput]] = {}
    for one in planned:
        parts.setdefault(members.get(one.slot, anybody).slot, []).append(one)
    return tuple(handoff_of(part, members[slot], stream, plan_id, topic_ids) for slot, part in sorted(parts.items()))


# ---- a batch that Spark has finished without reading it

_UNWRITTEN = "unwritten-"


def new_unwritten_mark() -> str:
    """Return the id of a rewind to where a batch begins that the sink never wrote."""
    return _UNWRITTEN + new_id()


def records_of(batch: StreamOffset) -> dict[TopicPartition, Span]:
    """Return the partitions of which a batch has records."""
    return {tp: span for tp, span in batch.partitions.items() if span.end > span.start}


def begins_unwritten(start: StreamOffset, end: StreamOffset) -> bool:
    """Return whether no batch before this one was written: the checkpoint is new, or its batches were skipped.

    Args:
        start: The start of the batch.
        end: Its end.
    """
    followed = (tp for tp, mark in end.rewinds.items() if mark.startswith(_UNWRITTEN))
    return not start.partitions or any(start.rewinds.get(tp) != end.rewinds[tp] for tp in followed)


def describe_skipped(options: ReadOptions, batch: StreamOffset, *, refused: bool) -> str:
    """Return the error, or the warning, for a batch that Spark has finished without reading it.

    Args:
        options: Of the query.
        batch: The batch's end offset.
        refused: Whether the query ends.
    """
    read = format_moves({tp: (span.start, span.end) for tp, span in records_of(batch).items()})
    told = f"Spark has finished a micro-batch without reading it, so these records are in no output: {read}."
    if not refused:
        return f"{told} That is right where nothing of the query needs them, or where its sink has them already."
    group = f" Group {options.group_id} stays where the micro-batch begins." if options.in_group else ""
    return (
        f"{told}{group} It is the first one of this checkpoint, and the sink has one of its number, of another "
        f"checkpoint. {NEW_OUTPUT}. If nothing of the query needs these records, set the option strict to false."
    )


# ---- a checkpoint of Spark's own source


def planned_batch(
    start: StreamOffset,
    end: StreamOffset,
    *,
    cluster: Cluster,
    options: ReadOptions,
    subscribed: Collection[TopicPartition],
    existing: Collection[TopicPartition],
) -> StreamOffset:
    """Return the end offset of a batch of Spark's source with the starts that Spark's source would read from.

    Args:
        start: The batch's start offset; without partitions for a query's first batch.
        end: The batch's end offset, in Spark's form.
        cluster: Where to look up offsets.
        options: The query's options.
        subscribed: The partitions of the query's subscription.
        existing: The partitions of `end` that exist.

    Raises:
        DataLossError: `failOnDataLoss` is set, and a partition of the batch is gone, is new and does not begin at
            offset 0, or ends before its start.
        InvalidConfigurationError: Only the checkpoint's directory `sources` knows where the first batch starts.
    """
    starts = start.ends if start.partitions else _first_starts(cluster, options, existing, subscribed)
    for tp in sorted(set(starts) - set(end.partitions)):
        raise_or_warn(options, DataLossError.of_deleted(tp, planned=starts[tp]))
    added = [tp for tp in existing if tp not in starts]
    starts = {**starts, **earliest_of_added(cluster, options, added)}
    spans, ends = {}, end.ends
    for tp in existing:
        first, last = starts[tp], ends[tp]
        if first > last:
            raise_or_warn(options, DataLossError.of_lower_end(tp, planned=first, end=last))
        spans[tp] = Span(min(first, last), last, -1)
    return StreamOffset(
        spans, min_partitions=options.min_partitions, max_records=options.max_records_per_partition, stream=end.stream
    )


def _first_starts(
    cluster: Cluster,
    options: ReadOptions,
    partitions: Collection[TopicPartition],
    subscribed: Collection[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """Return where a query's first batch starts, if the options give the same offsets whenever they are resolved."""
    by_time = options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None
    wanted = "latest" if options.starting_offsets is None else options.starting_offsets
    if by_time:
        is_stable = options.starting_offsets_by_timestamp_strategy == "error"
    elif isinstance(wanted, dict):
        is_stable = all(_is_stable(wanted, topic) for topic in wanted.keys() | {tp.topic for tp in partitions})
    else:
        is_stable = wanted == "earliest"
    if not is_stable:
        raise InvalidConfigurationError(
            "Spark's own Kafka source has planned the first batch of this query and not finished it. Where the batch "
            "starts is only in the directory sources of the checkpoint, which Spark does not show to this source. Run "
            "`kafkagroup import-checkpoint CHECKPOINT --yes`, then start the query again."
        )
    known = [tp for tp in partitions if tp in subscribed]
    return starting_offsets(cluster, options, known, {}, subscribed=subscribed, default="latest")


def _is_stable(wanted: StartingValues, topic: str) -> bool:
    """Return whether no partition of a topic starts at latest, which is another offset at each look."""
    of_topic = wanted.get(topic, "latest")
    return LATEST not in of_topic.values() if isinstance(of_topic, dict) else of_topic == "earliest"
