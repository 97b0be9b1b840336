"""Make the tasks of a stream's micro-batches and of their replays, in Spark's driver.

Spark keeps one reader in a long-lived process of the driver. At every trigger, when the last batch is durable, the
reader calls `MicroBatches.next`, which commits the last batch, rejoins if a rebalance is due, and plans the next batch.
"""

import logging
from dataclasses import replace

from kafka_source.commits.policy import Replay, ends_of
from kafka_source.errors import KafkaGroupError
from kafka_source.group.siblings import Siblings
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source import replay
from kafka_source.source.plan import plan
from kafka_source.source.read_task import Query, TaskBundle, TaskFactory, bundle_tasks, reports_of
from kafka_source.source.trigger import Trigger

log = logging.getLogger(__name__)


class MicroBatches(Trigger):
    """A `Trigger` that also makes the tasks with which Spark reads its batches.

    Args:
        query: The query.
        siblings: The other reads of this driver and group; None: they cannot be found.
    """

    def __init__(self, query: Query, siblings: Siblings | None = None) -> None:
        self._decodings = () if query.decoding is None else query.decoding.columns
        schemas: dict[str, int] = {
            one.reader.column: one.reader.id for one in self._decodings if one.reader.id is not None
        }
        super().__init__(query.options, query.new_policy(), siblings, schemas)
        self._unread = replay.UnreadBatches(query.options)

    def next(self, start: StreamOffset, *, limited: bool) -> StreamOffset:
        """Return the end offset of the next micro-batch; see `Trigger.next`.

        Raises:
            InvalidConfigurationError: Spark has finished the first batch of this checkpoint without reading it.
        """
        if (refusal := self._unread.check(start)) is not None:
            self._mark_unwritten(start)
            raise refusal
        end = super().next(start, limited=limited)
        if end is not start:
            self._unread.planned(start, end)
        return end

    def _mark_unwritten(self, batch: StreamOffset) -> None:
        """Commit the starts of a checkpoint's first batch with a mark, so that a restart reads the batch again."""
        if not self._resolver.marks_steps_back:
            return
        starts = {tp: span.start for tp, span in replay.records_of(batch).items()}
        with self._owner.rebalance_paused():
            self._positions.note_rewinds(dict.fromkeys(starts, replay.new_unwritten_mark()))
            try:
                self._owner.offsets.rewind(starts)
            except KafkaGroupError as error:
                log.warning("commit group=%s failed: %s", self._options.group_id, error)

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[TaskBundle]:
        """Return the input partitions of the batch from `start` to `end`, with the slots' current credentials.

        A replay after a restart reads the same ranges in the same input partitions, except for:

        - topics that were deleted or created again,
        - with `commit=sink`, records that other members have read since,
        - with `commit=sink` or `commit=task`, partitions that were rewound since,
        - with `commit=task`, slots that have changed.

        The exceptions about partitions and slots also apply if the slots have rejoined between plan and tasks.

        If the query was moved from Spark's own source during a batch, `end` is an offset of that source.

        Raises:
            DataLossError: A topic of a replayed batch was lost, and `failOnDataLoss` is set.
            InvalidConfigurationError: `end` is of another cluster, or is Spark's own and the batch's start is unknown.
        """
        self._check_cluster(end)
        with self._owner.rebalance_paused():
            return self._tasks(start, end)

    def _tasks(self, start: StreamOffset, batch: StreamOffset) -> list[TaskBundle]:
        end = batch
        if end.of_spark:
            end = self._planned_by_spark(start, end)
        is_replay = end != self._planned
        if is_replay:
            self._learn(end, newest=True)
            end = self._without_lost_topics(end)
            self._resolver.compare_with_group(end)
        else:
            self._unread.read()
        planned, uncommitted = Replay(plan(end, start))
        if is_replay or self._has_rejoined():
            planned, uncommitted = self._policy.replay(planned, batch, self)
        cluster = self._cluster.cluster_id()
        factory = TaskFactory(self._owner.credentials, cluster, end.topics, end.rewinds, end.stream, uncommitted)
        ticket = None if self._quota is None else self._quota.ticket
        found = bundle_tasks(planned, factory, min_offsets=end.task_records, ticket=ticket)
        if found and self._decodings:
            # Only queries that decode load this.
            from kafka_source.source.decoded_columns import readers_of_batch

            readers = readers_of_batch(self._decodings, end, self._options)
            found = [replace(one, readers=readers) for one in found]
        self._owner.tasks_made(ends_of(planned))
        joins = self._policy.joins_slots
        self._figures.expect(sum(reports_of(one, joins_slots=joins) for one in found))
        if found:
            slots = (task.credentials for one in found for task in one.tasks)
            members = {one.slot: one for one in slots if one is not None}
            found[0] = replace(found[0], handoffs=self._policy.tasks_made(planned, members, batch, end.topics))
        return found

    def _has_rejoined(self) -> bool:
        """Return whether slots that commit the batch have rejoined since its plan, for another read of the driver.

        The new credentials would also commit partitions that were rewound, or are of other members, since the plan.
        """
        return self._policy.right is not None and self._owner.joins != self._owned.joins

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
