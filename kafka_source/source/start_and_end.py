"""Resolve starts and ends of a read (committed, earliest, latest, JSON, timestamps), and check them for data loss."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST, LATEST, ListedOffset
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.policy import max_offset
from kafka_source.errors import NEW_OUTPUT, DataLossError, InvalidConfigurationError, UnknownTopicError
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.identity import is_recreated, lost_topic
from kafka_source.model.partition_runs import format_moves
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.logs import once
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.source.decision import Decision, Facts, GroupFacts, Known, LogFacts, Rules, decide
from kafka_source.source.option_bounds import AtTime, Bound, ending_bounds, starting_bounds
from kafka_source.source.owners import PartitionOwner

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The offsets that a batch reads, `[starts[tp], ends[tp])`.

    Attributes:
        starts: The first offset of each partition.
        ends: The offset after the last record.
        late_starts: In a batch without a group, the partitions whose start is `earliest`, which each action looks up.
        late_ends: In a batch without a group, the partitions whose end is `latest`, which each action looks up.
        leaderless: The late partitions without a leader: their starts and ends are 0, and the tasks wait for a leader.
        epochs: The epoch of the leader that has returned each end, if known and the end is not late.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    late_starts: frozenset[TopicPartition] = frozenset()
    late_ends: frozenset[TopicPartition] = frozenset()
    leaderless: frozenset[TopicPartition] = frozenset()
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


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
        cluster: The lookups of offsets.
        options: The query's options.
        owner: Knows the group's committed offsets.
        partitions: The partitions that the query owns.
        subscribed: All partitions of the query's subscription; JSON options must name exactly these.
        check_all: Check all starts for data loss; if false, check only committed starts, and tasks check other starts.

    Raises:
        DataLossError: With `failOnDataLoss`: a checked start lies outside the log, or the log ends before an ending
            offset that the options give as a number.
        OptionError: A JSON option does not name exactly the partitions of the subscription.
        InvalidConfigurationError: No record matches a starting timestamp, or a start lies beyond the end.
    """
    # Topics may have been added while the members joined.
    subscribed = {*subscribed, *partitions}
    first = starting_bounds(options, partitions, subscribed=subscribed, default="earliest")
    last = ending_bounds(options, partitions, subscribed=subscribed)
    late_starts = frozenset(tp for tp in partitions if first[tp] == EARLIEST)
    late_ends = frozenset(tp for tp in partitions if last[tp] == LATEST)
    # If a partition without a leader has two late bounds, its task looks both up.
    leaderless = frozenset() if options.in_group else cluster.without_leader(partitions) & late_starts & late_ends
    partitions = [tp for tp in partitions if tp not in leaderless]
    entries = owner.offsets.committed(sorted(partitions))
    committed = {tp: entry.offset for tp, entry in entries.items()}
    log_committed_start(options, list(committed), commits=owner.offsets.keeps)
    again = cluster.earliest(owner.offsets.ignored(partitions))
    # Other clients ignore the metadata of offsets, and would continue at the ignored offsets.
    owner.offsets.remember(again)
    known = committed | again
    unread = {tp: first[tp] for tp in partitions if tp not in known}
    starts = known | {tp: one.offset for tp, one in look_up(cluster, options, unread, matches=True).items()}
    checked = {tp: start for tp, start in starts.items() if check_all or tp in committed}
    decisions = _settle(cluster, options, checked, entries)
    starts |= {tp: one.known.next for tp, one in decisions.items() if one.known.next is not None}
    back = steps_back({tp: one for tp, one in decisions.items() if tp in committed})
    owner.offsets.note_epochs(back, {tp: decisions[tp].known.epoch for tp in back})
    owner.offsets.rewind(back)
    listed = look_up(cluster, options, {tp: last[tp] for tp in partitions})
    ends = {tp: one.offset for tp, one in listed.items()}
    for tp in partitions:
        # A committed offset may be beyond the end, because the group has read on. Without a group the task checks late
        # ends, as in Spark, because an error in the plan would make the DataFrame unusable.
        is_checked = tp not in committed and (options.in_group or tp not in late_ends)
        if is_checked and starts[tp] > ends[tp]:
            raise start_after_end(tp, starts[tp], ends[tp])
    _check_given_ends(cluster, options, starts, {tp: end for tp, end in ends.items() if last[tp] == end})
    unknown = dict.fromkeys(leaderless, 0)
    # In a group no end is late, because the planned ends are committed.
    end_epochs = {tp: one.leader_epoch for tp, one in listed.items() if options.in_group and one.leader_epoch >= 0}
    return BatchBounds(starts | unknown, ends | unknown, late_starts, late_ends, leaderless, end_epochs)


def look_up(
    cluster: Cluster, options: ReadOptions, bounds: Mapping[TopicPartition, Bound], *, matches: bool = False
) -> dict[TopicPartition, ListedOffset]:
    """Return the offsets of bounds; a latest offset has its leader's epoch.

    Args:
        cluster: Looks the offsets up.
        options: The query's options.
        bounds: The bounds. A time after the last record resolves to the latest offset.
        matches: Whether a time after the last record is an error if `startingOffsetsByTimestampStrategy` is `error`.

    Raises:
        InvalidConfigurationError: A partition has no record at or after its time.
    """
    found = {tp: ListedOffset(bound) for tp, bound in bounds.items() if isinstance(bound, int) and bound >= 0}
    times = {tp: bound.ms for tp, bound in bounds.items() if isinstance(bound, AtTime)}
    at_times = cluster.at_times(times, read_committed=options.read_committed)
    late = [tp for tp, offset in at_times.items() if offset is None]
    if matches and late and options.starting_offsets_by_timestamp_strategy == "error":
        tp, bound = late[0], bounds[late[0]]
        assert isinstance(bound, AtTime)
        raise InvalidConfigurationError(
            f"No record of {tp.topic}-{tp.partition} is of time {bound.ms} (ms since 1970) or later. "
            "Choose an earlier time, or set startingOffsetsByTimestampStrategy to latest."
        )
    found |= {tp: ListedOffset(offset) for tp, offset in at_times.items() if offset is not None}
    earliest = cluster.earliest([tp for tp, bound in bounds.items() if bound == EARLIEST])
    found |= {tp: ListedOffset(offset) for tp, offset in earliest.items()}
    latest = [tp for tp, bound in bounds.items() if bound == LATEST]
    return found | cluster.latest_with_epochs([*latest, *late], read_committed=options.read_committed)


# The time for which a plan checks a log that ends before the options' ending offset, and the pause between checks.
_GIVEN_END_SECONDS = 3.0
_GIVEN_END_PAUSES = RetryPolicy(0.3, 1.0)


def _check_given_ends(
    cluster: Cluster, options: ReadOptions, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> None:
    """Check, in the plan, whether the logs reach the options' ending offsets.

    Without this check each attempt of a task would wait `data.loss.patience.ms` for records that are never written. A
    leader may be behind for a moment, so the check is repeated for a short time, with the current leaders. Without
    `failOnDataLoss` nothing is checked, because a task waits only once and then reads the existing records.

    Raises:
        DataLossError: `failOnDataLoss` is set, and a log ends before its ending offset.
    """
    given = [tp for tp in ends if starts[tp] < ends[tp]]
    if not given or not options.fail_on_data_loss:
        return

    def look() -> None:
        # Records beyond the last stable offset may become readable while a task waits.
        latest = cluster.latest(given, read_committed=False)
        short = [tp for tp in given if latest[tp] < ends[tp]]
        if short:
            tp = short[0]
            raise DataLossError.of_given_end(
                tp, planned=starts[tp], end=ends[tp], available=(cluster.earliest([tp])[tp], latest[tp])
            )

    def again(error: Exception, failures: int, _: float) -> bool:
        if not failures:
            log.warning("%s Waiting %g s for the log to grow.", error, deadline.left)
        return True

    deadline = Deadline(min(_GIVEN_END_SECONDS, options.data_loss_patience_ms / 1000))
    try:
        look()
    except DataLossError:
        with cluster.without_snapshot():
            retry(look, _GIVEN_END_PAUSES, on=DataLossError, deadline=deadline, again=again)


def start_after_end(tp: TopicPartition, start: int, end: int) -> InvalidConfigurationError:
    """Return the error for options that give a start beyond the end, as in Spark's own source."""
    return InvalidConfigurationError(
        f"The start of {tp.topic}-{tp.partition}, offset {start}, is beyond its end, offset {end}. Correct the "
        "starting or the ending options; `latest` ends where the log ends now.",
        condition="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
    )


def _settle(
    cluster: Cluster,
    options: ReadOptions,
    starts: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, CommitOffset],
) -> dict[TopicPartition, Decision]:
    """Decide where a batch starts, by its options, its group's offsets, and the logs.

    Raises:
        DataLossError: `failOnDataLoss` is set, and a start lies outside the log, or the log diverged before the start.
    """
    rules = Rules(max_offset, moves_to_first=True, fails_on_loss=options.fail_on_data_loss)
    earliest = cluster.earliest(starts)
    # The log has records of open transactions beyond the last stable offset.
    latest = cluster.latest_with_epochs(starts, read_committed=False)
    epochs = {tp: one.leader_epoch for tp, one in committed.items() if tp in starts}
    ends = cluster.epoch_ends({tp: epoch for tp, epoch in epochs.items() if 0 <= epoch < latest[tp].leader_epoch})
    decisions = {
        tp: decide(
            tp,
            Known(),
            Facts(
                GroupFacts(committed.get(tp)),
                start,
                LogFacts(
                    latest[tp].offset, latest[tp].leader_epoch, ends.get(tp, -1), (earliest[tp], latest[tp].offset)
                ),
            ),
            rules,
        )
        for tp, start in starts.items()
    }
    report(options, decisions)
    return decisions


def report(options: ReadOptions, decisions: Mapping[TopicPartition, Decision]) -> None:
    """Report the losses of decisions; see `raise_or_warn`."""
    for _, one in sorted(decisions.items()):
        if one.loss is not None:
            raise_or_warn(options, one.loss)


def steps_back(decisions: Mapping[TopicPartition, Decision]) -> dict[TopicPartition, int]:
    """Return the offsets to which partitions step back, and log them."""
    back = {}
    for tp, one in sorted(decisions.items()):
        if one.stepped_from is not None and (to := one.known.next) is not None:
            log.warning("stepped back %s-%d from=%d to=%d", tp.topic, tp.partition, one.stepped_from, to)
            back[tp] = to
    return back


def earliest_of_added(
    cluster: Cluster, options: ReadOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offsets of partitions that were added while a query runs, or while it was stopped.

    Raises:
        DataLossError: Records were deleted (a partition begins above 0), and `failOnDataLoss` is set.
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
    """Commits the ends of the ranges that were read; see `TransactionalCommitter.commit_as` for `has_looked`."""

    def __call__(self, read: StreamOffset, /, *, has_looked: bool) -> None: ...


def commit_existing(options: ReadOptions, cluster: Cluster, read: StreamOffset, commit: _CommitRead) -> None:
    """Commit the ranges that were read, except in topics that were deleted or created again since the plan.

    If the group's coordinator compares the topics' ids in the commit, no other request is needed.

    Raises:
        DataLossError: A topic was deleted or created again, and `failOnDataLoss` is set; nothing is committed.
        KafkaGroupError: As `commit`.
    """
    try:
        commit(read, has_looked=False)
    except UnknownTopicError:
        existing = without_lost_topics(options, cluster, read)
        if existing.partitions:
            commit(existing, has_looked=True)


def without_lost_topics(options: ReadOptions, cluster: Cluster, read: StreamOffset) -> StreamOffset:
    """Return the ranges that were read, except in topics that were deleted or created again since the plan.

    A commit in such a topic would give the new topic the deleted topic's offset, so the next reader would leave records
    out. A coordinator that compares topic ids refuses all topics of such a transaction, with the same error as for a
    topic that it does not know yet. So the current topic ids are looked up first; see docs/design/transactions.md.

    Raises:
        DataLossError: A topic was deleted or created again, and `failOnDataLoss` is set.
    """
    if not read.partitions:
        return read
    topics = cluster.topics({tp.topic for tp in read.partitions})
    lost = {n: now for n, now in topics.items() if now is None or is_recreated(read.topics.get(n), now.id)}
    for name, now in sorted(lost.items()):
        raise_or_warn(options, lost_topic(read, name, now))
    return read.without(lost)


# ---- log lines about offsets of other members


def log_committed_start(options: ReadOptions, committed: Collection[TopicPartition], *, commits: bool) -> None:
    """Log, once in this process, that these partitions start at committed offsets.

    The level is WARN, unless the user has set `group.membership=true` or `startingOffsets=committed`.

    Args:
        options: The options of a query that is in a group and has read nothing yet.
        committed: The partitions for which the group has committed an offset.
        commits: Whether the query overwrites the group's offsets by its commits.
    """
    if not committed or not once(("committed start", options.group_id)):
        return
    is_meant = options.group_membership is True or options.starting_offsets == "committed"
    log.log(
        logging.INFO if is_meant else logging.WARNING,
        "group=%s has committed offsets in %d of this query's partitions, and this query has no checkpoint: these "
        "start at the committed offsets, not where startingOffsets or the other starting options say.%s To start "
        "elsewhere, set the group's offsets first (kafkagroup rewind). If kafka.group.id is meant as a label, as in "
        "Spark's own source, set group.membership=false. If the query is meant to continue at the group's offsets, set "
        "group.membership=true, which also lowers the level of this line to INFO.",
        options.group_id,
        len(committed),
        " Its commits overwrite the group's offsets." if commits else "",
    )


def warn_of_new_checkpoint(options: ReadOptions, committed: Iterable[CommitOffset]) -> None:
    """Warn if a query without a checkpoint continues at offsets of a stream with another checkpoint.

    Args:
        options: The stream's options.
        committed: The group's offsets at which the stream starts.
    """
    if any(OffsetNote.parse(entry.metadata).stream for entry in committed):
        log.warning(
            "group=%s has offsets of a stream of kafkagroup, and this query has no checkpoint: its micro-batches count "
            "from 0. %s.",
            options.group_id,
            NEW_OUTPUT,
        )


def log_moves(options: ReadOptions, moves: Mapping[TopicPartition, tuple[int, int]], *, of_spark: bool) -> None:
    """Log that a query skips records that other members have read; one line for all partitions.

    Args:
        options: The query's options.
        moves: The query's own position and the group's offset, by partition; empty: nothing is logged.
        of_spark: Whether the checkpoint is of Spark's own Kafka source, where the group's id was only a label.
    """
    if not moves:
        return
    log.warning(
        "group=%s has offsets of other members ahead of this query's checkpoint: the query continues at these "
        "offsets, and skips the records between: %s.%s",
        options.group_id,
        format_moves(moves),
        " The checkpoint is of Spark's own Kafka source, where kafka.group.id is only a label: if other queries used "
        "the same id, stop this query, and start it with group.membership=false or with a group of its own."
        if of_spark
        else "",
    )
