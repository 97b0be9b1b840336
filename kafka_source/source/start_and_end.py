"""Where a read starts and ends: committed, earliest, latest, JSON, timestamps; `failOnDataLoss` of a batch."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST, LATEST, ListedOffset
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import NEW_OUTPUT, DataLossError, InvalidConfigurationError, OptionError, UnknownTopicError
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.identity import is_recreated, lost_topic
from kafka_source.model.partition_runs import format_moves
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import PartitionValues, StartingValues, TopicWord
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.logs import once
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.source.owners import PartitionOwner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The offsets that a batch reads, `[starts[tp], ends[tp])`.

    Attributes:
        starts: The first offset of each partition.
        ends: The offset after the last one.
        late_starts: The partitions that start at `earliest`, which each action of a batch without a group looks up.
        late_ends: The partitions that end at `latest`, likewise.
        leaderless: Those of them that have no leader, with 0 for both offsets: their tasks wait for one.
        epochs: The epoch of the leader that has told each end, as far as it is known and the end is not late.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    late_starts: frozenset[TopicPartition] = frozenset()
    late_ends: frozenset[TopicPartition] = frozenset()
    leaderless: frozenset[TopicPartition] = frozenset()
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


class Divergence(NamedTuple):
    """Where the log of a new leader diverges from what was read.

    Attributes:
        end: The offset up to which both have the same records.
        epoch: The epoch of the leader from which it was read.
        leader_epoch: The epoch of the current leader.
    """

    end: int
    epoch: int
    leader_epoch: int


def resolve_batch(
    cluster: Cluster,
    options: ReadOptions,
    owner: PartitionOwner,
    partitions: Collection[TopicPartition],
    *,
    subscribed: Collection[TopicPartition],
    check_all: bool,
) -> BatchBounds:
    """Resolve where a batch read starts and ends in each partition.

    Args:
        cluster: Where to look up offsets.
        options: The query's options.
        owner: Knows the group's committed offsets.
        partitions: The partitions that the query owns.
        subscribed: All partitions of the query's subscription; JSON options must name exactly these.
        check_all: Check all starts for data loss; if false, only the committed ones, and the tasks check the others.

    Raises:
        DataLossError: `failOnDataLoss` is set and a checked start lies outside the log, or the log ends before an
            ending offset that the options give as a number.
        OptionError: A JSON option does not name exactly the partitions of the subscription.
        InvalidConfigurationError: No record matches a starting timestamp, or a start lies beyond its end.
    """
    # One may have been added while the members joined.
    subscribed = {*subscribed, *partitions}
    leaderless = frozenset() if options.in_group else _left_to_tasks(cluster, options, partitions)
    partitions = [tp for tp in partitions if tp not in leaderless]
    entries = owner.offsets.committed(sorted(partitions))
    committed = {tp: entry.offset for tp, entry in entries.items()}
    log_committed_start(options, list(committed), commits=owner.offsets.keeps)
    again = cluster.earliest(owner.offsets.ignored(partitions))
    # Other clients do not read the note of the offsets there, and would continue at these.
    owner.offsets.remember(again)
    known = committed | again
    starts = starting_offsets(cluster, options, partitions, known, subscribed=subscribed, default="earliest")
    checked = {tp: start for tp, start in starts.items() if check_all or tp in committed}
    epochs = {tp: entry.leader_epoch for tp, entry in entries.items()}
    starts |= check_data_loss(cluster, options, checked, epochs=epochs)
    lost = {tp: starts[tp] for tp in committed if starts[tp] < committed[tp]}
    for tp, to in lost.items():
        log.warning("stepped back %s-%d from=%d to=%d", tp.topic, tp.partition, committed[tp], to)
    owner.offsets.rewind(lost)
    listed = ending_offsets(cluster, options, partitions, subscribed=subscribed)
    ends = {tp: one.offset for tp, one in listed.items()}
    late_starts = frozenset(tp for tp in partitions if starts_at_earliest(options, tp, default="earliest"))
    late_ends = frozenset(tp for tp in partitions if _ends_at_latest(options, tp))
    for tp in partitions:
        # A committed offset may be beyond the end: the group has read on. Without a group a late end is checked by the
        # task, as in Spark: Spark keeps the error of a plan, and the DataFrame could never be used again.
        is_checked = tp not in committed and (options.in_group or tp not in late_ends)
        if is_checked and starts[tp] > ends[tp]:
            raise start_after_end(tp, starts[tp], ends[tp])
    _check_given_ends(cluster, options, starts, ends)
    unknown = dict.fromkeys(leaderless, 0)
    # In a group no end is late: what was planned is committed.
    told = {tp: one.leader_epoch for tp, one in listed.items() if options.in_group and one.leader_epoch >= 0}
    return BatchBounds(
        starts | unknown, ends | unknown, late_starts | leaderless, late_ends | leaderless, leaderless, told
    )


def _left_to_tasks(
    cluster: Cluster, options: ReadOptions, partitions: Collection[TopicPartition]
) -> frozenset[TopicPartition]:
    """Return the partitions without a leader whose offsets only their tasks have to know."""
    return frozenset(
        tp
        for tp in cluster.without_leader(partitions)
        if starts_at_earliest(options, tp, default="earliest") and _ends_at_latest(options, tp)
    )


def starting_offsets(
    cluster: Cluster,
    options: ReadOptions,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
    *,
    subscribed: Collection[TopicPartition],
    default: TopicWord,
) -> dict[TopicPartition, int]:
    """Return where each partition starts: at its committed offset, else where the starting options say.

    `startingTimestamp` takes precedence over `startingOffsetsByTimestamp`, and that over `startingOffsets`.

    Args:
        cluster: Where to look up offsets.
        options: The query's options.
        partitions: The partitions to resolve.
        committed: The group's committed offsets. A stream passes none: it has compared them with its own positions.
        subscribed: All partitions of the query's subscription; JSON options must name exactly these.
        default: The value of `startingOffsets` where it is not set.

    Raises:
        OptionError: The starting JSON does not name the partitions of the subscription; see `_starts_of_json`.
        InvalidConfigurationError: No record matches a timestamp.
    """
    partitions = sorted(partitions)
    known = {tp: committed[tp] for tp in partitions if tp in committed}
    rest = [tp for tp in partitions if tp not in known]
    if not rest:
        return known
    by_timestamp = options.starting_offsets_by_timestamp
    timestamps = _timestamps("startingOffsetsByTimestamp", options.starting_timestamp, by_timestamp, subscribed)
    if timestamps is not None:
        found = cluster.at_times({tp: timestamps[tp] for tp in rest})
        unmatched = [tp for tp, offset in found.items() if offset is None]
        if unmatched and options.starting_offsets_by_timestamp_strategy == "error":
            tp = unmatched[0]
            raise InvalidConfigurationError(
                f"No record of {tp.topic}-{tp.partition} is of time {timestamps[tp]} (ms since 1970) or later. "
                "Choose an earlier time, or set startingOffsetsByTimestampStrategy to latest."
            )
        return known | _or_latest(cluster, options, found)
    wanted = default if options.starting_offsets is None else options.starting_offsets
    if isinstance(wanted, dict):
        may_come = options.subscribe_pattern is not None
        starts = _starts_of_json(wanted, rest, subscribed, default=default, may_come=may_come)
        return known | _replace_sentinels(cluster, options, starts)
    return known | (_latest(cluster, options, rest) if wanted == "latest" else cluster.earliest(rest))


def ending_offsets(
    cluster: Cluster,
    options: ReadOptions,
    partitions: Iterable[TopicPartition],
    *,
    subscribed: Collection[TopicPartition],
) -> dict[TopicPartition, ListedOffset]:
    """Return where each partition of a batch read ends: where the ending options say, by default at the latest offset.

    Only the latest offsets have the epoch of their leader.

    The precedence is that of `starting_offsets`. A partition without a record of the timestamp or a later one ends at
    its latest offset.

    Raises:
        OptionError: The ending JSON does not name exactly the partitions of the subscription.
    """
    partitions = sorted(partitions)
    by_timestamp = options.ending_offsets_by_timestamp
    timestamps = _timestamps("endingOffsetsByTimestamp", options.ending_timestamp, by_timestamp, subscribed)
    if timestamps is not None:
        return _given(_or_latest(cluster, options, cluster.at_times({tp: timestamps[tp] for tp in partitions})))
    wanted = options.ending_offsets
    if isinstance(wanted, dict):
        by_partition = _exactly("endingOffsets", wanted, subscribed)
        return _given(_replace_sentinels(cluster, options, {tp: by_partition[tp] for tp in partitions}))
    return cluster.latest_with_epochs(partitions, read_committed=options.read_committed)


def _given(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
    return {tp: ListedOffset(offset) for tp, offset in offsets.items()}


# How long a plan looks at a log that ends before the ending offset of the options, and how often.
_GIVEN_END_SECONDS = 3.0
_GIVEN_END_PAUSES = RetryPolicy(0.3, 1.0)


def _check_given_ends(
    cluster: Cluster, options: ReadOptions, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """Look once, in the plan, whether the logs have what the options give as the ending offsets.

    Else each try of a task would wait for records that never come, `data.loss.patience.ms` long. A leader may be behind
    for a moment, so the brokers are asked again for a shorter time, each time with the leaders of that time. Without
    `failOnDataLoss` no task is tried again: the one that reads waits once, and reads what comes until then.

    Raises:
        DataLossError: `failOnDataLoss` is set, and a log ends before its ending offset.
    """
    given = [tp for tp in ends if _has_ending_offset(options, tp) and starts[tp] < ends[tp]]
    if not given or not options.fail_on_data_loss:
        return

    def look() -> None:
        # The log has records beyond the last stable offset, and they may become readable while a task waits.
        latest = cluster.latest(given, read_committed=False)
        short = [tp for tp in given if latest[tp] < ends[tp]]
        if short:
            tp = short[0]
            raise DataLossError.of_given_end(
                tp, planned=starts[tp], end=ends[tp], available=(cluster.earliest([tp])[tp], latest[tp])
            )

    def again(error: Exception, failures: int, _: float) -> bool:
        if not failures:
            log.warning("%s Looking for %g s whether it grows.", error, deadline.left)
        return True

    deadline = Deadline(min(_GIVEN_END_SECONDS, options.data_loss_patience_ms / 1000))
    try:
        look()
    except DataLossError:
        with cluster.without_snapshot():
            retry(look, _GIVEN_END_PAUSES, on=DataLossError, deadline=deadline, again=again)


def _has_ending_offset(options: ReadOptions, tp: TopicPartition) -> bool:
    """Return whether the options give a partition's end as a number."""
    wanted = options.ending_offsets
    by_time = options.ending_timestamp is not None or options.ending_offsets_by_timestamp is not None
    return isinstance(wanted, dict) and not by_time and wanted[tp.topic][tp.partition] >= 0


def start_after_end(tp: TopicPartition, start: int, end: int) -> InvalidConfigurationError:
    """Return the error for a batch whose options give a start beyond the end, which Spark refuses too."""
    return InvalidConfigurationError(
        f"The start of {tp.topic}-{tp.partition}, offset {start}, is beyond its end, offset {end}. Correct the "
        "starting or the ending options; `latest` ends where the log ends now.",
        condition="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
    )


def check_data_loss(
    cluster: Cluster,
    options: ReadOptions,
    starts: Mapping[TopicPartition, int],
    *,
    epochs: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the starts, those outside the log moved to its nearer end, and others to where their logs diverge.

    Args:
        cluster: Where to look up offsets.
        options: The query's options.
        starts: The first offset to read of each partition.
        epochs: The epoch of a leader whose log had everything before a start, as far as it is known.

    Raises:
        DataLossError: `failOnDataLoss` is set, and a start lies outside the log or is not in the log of its leader.
    """
    earliest = cluster.earliest(starts)
    # The log has records beyond the last stable offset: those of open transactions.
    listed = cluster.latest_with_epochs(starts, read_committed=False)
    latest = {tp: one.offset for tp, one in listed.items()}
    leaders = {tp: one.leader_epoch for tp, one in listed.items()}
    known = {tp: epoch for tp, epoch in epochs.items() if tp in starts and 0 <= epoch < leaders[tp]}
    diverged = divergences(cluster, starts, known, leaders)
    report_diverged(options, starts, diverged)
    moved = {**starts, **{tp: max(one.end, earliest[tp]) for tp, one in diverged.items()}}
    for tp, start in starts.items():
        if tp in diverged:
            continue
        available = (earliest[tp], latest[tp])
        if available[0] <= start <= available[1]:
            continue
        is_before = start < available[0]
        error = DataLossError(
            topic=tp.topic,
            partition=tp.partition,
            planned=start,
            available=available,
            condition="COULD_NOT_READ_OFFSET_RANGE" if is_before else "PARTITION_OFFSET_CHANGED",
        )
        raise_or_warn(options, error)
        moved[tp] = available[0] if is_before else available[1]
    return moved


def divergences(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
) -> dict[TopicPartition, Divergence]:
    """Return where the logs of new leaders diverge from what was read before the starts (KIP-320).

    Args:
        cluster: Asks the leaders.
        starts: The first offset to read of at least these partitions.
        epochs: Which partitions to ask for, each with the epoch of a leader whose log had everything before its start.
        leaders: The epoch of the leader of each partition that has one.
    """
    ends = cluster.epoch_ends(epochs)
    return {tp: Divergence(end, epochs[tp], leaders[tp]) for tp, end in ends.items() if 0 <= end < starts[tp]}


def report_diverged(
    options: ReadOptions, starts: Mapping[TopicPartition, int], diverged: Mapping[TopicPartition, Divergence]
) -> None:
    """Raise DataLossError for partitions whose logs diverge before their starts; see `raise_or_warn`."""
    for tp, one in sorted(diverged.items()):
        error = DataLossError.of_diverged(
            tp, planned=starts[tp], end=one.end, epoch=one.epoch, leader_epoch=one.leader_epoch
        )
        raise_or_warn(options, error)


def earliest_of_added(
    cluster: Cluster, options: ReadOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offsets of partitions that were added while a query runs, or while it was stopped.

    Raises:
        DataLossError: `failOnDataLoss` is set, and a partition does not begin at offset 0: records that the query has
            not read were deleted.
    """
    starts = cluster.earliest(partitions)
    for tp, start in starts.items():
        if start > 0:
            raise_or_warn(options, DataLossError.of_added(tp, start=start))
    return starts


def raise_or_warn(options: ReadOptions, error: DataLossError) -> None:
    """Raise the error if `failOnDataLoss` is set; else log it, and the query continues."""
    if options.fail_on_data_loss:
        raise error
    log.warning("%s (failOnDataLoss is false: the query continues)", error)


class _CommitRead(Protocol):
    """Commits the ends of what was read; `has_looked` is that of `TransactionalCommitter.commit_as`."""

    def __call__(self, read: StreamOffset, /, *, has_looked: bool) -> None: ...


def commit_existing(options: ReadOptions, cluster: Cluster, read: StreamOffset, commit: _CommitRead) -> None:
    """Commit what was read, without topics that were deleted or created again since the plan.

    Where the group's coordinator compares the topics' ids in the commit, nobody else is asked about them.

    Raises:
        DataLossError: There are such topics, and `failOnDataLoss` is set; nothing is committed.
        KafkaGroupError: As `commit`.
    """
    try:
        commit(read, has_looked=False)
    except UnknownTopicError:
        existing = without_lost_topics(options, cluster, read)
        if existing.partitions:
            commit(existing, has_looked=True)


def without_lost_topics(options: ReadOptions, cluster: Cluster, read: StreamOffset) -> StreamOffset:
    """Return what was read, and may be committed: without topics that were deleted or created again since the plan.

    The offset of a deleted topic would be that of the new one, and the next reader would leave its records out.
    Coordinators with topic ids refuse such a commit too, but in words that a topic which is new to them gets as well,
    and with all other topics of the transaction. So this asks any broker; see docs/design/transactions.md.

    Raises:
        DataLossError: There are such topics, and `failOnDataLoss` is set.
    """
    if not read.partitions:
        return read
    topics = cluster.topics({tp.topic for tp in read.partitions})
    lost = {n: now for n, now in topics.items() if now is None or is_recreated(read.topics.get(n), now.id)}
    for name, now in sorted(lost.items()):
        raise_or_warn(options, lost_topic(read, name, now))
    return read.without(lost)


def starts_at_earliest(options: ReadOptions, tp: TopicPartition, *, default: TopicWord = "latest") -> bool:
    """Return whether a partition starts at its first offset by a word, or by -2.

    Args:
        options: The query's options.
        tp: The partition.
        default: The value of `startingOffsets` where it is not set.
    """
    if options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None:
        return False
    wanted = default if options.starting_offsets is None else options.starting_offsets
    of_topic = wanted.get(tp.topic, default) if isinstance(wanted, dict) else wanted
    return of_topic.get(tp.partition) == EARLIEST if isinstance(of_topic, dict) else of_topic == "earliest"


def _ends_at_latest(options: ReadOptions, tp: TopicPartition) -> bool:
    if options.ending_timestamp is not None or options.ending_offsets_by_timestamp is not None:
        # As in Spark: a partition without a record of the timestamp ends at the latest offset of the plan.
        return False
    wanted = options.ending_offsets
    return wanted[tp.topic][tp.partition] == LATEST if isinstance(wanted, dict) else wanted == "latest"


def _latest(cluster: Cluster, options: ReadOptions, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return cluster.latest(partitions, read_committed=options.read_committed)


def _or_latest(
    cluster: Cluster, options: ReadOptions, found: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """Replace missing offsets by the latest ones."""
    latest = _latest(cluster, options, [tp for tp, offset in found.items() if offset is None])
    return {tp: latest[tp] if offset is None else offset for tp, offset in found.items()}


def _replace_sentinels(
    cluster: Cluster, options: ReadOptions, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Replace -2 and -1 by the earliest and the latest offset."""
    found = cluster.earliest([tp for tp, offset in wanted.items() if offset == EARLIEST])
    found |= _latest(cluster, options, [tp for tp, offset in wanted.items() if offset == LATEST])
    return {tp: found.get(tp, offset) for tp, offset in wanted.items()}


def _timestamps(
    option: str, for_all: int | None, by_partition: PartitionValues | None, subscribed: Collection[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """Return the timestamp of each partition (ms since 1970); None if the options give none.

    Args:
        option: The name of the option with the value `by_partition`, for the error.
        for_all: One timestamp for all partitions; takes precedence.
        by_partition: A timestamp for each partition.
        subscribed: The partitions of the query's subscription.

    Raises:
        OptionError: `by_partition` does not name exactly these partitions.
    """
    if for_all is not None:
        return dict.fromkeys(subscribed, for_all)
    return None if by_partition is None else _exactly(option, by_partition, subscribed)


# ---- options in JSON: a number for each partition, and topics that start at a word

_SENTINELS: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}


def _exactly(
    option: str, values: Mapping[str, Mapping[int, int]], subscribed: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the value of each partition of an option that must name exactly the partitions of the subscription.

    Raises:
        OptionError: It names others.
    """
    expected = set(subscribed)
    flat = {TopicPartition(topic, p): value for topic, parts in values.items() for p, value in parts.items()}
    if set(flat) != expected:
        missing = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(expected - set(flat)))
        unknown = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(set(flat) - expected))
        difference = "; ".join(
            part for part in (missing and f"not named: {missing}", unknown and f"not of this query: {unknown}") if part
        )
        raise OptionError(
            option,
            values,
            f"a value for exactly the partitions that are read ({difference})",
            condition="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            if "ByTimestamp" in option
            else "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
        )
    return flat


def _starts_of_json(
    wanted: StartingValues,
    partitions: Collection[TopicPartition],
    subscribed: Collection[TopicPartition],
    *,
    default: TopicWord,
    may_come: bool,
) -> dict[TopicPartition, int]:
    """Return the offset at which each partition starts; -2 is earliest and -1 is latest.

    JSON of offsets only must name exactly the partitions of the subscription, as in Spark. With a word for a topic,
    topics that are not named start at the default, and a topic that is named by its partitions must name all of its
    own.

    Args:
        wanted: The value of `startingOffsets`.
        partitions: The partitions to resolve.
        subscribed: All partitions of the query's subscription.
        default: Where topics start that are not named.
        may_come: Whether a named topic need not exist yet, as with `subscribePattern`.

    Raises:
        OptionError: The JSON names partitions or topics that are not those of the subscription.
    """
    offsets = {topic: of_it for topic, of_it in wanted.items() if isinstance(of_it, dict)}
    words = {topic: of_it for topic, of_it in wanted.items() if isinstance(of_it, str)}
    if not words:
        flat = _exactly("startingOffsets", offsets, subscribed)
        return {tp: flat[tp] for tp in partitions}
    known = {tp.topic for tp in subscribed}
    if not may_come and (unknown := sorted(wanted.keys() - known)):
        raise OptionError("startingOffsets", wanted, f"only topics that this query reads, which {unknown[0]} is not")
    named = {tp.topic for tp in partitions} & offsets.keys()
    flat = _exactly(
        "startingOffsets",
        {topic: offsets[topic] for topic in named},
        [tp for tp in subscribed if tp.topic in named],
    )
    return {tp: flat.get(tp, _SENTINELS[words.get(tp.topic, default)]) for tp in partitions}


# ---- log lines about offsets that others have committed


def log_committed_start(options: ReadOptions, committed: Collection[TopicPartition], *, commits: bool) -> None:
    """Log that these partitions start at committed offsets; once in this process, and at WARN if it may surprise.

    It is no surprise where the user has set `group.membership=true` or `startingOffsets=committed`.

    Args:
        options: Of a query in a group that has read nothing yet.
        committed: The partitions for which the group has committed an offset.
        commits: Whether the query commits the group's offsets, over those that are there.
    """
    if not committed or not once(("committed start", options.group_id)):
        return
    is_meant = options.group_membership is True or options.starting_offsets == "committed"
    log.log(
        logging.INFO if is_meant else logging.WARNING,
        "group=%s has committed offsets in %d of this query's partitions, and this query has no checkpoint: it starts "
        "there at the committed offsets, not where startingOffsets or the other starting options say.%s To start "
        "elsewhere, set the group's offsets first (kafkagroup rewind). If kafka.group.id is meant as a label, as in "
        "Spark's own source, set group.membership=false. If the query is meant to continue where the group is, set "
        "group.membership=true, and this line is logged at INFO.",
        options.group_id,
        len(committed),
        " It commits its own offsets over them." if commits else "",
    )


def warn_of_new_checkpoint(options: ReadOptions, committed: Iterable[CommitOffset]) -> None:
    """Warn if a query without a checkpoint continues what a stream with another checkpoint has committed.

    Args:
        options: Of the stream.
        committed: The group's offsets at which it starts.
    """
    if any(OffsetNote.parse(entry.metadata).stream for entry in committed):
        log.warning(
            "group=%s has offsets of a stream of kafkagroup, and this query has no checkpoint: its micro-batches count "
            "from 0. %s.",
            options.group_id,
            NEW_OUTPUT,
        )


def log_moves(options: ReadOptions, moves: Mapping[TopicPartition, tuple[int, int]], *, of_spark: bool) -> None:
    """Log that a query leaves out what others of its group have read; one line for all partitions.

    Args:
        options: Of the query.
        moves: The query's own position and the group's offset, by partition; empty: nothing is logged.
        of_spark: Whether the checkpoint is of Spark's own Kafka source, where the group's id was only a label.
    """
    if not moves:
        return
    log.warning(
        "group=%s has committed offsets ahead of this query's checkpoint, and not by this query: it continues there, "
        "and leaves out what is in between: %s.%s",
        options.group_id,
        format_moves(moves),
        " The checkpoint is of Spark's own Kafka source, where kafka.group.id is only a label: if others used the same "
        "one, stop this query, and start it with group.membership=false or with a group of its own."
        if of_spark
        else "",
    )
