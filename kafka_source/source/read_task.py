"""The read tasks: the driver makes them; in executors they act as slots, read, write dead letters, and commit."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.attached import AttachedTask, CommitRead
from kafka_source.commits.choose import Caller, policy_of
from kafka_source.commits.handoff import BatchOfRun, Handoff, publish
from kafka_source.commits.policy import CommitPolicy, Task
from kafka_source.engine_selection import engine_of_tasks
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.identity import check_same_cluster, ids_of_ranges
from kafka_source.model.stream_offset import PlannedInput, Range, StreamOffset
from kafka_source.options import ReadOptions, Where, read_options
from kafka_source.produce.dead_letters import write_dead_letters
from kafka_source.quota.bounds import Ticket
from kafka_source.quota.server import CONSUMER_RATE
from kafka_source.quota.task_pacer import Pacer, pacer_of
from kafka_source.runtime.failpoints import failpoint
from kafka_source.schema import Column, columns_of
from kafka_source.source.plan import bundles
from kafka_source.source.row_columns import columns_to_fetch, rows_of
from kafka_source.source.start_and_end import commit_existing, start_after_end

if TYPE_CHECKING:
    from kafka_source.arrow_function import Mapping as FunctionMapping
    from kafka_source.source.decoded_columns import Readers
    from kafka_source.values.decoding import Decoding

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadTask(Task, InputPartition):
    """One task of a slot. In a batch it is a Spark input partition.

    Attributes:
        ticket: The task's share of the query's quota; None: no quota.
    """

    ticket: Ticket | None = None


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
        handoffs: With `commit=sink` one bundle of a micro-batch has the ranges of all bundles, for the sink.
        readers: The schemas to which decoded columns are resolved; None: the query's schemas, or no column is decoded.
    """

    tasks: tuple[ReadTask, ...]
    handoffs: tuple[Handoff, ...] = ()
    readers: Readers | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """The query's options and columns, which are sent to every task.

    Attributes:
        options: The options, which include the Kafka client settings.
        engine: The engine of the query's tasks, see `engine_of_tasks`.
        columns: The columns of the rows.
        decoding: How columns are decoded; None: no column is decoded.
        mapping: The function that makes rows from these columns; None: Spark gets these columns.
        caller: The kind of reader.
    """

    options: ReadOptions
    engine: str
    columns: tuple[Column, ...]
    decoding: Decoding | None = None
    mapping: FunctionMapping | None = None
    caller: Caller = Caller.STREAM

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, where: Where, readers: Readers | None = None) -> Query:
        """Return the query of these options and columns.

        Args:
            given: The options as the user wrote them.
            schema: The columns to read.
            where: BATCH or STREAM.
            readers: The schemas of decoded columns, fixed in `load()`; None: not fixed yet.

        Raises:
            OptionError: An option is invalid, or records have no such column.
            KafkaGroupError: See `values.reader_schema.reader_schema`.
        """
        options = read_options(given, where)
        engine = engine_of_tasks(options.engine)
        caller, mapping = Caller.STREAM if where is Where.STREAM else Caller.BATCH, None
        if options.map_function is not None:
            # Only queries with a function load this.
            from kafka_source.source.mapped_rows import mapping_of

            schema, mapping, readers = mapping_of(options, readers, returned=schema)
        if not options.decoded:
            return cls(options, engine, columns_of(schema), mapping=mapping, caller=caller)
        # Only queries that decode load this.
        from kafka_source.source.decoded_columns import requested

        return cls(options, engine, *requested(schema, options, readers), mapping, caller)

    def rows(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that Spark gets for a task's records."""
        return records if self.mapping is None else self.mapping.rows(records)

    def new_policy(self) -> CommitPolicy:
        """Return a new commit policy of the query. A driver and each task make a policy once, and keep it."""
        return policy_of(self.options, self.caller)

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
        topics: The ids of the topics that have an id.
        rewinds: The rewind that each partition follows; a partition that was never rewound is left out.
        stream: The id of the stream; None in a batch.
        uncommitted: The partitions whose offsets no task commits.
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
        # Send only the task's own partitions. All partitions in each task would make the plan's size slots times
        # partitions.
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
        planned: The ranges of the batch.
        tasks: Makes the tasks.
        min_offsets: Tasks with fewer offsets share input partitions, see `plan.bundles`.
        ticket: Returns a task's part of the quota, given the number of its slot (without a group, of the task) and its
            share of the batch; None: no quota.
    """
    total = sum(one.size for one in planned)
    numbers = itertools.count()

    def with_ticket(one: PlannedInput) -> ReadTask:
        task, number = tasks.task(one), next(numbers)
        if ticket is None:
            return task
        return replace(task, ticket=ticket(one.slot if one.slot >= 0 else number, one.size / max(1, total)))

    return [TaskBundle(tuple(with_ticket(one) for one in bundle)) for bundle in bundles(planned, min_offsets)]


# ---- in an executor


def read_bundle(bundle: TaskBundle, query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the records of a stream's read tasks; raises as `read`."""
    if bundle.handoffs:
        client = cached_client(query.settings)
        deadline = Deadline(query.options.coordinator_timeout_ms / 1000)
        client.run(publish(client, BatchOfRun.of_task(TaskContext.get()), bundle.handoffs, deadline))
    for part in _parts(bundle, joins_slots=query.new_policy().joins_slots):
        yield from _read(part, query, bundle.readers)


def read(task: ReadTask, query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the records of a batch's task, as record batches.

    Raises:
        FencedError: Another process has the slot; the task stops reading and commits nothing.
        KafkaGroupError: See `FetchEngine.read`.
    """
    return _read((task,), query, None)


def _read(tasks: Sequence[ReadTask], query: Query, readers: Readers | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of tasks whose slots attach at the same time.

    The tasks' ranges are read together, so a bundle takes as long as one task; with a quota the tasks take turns.
    """
    with query.new_policy().in_task(tasks) as attached:
        yield from query.rows(_records(tasks, query, readers, attached))
        attached.commit(partial(_commit_existing, query))


def _records(
    tasks: Sequence[ReadTask], query: Query, readers: Readers | None, attached: AttachedTask
) -> Iterator[pa.RecordBatch]:
    for part in tasks if len(tasks) == 1 or _is_limited(tasks[0]) else [_merged(tasks)]:
        with pacer_of(part.ticket, query.settings, CONSUMER_RATE) as pacer:
            for batch in _batches(part, query, pacer, readers):
                attached.check()
                yield batch
            attached.check()


def _commit_existing(query: Query, read: StreamOffset, commit: CommitRead) -> None:
    commit_existing(query.options, Cluster.of(query.options, cached_client(query.settings)), read, commit)


def reports_of(bundle: TaskBundle, *, joins_slots: bool) -> int:
    """Return how many ends of tasks an input partition reports; tasks that are read together report one end."""
    return sum(len(part) if _is_limited(part[0]) else 1 for part in _parts(bundle, joins_slots=joins_slots))


def _parts(bundle: TaskBundle, *, joins_slots: bool) -> list[tuple[ReadTask, ...]]:
    """Return the lists of tasks whose slots attach together; empty if the bundle only publishes hand-offs."""
    return [bundle.tasks] if joins_slots and bundle.tasks else [(task,) for task in bundle.tasks]


def _is_limited(task: ReadTask) -> bool:
    return task.ticket is not None and task.ticket.settings.limits


def _merged(group: Sequence[ReadTask]) -> ReadTask:
    topics = {name: topic_id for task in group for name, topic_id in task.topics.items()}
    return replace(group[0], ranges=tuple(r for task in group for r in task.ranges), topics=topics)


def _batches(task: ReadTask, query: Query, pacer: Pacer, readers: Readers | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's ranges, with exactly the requested columns."""
    options = query.options
    for replica, ranges in by_replica(_with_current_bounds(task, query)):
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
    """Count records whose values cannot be decoded, and write the records to the dead letter topic, if there is one.

    When this returns, the brokers have acknowledged the dead letters. The task commits the records' offsets later.
    """
    topic = query.options.deadletter_topic
    # Only the first copy of a partition writes, because the other copies have the same records.
    if topic is not None and replica == 0:
        write_dead_letters(query.settings, topic, records, reasons, query.engine)
        failpoint("dead-letters-written")
    pacer.found_bad(records.num_rows)


def _with_current_bounds(task: ReadTask, query: Query) -> tuple[Range, ...]:
    """Return the task's ranges with the current offsets instead of late bounds; empty ranges are left out."""
    if not has_late_bounds(task.ranges):
        return task.ranges
    client = cached_client(query.settings)
    cluster = Cluster.of(query.options, client)
    # A whole partition is the same range in a topic that was created again, so the worker's metadata suffice.
    with cluster.metadata_snapshot(client.known if is_unbound(task.ranges) else None):
        found = resolve_late_bounds(task.ranges, cluster, read_committed=query.options.read_committed)
    check_same_cluster(
        task.cluster,
        cluster.cluster_id(),
        servers=query.options.bootstrap_servers,
        moved_from=query.options.cluster_moved_from,
    )
    return tuple(r for r in found if r.size)


def by_replica(ranges: Sequence[Range]) -> list[tuple[int, tuple[Range, ...]]]:
    """Group ranges by replica number, in ascending order, because a fetch must not name a partition twice."""
    numbers = sorted({r.replica for r in ranges})
    return [(number, tuple(r for r in ranges if r.replica == number)) for number in numbers]


# ---- offsets that are looked up when an action runs


def is_unbound(ranges: Collection[Range]) -> bool:
    """Return whether the ranges contain no planned offset, so that they are valid in a topic that was created again."""
    return all(r.from_earliest and r.to_latest for r in ranges)


def resolve_late_bounds(ranges: Collection[Range], cluster: Cluster, *, read_committed: bool) -> tuple[Range, ...]:
    """Return the ranges with the current offsets.

    Args:
        ranges: The ranges of a task; at least one range has a late bound.
        cluster: The lookups of offsets.
        read_committed: Whether the latest offset is the last stable offset.

    Raises:
        InvalidConfigurationError: A start from the options lies beyond the latest offset.
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
    """Return whether a task has to look up offsets before it reads these ranges."""
    return any(r.from_earliest or r.skip_deleted or r.to_latest for r in ranges)
