"""The read tasks: made in the driver; in an executor they attach to slots, read, write dead letters, commit.

A task acts as a slot, reads its ranges to their end, and commits them with `commit=task`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.handoff import BatchOfRun, Handoff, publish
from kafka_source.commits.rights import Renewal, SlotSession
from kafka_source.engine_selection import engine_of_tasks
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
)
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.group.requests import fetch_by_ids
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.commits import CommitOffset, check_one_topic, with_notes
from kafka_source.model.credentials import SlotCredentials, representative_slots
from kafka_source.model.identity import check_same_cluster, ids_of_ranges
from kafka_source.model.partition_runs import format_partitions
from kafka_source.model.stream_offset import Range, Span, StreamOffset
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.produce.dead_letters import write_dead_letters
from kafka_source.quota.bounds import Ticket
from kafka_source.quota.server import CONSUMER_RATE
from kafka_source.quota.task_pacer import Pacer, pacer_of
from kafka_source.runtime.failpoints import failpoint
from kafka_source.schema import Column, columns_of
from kafka_source.source.plan import PlannedInput, bundles
from kafka_source.source.replay import handoffs_of
from kafka_source.source.row_columns import columns_to_fetch, rows_of
from kafka_source.source.start_and_end import commit_existing, start_after_end
from kafka_source.transactions.offset_committer import (
    TransactionalCommitter,
    commits_plainly_after,
    coordinator_seconds,
    transactional_id_of,
    was_without_transactions,
)

if TYPE_CHECKING:
    from kafka_source.arrow_function import Mapping as FunctionMapping
    from kafka_source.source.decoded_columns import Readers
    from kafka_source.values.decoding import Decoding

log = logging.getLogger(__name__)


class _Commit(Protocol):
    """Commits offsets; raises UnknownTopicError if somebody has to look whether the topics are those of the plan."""

    def __call__(self, ends: Mapping[TopicPartition, CommitOffset], *, has_looked: bool) -> None: ...


# Waits for the sessions of a task's slots.
_Sessions = Callable[[], Sequence[SlotSession]]
# Seconds in which a coordinator of good health answers a heartbeat, also if the task finds it anew.
_ATTACH_SECONDS = 10.0

# How a coordinator refuses a transactional id that somebody else has initialised since.
_OTHER_OWNER = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """The ranges that one task reads, and the credentials of its slot. In a batch it is a Spark input partition.

    Attributes:
        ranges: The ranges to read, at most one for each partition and replica.
        credentials: The slot's credentials from the driver or planner; None without a group.
        cluster: The id of the cluster in which the offsets are valid; None: unknown.
        topics: The ids of the ranges' topics, as far as they are known.
        ticket: The task's share of the query's quota; None: no quota.
        rewinds: The rewind of the group that each partition follows, for the commit with `commit=task`.
        stream: The id of the stream that commits, likewise; None in a batch, see `committed_by`.
        uncommitted: The partitions in which the task commits nothing: others of the group have committed further.
    """

    ranges: tuple[Range, ...]
    credentials: SlotCredentials | None = None
    cluster: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    ticket: Ticket | None = None
    rewinds: Mapping[TopicPartition, str] = field(default_factory=dict)
    stream: str | None = None
    uncommitted: frozenset[TopicPartition] = frozenset()

    @property
    def committed_by(self) -> str | None:
        """The id in the metadata of the task's commits: of the stream, or of the one plan of a batch."""
        if self.stream is not None or self.credentials is None:
            return self.stream
        return self.credentials.right

    def renewal(self) -> Renewal | None:
        """Return how the task gets new credentials if its slot is lost; None: it ends then."""
        ranges = {r.topic_partition: (r.start, r.end) for r in self.ranges if r.replica == 0}
        right = None if self.credentials is None else self.credentials.right
        if self.credentials is None or right is None or not ranges:
            return None
        return Renewal(self.credentials.group, right, ranges, self.stream)


def shares_of(planned: Sequence[ReadTask]) -> list[float]:
    """Return each task's share of the planned offsets, between 0 and 1.

    A task whose ranges were empty when the batch was planned may find records, so it counts as one offset.
    """
    sizes = [max(1, sum(r.size for r in task.ranges)) for task in planned]
    total = sum(sizes)
    return [size / total for size in sizes]


@dataclass(frozen=True)
class TaskBundle(InputPartition):
    """One Spark input partition of a stream: the read task of one slot, or of several slots with few records.

    Attributes:
        tasks: The read tasks, one for each slot.
        handoffs: The ranges of the whole micro-batch, for the sink; set in one bundle of it with `commit=sink`.
        readers: The schemas to which the micro-batch's decoded columns are resolved; None: there are none, or to those
            of the query.
    """

    tasks: tuple[ReadTask, ...]
    handoffs: tuple[Handoff, ...] = ()
    readers: Readers | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """The query's options and columns, which are sent to every task.

    Attributes:
        options: The options, which include the Kafka client settings.
        engine: The engine of its tasks, see `engine_of_tasks`.
        columns: The columns of the rows.
        decoding: How columns are decoded; None: none is.
        mapping: The function that makes rows of these columns; None: they are the rows.
    """

    options: ReadOptions
    engine: str
    columns: tuple[Column, ...]
    decoding: Decoding | None = None
    mapping: FunctionMapping | None = None

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, where: Where, readers: Readers | None = None) -> Query:
        """Return the query of these options and columns.

        Args:
            given: The options as the user wrote them.
            schema: The columns to read.
            where: BATCH or STREAM.
            readers: The schemas of decoded columns, fixed in `load()`; None: not yet.

        Raises:
            OptionError: An option is invalid, or records have no such column.
            KafkaGroupError: See `values.reader_schema.reader_schema`.
        """
        options = read_options(given, where)
        engine = engine_of_tasks(options.engine)
        mapping = None
        if options.map_function is not None:
            # Only queries with a function load this.
            from kafka_source.source.mapped_rows import mapping_of

            schema, mapping = mapping_of(options, readers, returned=schema)
        if not options.decoded:
            return cls(options, engine, columns_of(schema), mapping=mapping)
        # Only queries that decode load this.
        from kafka_source.source.decoded_columns import requested

        return cls(options, engine, *requested(schema, options, readers), mapping)

    def rows(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what Spark gets of the records of a task: all of it comes before this ends."""
        return records if self.mapping is None else self.mapping.rows(records)

    @property
    def settings(self) -> Settings:
        """The Kafka client settings."""
        return self.options.settings


# ---- in the driver


@dataclass(frozen=True, slots=True)
class TaskFactory:
    """Make the read tasks of one batch.

    Attributes:
        credentials: Returns the credentials of a slot; None without a group.
        cluster: The id of the cluster that is read; None: unknown.
        topics: The ids of the topics that are read, as far as they have one.
        rewinds: The rewind of the group that each partition follows; without partitions that were never rewound.
        stream: The id of the stream; None in a batch.
        uncommitted: The partitions in which no task commits.
    """

    credentials: Callable[[int], SlotCredentials | None]
    cluster: str | None
    topics: Mapping[str, str]
    rewinds: Mapping[TopicPartition, str] = field(default_factory=dict)
    stream: str | None = None
    uncommitted: frozenset[TopicPartition] = frozenset()

    def task(self, planned: PlannedInput) -> ReadTask:
        """Return the task that reads `planned`, without a quota."""
        topics = ids_of_ranges(planned.ranges, self.topics)
        # By the task's own partitions: a walk over those of the query, for each task, costs slots times partitions.
        partitions = {r.topic_partition for r in planned.ranges}
        return ReadTask(
            planned.ranges,
            self.credentials(planned.slot),
            cluster=self.cluster,
            topics=topics,
            rewinds={tp: self.rewinds[tp] for tp in partitions if tp in self.rewinds},
            stream=self.stream,
            uncommitted=self.uncommitted & partitions,
        )


def bundle_tasks(
    planned: Sequence[PlannedInput],
    tasks: TaskFactory,
    *,
    min_offsets: int,
    ticket: Callable[[int, float], Ticket] | None,
) -> list[TaskBundle]:
    """Return the input partitions of a micro-batch.

    Args:
        planned: What the batch reads.
        tasks: Makes the tasks.
        min_offsets: Tasks with fewer offsets share input partitions, see `plan.bundles`.
        ticket: Returns a task's part of the quota from its number and its share of the batch; None: no quota. The
            number is the slot's, or without a group the task's own.
    """
    total = sum(one.size for one in planned)
    numbers = itertools.count()

    def with_ticket(one: PlannedInput) -> ReadTask:
        task, number = tasks.task(one), next(numbers)
        if ticket is None:
            return task
        return replace(task, ticket=ticket(one.slot if one.slot >= 0 else number, one.size / max(1, total)))

    return [TaskBundle(tuple(with_ticket(one) for one in bundle)) for bundle in bundles(planned, min_offsets)]


def add_handoff(
    found: Sequence[TaskBundle],
    planned: Sequence[PlannedInput],
    stream: str,
    plan_id: str,
    topic_ids: Mapping[str, str],
) -> list[TaskBundle]:
    """Let the first bundle tell the sink what the whole batch reads (`commit=sink`).

    Args:
        found: The bundles of the batch.
        planned: What they read.
        stream: The stream's id.
        plan_id: See `replay.plan_id`.
        topic_ids: The ids of the topics that the batch was planned with.

    Raises:
        ValueError: The tasks have no credentials of a group, whose offsets the sink could commit.
    """
    if not found:
        return []
    first, *others = found
    members = {task.credentials.slot: task.credentials for one in found for task in one.tasks if task.credentials}
    if not members:
        raise ValueError("commit=sink needs tasks of a group's members")
    return [replace(first, handoffs=handoffs_of(planned, members, stream, plan_id, topic_ids)), *others]


# ---- in an executor


def read_bundle(bundle: TaskBundle, query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the records of a stream's read tasks; raises as `read`."""
    if bundle.handoffs:
        client = cached_client(query.settings)
        deadline = Deadline(query.options.coordinator_timeout_ms / 1000)
        client.run(publish(client, BatchOfRun.of_task(TaskContext.get()), bundle.handoffs, deadline))
    if len(bundle.tasks) > 1 and query.options.commit != "task":
        yield from query.rows(_read_together(bundle.tasks, query, bundle.readers))
        return
    for task in bundle.tasks:
        yield from read(task, query, bundle.readers)


def _read_together(group: Sequence[ReadTask], query: Query, readers: Readers | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of tasks that commit nothing themselves.

    Their slots attach at the same time, where one does not vouch for all, and their ranges are read together: a bundle
    takes about as long as one task. With a quota the tasks read one after another, each with its own share.
    """
    slots = representative_slots(task.credentials for task in group if task.credentials is not None)
    with ExitStack() as stack:
        sessions = _attach(slots, query, stack, commits=False)
        for part in group if _is_limited(group[0]) else [_merged(group)]:
            with pacer_of(part.ticket, query.settings, CONSUMER_RATE) as pacer:
                yield from _while_held(sessions, _batches(part, query, pacer, readers))


def _is_limited(task: ReadTask) -> bool:
    return task.ticket is not None and task.ticket.settings.limits


def _merged(group: Sequence[ReadTask]) -> ReadTask:
    topics = {name: topic_id for task in group for name, topic_id in task.topics.items()}
    return replace(group[0], ranges=tuple(r for task in group for r in task.ranges), topics=topics)


def read(task: ReadTask, query: Query, readers: Readers | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task, as record batches.

    Args:
        task: The task.
        query: The query.
        readers: See `TaskBundle`.

    Raises:
        FencedError: Another member holds the slot; the task stops reading and commits nothing.
        KafkaGroupError: See `FetchEngine.read`.
    """
    commits = query.options.commit == "task"
    with ExitStack() as stack:
        sessions = _sessions(task, query, stack, commits=commits)
        # Before the reading, to fence earlier attempts.
        commits = commits and any(r.replica == 0 for r in task.ranges)
        committers = [_committer(session, query, task) for session in sessions()] if commits else []
        pacer = stack.enter_context(pacer_of(task.ticket, query.settings, CONSUMER_RATE))
        yield from query.rows(_while_held(sessions, _batches(task, query, pacer, readers)))
        # Only the primary copy of a partition (replica 0) counts for the group's committed offset.
        counting = [r for r in task.ranges if r.replica == 0 and r.topic_partition not in task.uncommitted]
        for commit in committers if counting else ():
            _commit_read(commit, counting, task, query)


def _commit_read(commit: _Commit, ranges: Sequence[Range], task: ReadTask, query: Query) -> None:
    """Commit the ends of these ranges, without topics that were deleted or created again since the plan.

    Raises:
        DataLossError: There are such topics, and `failOnDataLoss` is set.
    """
    epochs = {r.topic_partition: r.epoch for r in ranges}

    def commit_ends(read: StreamOffset, *, has_looked: bool) -> None:
        try:
            ends = with_notes(read.ends, task.rewinds, task.committed_by, epochs, task.topics, task.cluster)
            commit(ends, has_looked=has_looked)
        except FencedError as error:
            if error.code not in _OTHER_OWNER:
                raise
            raise _read_twice(read.ends, error) from error

    done = StreamOffset({r.topic_partition: Span(r.start, r.end, 0) for r in ranges}, topics=task.topics)
    commit_existing(query.options, Cluster.of(query.options, cached_client(query.settings)), done, commit_ends)
    failpoint("task-committed")


def _read_twice(ends: Mapping[TopicPartition, int], error: FencedError) -> FencedError:
    return FencedError(
        f"Another task reads the same records and has taken over the commit of {format_partitions(sorted(ends))}: a "
        "later attempt of this task, or a second read of the same DataFrame in one query, for example in a self-join "
        "or in a union with itself. With commit=task a DataFrame can be read once. To read it more than once, use "
        f"commit=batch in a stream, and kafkagroup.pinned or commit=none in a batch. ({error})",
        code=error.code,
    )


def _batches(task: ReadTask, query: Query, pacer: Pacer, readers: Readers | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's ranges from the engine, with exactly the requested columns."""
    options = query.options
    for replica, ranges in by_replica(_with_bounds_of_now(task, query)):
        has_dead_letters = options.deadletter_topic is not None
        columns = columns_to_fetch(query.columns, query.decoding, dead_letters=has_dead_letters)
        request = FetchRequest.of(options, ranges, columns, cluster=task.cluster, topics=task.topics, pacer=pacer)
        for batch in engine_for(query.engine, query.settings).read(request):
            for rows in rows_of(
                batch,
                query.columns,
                replica=replica,
                decoding=query.decoding,
                readers=readers,
                on_bad=partial(_on_bad, query, pacer, replica),
            ):
                if rows.num_rows:
                    yield rows


def _on_bad(query: Query, pacer: Pacer, replica: int, records: pa.RecordBatch, reasons: Sequence[str]) -> None:
    """Count records whose values cannot be decoded, and write them to the topic of dead letters, if there is one.

    They are acknowledged when this returns. So whatever ends a task, its offsets are committed after that.
    """
    topic = query.options.deadletter_topic
    # The other copies of a partition have the same records.
    if topic is not None and replica == 0:
        write_dead_letters(query.settings, topic, records, reasons, query.engine)
        failpoint("dead-letters-written")
    pacer.found_bad(records.num_rows)


def _with_bounds_of_now(task: ReadTask, query: Query) -> tuple[Range, ...]:
    """Return the ranges of the task, late bounds replaced by the offsets of now, without those that are empty then."""
    if not has_late_bounds(task.ranges):
        return task.ranges
    client = cached_client(query.settings)
    cluster = Cluster.of(query.options, client)
    # A whole partition is the same range in a topic that was created again, so what the worker knows of it is enough.
    with cluster.metadata_snapshot(client.known if is_unbound(task.ranges) else None):
        found = resolve_late_bounds(task.ranges, cluster, read_committed=query.options.read_committed)
    check_same_cluster(
        task.cluster,
        cluster.cluster_id(),
        servers=query.options.bootstrap_servers,
        moved_from=query.options.cluster_moved_from,
    )
    return tuple(r for r in found if r.size)


def _sessions(task: ReadTask, query: Query, stack: ExitStack, *, commits: bool) -> _Sessions:
    if task.credentials is None:
        return tuple
    renewal = task.renewal() if commits and query.options.group_on_lost != "stop" else None
    return _attach([task.credentials], query, stack, commits=commits, renewal=renewal)


def _attach(
    slots: Sequence[SlotCredentials],
    query: Query,
    stack: ExitStack,
    *,
    commits: bool,
    renewal: Renewal | None = None,
) -> _Sessions:
    """Begin to attach these slots; return what waits for their sessions, without those that the task can do without.

    The first records are fetched meanwhile.

    Args:
        slots: The credentials of the slots.
        query: The query.
        stack: Closes the sessions.
        commits: Whether the task commits as these slots.
        renewal: How it gets new credentials if they are lost.

    Raises:
        FencedError: When the sessions are waited for: the task must not read as one of the slots.
        RetriableError: Likewise: the coordinator does not answer, and the task commits.
    """
    if query.options.group_protocol == "consumer":
        # A heartbeat of a member of the consumer protocol is its driver's alone, which learns by it what the member has
        # to give up. So the driver learns too that a slot is lost, and does not commit the batch.
        return tuple
    seconds = _patience(query, commits)
    attaching = SlotSession.attach_all(query.settings, slots, seconds, renewal)
    # A task that ends before needs no answer.
    stack.callback(attaching.cancel)

    @cache
    def sessions() -> Sequence[SlotSession]:
        try:
            outcomes = attaching.result(seconds + 1)
        except futures.TimeoutError:
            outcomes = [RetriableError(f"The heartbeats of {len(slots)} slots have taken longer than {seconds:g} s.")]
        for problem in outcomes:
            if isinstance(problem, KafkaGroupError):
                _check_dispensable(problem, query, commits)
        return [outcome for outcome in outcomes if isinstance(outcome, SlotSession)]

    return sessions


def _patience(query: Query, commits: bool) -> float:
    """Return for how many seconds a task waits for the coordinator: a task that only reads can do without it."""
    return query.options.coordinator_timeout_ms / 1000 if commits else _ATTACH_SECONDS


def _check_dispensable(problem: KafkaGroupError, query: Query, commits: bool) -> None:
    """Raise the error with which a slot was not attached, unless the task can read without it."""
    if commits or not isinstance(problem, RetriableError | FencedError):
        raise problem
    if isinstance(problem, RetriableError):
        # The task only reads. If its driver was replaced meanwhile, the coordinator refuses the driver's commit.
        log.warning("reading without a check of the membership, because the coordinator does not answer: %s", problem)
    elif problem.code == ErrorCode.ILLEGAL_GENERATION:
        # The driver's slots have rejoined since the batch was planned, because another read of the driver waited for
        # them. The driver knows what of the batch it may commit.
        log.info("the group has a new generation since the batch was planned; the batch is read to its end")
    elif query.options.group_on_lost == "stop":
        raise problem
    elif problem.code == ErrorCode.FENCED_INSTANCE_ID and query.options.commit != "sink":
        # With commit=sink the slot may have been lost and joined again; another process is noticed by the decision.
        raise problem
    else:
        # The micro-batch is in Spark's offset log, so Spark would run it again after a restart. The task reads it to
        # its end, and the driver does not commit it.
        log.warning("%s The micro-batch was planned before that: it is read to its end and not committed.", problem)


def _while_held(sessions: _Sessions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, none before the slots are known to be held."""
    for batch in batches:
        for session in sessions():
            session.check()
        yield batch
    sessions()


def _committer(session: SlotSession, query: Query, task: ReadTask) -> _Commit:
    """Return the function that commits at the end."""
    patience = _patience(query, commits=True)
    transactional = query.options.commit_transactional

    def commit_plainly(ends: Mapping[TopicPartition, CommitOffset], *, has_looked: bool) -> None:
        if not has_looked:
            check_one_topic(ends)
        session.commit(ends, patience, has_looked=has_looked)

    if transactional is False or (transactional is None and was_without_transactions(session.credentials.group)):
        return commit_plainly
    # The same for all attempts, and for all batches of a generation, so that a later one fences what is left of an
    # earlier one. In a replay the slot may own other partitions than those that it reads.
    owned = session.credentials.partitions or [r.topic_partition for r in task.ranges]
    name = transactional_id_of(session.credentials.group, owned)
    committer = TransactionalCommitter(
        query.settings,
        name,
        timeout=patience,
        coordinator_seconds=coordinator_seconds(query.options),
        attempt=fetch_by_ids,
    )

    def commit(ends: Mapping[TopicPartition, CommitOffset], *, has_looked: bool) -> None:
        try:
            session.commit_by(partial(committer.commit_as, has_looked=has_looked), ends, patience)
        except InvalidConfigurationError as error:
            if not commits_plainly_after(error, session.credentials.group, transactional):
                raise
            commit_plainly(ends, has_looked=has_looked)

    return commit


def by_replica(ranges: Sequence[Range]) -> list[tuple[int, tuple[Range, ...]]]:
    """Group ranges by replica number, in ascending order, because a fetch must not name a partition twice."""
    numbers = sorted({r.replica for r in ranges})
    return [(number, tuple(r for r in ranges if r.replica == number)) for number in numbers]


# ---- offsets that are looked up when an action runs


def is_unbound(ranges: Collection[Range]) -> bool:
    """Return whether the ranges contain no planned offset, so that they mean the same in a topic created again."""
    return all(r.from_earliest and r.to_latest for r in ranges)


def resolve_late_bounds(ranges: Collection[Range], cluster: Cluster, *, read_committed: bool) -> tuple[Range, ...]:
    """Return the ranges with the offsets of now.

    Args:
        ranges: The ranges of a task, at least one with a late bound.
        cluster: Where to look up offsets.
        read_committed: Whether the latest offset is the last stable one.

    Raises:
        InvalidConfigurationError: A start that the options give lies beyond the latest offset.
        KafkaGroupError: The brokers refuse, or do not answer in time.
    """
    earliest, latest = cluster.bounds(
        [r.topic_partition for r in ranges if r.from_earliest or r.skip_deleted],
        [r.topic_partition for r in ranges if r.to_latest],
        read_committed=read_committed,
    )
    found = []
    for r in ranges:
        tp = r.topic_partition
        start = earliest[tp] if r.from_earliest else max(r.start, earliest.get(tp, r.start))
        end = latest.get(tp, r.end)
        if r.to_latest and not (r.from_earliest or r.skip_deleted) and start > end:
            raise start_after_end(tp, start, end)
        found.append(Range(*tp, start, end, r.replica))
    return tuple(found)


def has_late_bounds(ranges: Collection[Range]) -> bool:
    """Return whether a task has to look up offsets before it can read these ranges."""
    return any(r.from_earliest or r.skip_deleted or r.to_latest for r in ranges)
