"""Make the tasks of a stream's micro-batches in Spark's driver, also of a replay.

Spark keeps one reader in a long-lived process of the driver. At every trigger, `MicroBatches.next` first commits what
the last batch has read, because Spark asks only when that is durable; rejoins the group if a rebalance is due; and then
plans the records that are new (`stream_planner`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from assignors.model import TopicPartition
from kafka_source.commits.policy import Replay, ends_of
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.group.model import OwnedPartitions
from kafka_source.group.siblings import Siblings
from kafka_source.model.commits import CommitOffset
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source import replay
from kafka_source.source.plan import plan
from kafka_source.source.read_task import Query, TaskBundle, TaskFactory, bundle_tasks
from kafka_source.source.stream_planner import StreamPlanner

if TYPE_CHECKING:
    from kafka_source.source.decoded_columns import Readers
    from kafka_source.values.reader_schema import ReaderSchema

log = logging.getLogger(__name__)


class MicroBatches(StreamPlanner):
    """Plan the micro-batches of one stream, in Spark's driver.

    Args:
        query: The query.
        siblings: Where to meet the other reads of this driver and group; None: nowhere.
    """

    def __init__(self, query: Query, siblings: Siblings | None = None) -> None:
        decodings = () if query.decoding is None else query.decoding.columns
        self._readers = {one.reader.column: one.reader for one in decodings}
        self._stopping = {one.reader.column for one in decodings if one.ends_at_newer}
        schemas: dict[str, int] = {name: one.id for name, one in self._readers.items() if one.id is not None}
        super().__init__(query.options, query.policy, siblings, schemas)
        # The last planned batch, if it has records of which Spark has not asked for the tasks yet.
        self._unread: StreamOffset | None = None
        # Whether Spark has not read any batch with records of this checkpoint, as far as this process knows.
        self._is_unproven = False
        self._skip_is_told = False

    def next(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """Return the end offset of the next micro-batch; see `StreamPlanner.next`.

        Raises:
            InvalidConfigurationError: Spark has finished the first batch of this checkpoint without reading it.
        """
        if start == self._unread:
            self._tell_skipped(self._unread)
        end = super().next(start, limited=limited)
        if end is not start:
            self._unread = end if replay.records_of(end) else None
            self._is_unproven |= replay.begins_unwritten(start, end)
        return end

    def _tell_skipped(self, batch: StreamOffset) -> None:
        """Say that Spark has finished a batch without reading it: its sink has a batch of this number already.

        Raises:
            InvalidConfigurationError: It is the first one of a checkpoint. The group stays where the batch begins, and
                has a mark, so that also this checkpoint reads the records again.
        """
        self._unread = None
        refused = self._is_unproven and self._options.strict
        message = replay.describe_skipped(self._options, batch, refused=refused)
        if not refused:
            if not self._skip_is_told:
                log.warning("%s", message)
            self._skip_is_told = True
            return
        if self._resolver.marks_steps_back:
            starts = {tp: span.start for tp, span in replay.records_of(batch).items()}
            with self._owner.rebalance_paused():
                self._positions.note_rewinds(dict.fromkeys(starts, replay.new_unwritten_mark()))
                try:
                    self._owner.offsets.rewind(starts)
                except KafkaGroupError as error:
                    log.warning("commit group=%s failed: %s", self._options.group_id, error)
        raise InvalidConfigurationError(message)

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[TaskBundle]:
        """Return the input partitions of the batch from `start` to `end`, with the slots' present credentials.

        A replay after a restart reads the same ranges in the same input partitions, except for topics that were
        deleted or created again, with `commit=sink` for what other members have read since, with `commit=sink` or
        `commit=task` for what the next batch reads of partitions that were rewound since, and with `commit=task` where
        the query has other slots. `end` may be an offset of Spark's own source, if the query was moved while a batch
        was planned and not finished.

        Raises:
            DataLossError: A topic of a replayed batch was lost, and `failOnDataLoss` is set.
            InvalidConfigurationError: `end` is of another cluster, or `replay` does not know its start.
        """
        self._check_cluster(end)
        with self._owner.rebalance_paused():
            return self._tasks(start, end)

    def _tasks(self, start: StreamOffset, batch: StreamOffset) -> list[TaskBundle]:
        end = batch
        if end.of_spark:
            end = self._planned_by_spark(start, end)
        is_replay = end != self._planned
        if not is_replay and self._unread is not None:
            self._unread, self._is_unproven = None, False
        if is_replay:
            self._learn(end, newest=True)
            end = self._without_lost_topics(end)
            self._resolver.compare_with_group(end)
        planned, uncommitted = Replay(plan(end, start))
        if is_replay:
            planned, uncommitted = self._policy.replay(planned, batch, self)
        cluster = self._cluster.cluster_id()
        factory = TaskFactory(self._owner.credentials, cluster, end.topics, end.rewinds, end.stream, uncommitted)
        ticket = None if self._quota is None else self._quota.ticket
        found = bundle_tasks(planned, factory, min_offsets=end.task_records, ticket=ticket)
        if found and self._readers:
            readers = self._readers_of(end)
            found = [replace(one, readers=readers) for one in found]
        self._owner.tasks_made(ends_of(planned))
        self._note_tasks(sum(len(one.tasks) for one in found))
        if found:
            slots = (task.credentials for one in found for task in one.tasks)
            members = {one.slot: one for one in slots if one is not None}
            found[0] = replace(found[0], handoffs=self._policy.tasks_made(planned, members, batch, end.topics))
        return found

    def _readers_of(self, end: StreamOffset) -> Readers:
        """Return the schemas to which a batch's columns are resolved: in a replay those of its first run."""
        return {column: self._reader_of(now, end.schemas.get(column)) for column, now in self._readers.items()}

    def _reader_of(self, now: ReaderSchema, then: int | None) -> ReaderSchema:
        # A schema that the user gives as text has no id, and counts for replays too. So does a new one of Protobuf or
        # JSON: a field has the same number or name in both, and the value that the record has. And a query that ends at
        # a newer schema has no rows that were written with it.
        if now.id is None or then is None or then == now.id or now.format != "avro" or now.column in self._stopping:
            return now
        from kafka_source.values.reader_schema import registered

        found = registered(self._options.registry, then, column=now.column)
        return replace(found, recursive_depth=now.recursive_depth)

    def _planned_by_spark(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        start = self._without_lost_topics(start)
        end = self._without_lost_topics(end)
        return replay.planned_batch(
            start,
            end,
            cluster=self._cluster,
            options=self._options,
            subscribed=self._subscribed,
            existing=self._topics.existing(end.partitions),
        )

    def rejoined(self) -> OwnedPartitions:
        """Rejoin if a rebalance is due, and return what the stream owns of the topics as they are now."""
        owned = self._owner.commit_and_rejoin({})
        return replace(owned, slots=self._current_slots(owned))

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return what the group has committed; see `PartitionOwner.committed`."""
        return self._owner.offsets.committed(partitions)

    def rewound(self, committed: Mapping[TopicPartition, CommitOffset]) -> Collection[TopicPartition]:
        """Return the partitions whose rewind the stream does not follow yet."""
        return self._positions.unfollowed_rewinds(committed)
