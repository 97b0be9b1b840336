"""The stream reader: micro-batches of the group's partitions, each planned from its end offset alone.

Spark keeps one reader in a long-lived process of the driver. Its path at every trigger, in `latestOffset`: what is
before `start` is durable, so commit it; rejoin the group if a rebalance is due; then see what is new.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark_api
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.engine_selection import check_engine
from kafka_source.errors import RefreshRetriableError
from kafka_source.group.model import CommitOffset
from kafka_source.model.cluster_identity import MOVED_FROM, check_same_cluster
from kafka_source.model.stream_offset import Range, StreamOffset
from kafka_source.model.topic_identity import differ, lost_topic, only_of
from kafka_source.model.topic_selection import Topic
from kafka_source.options import Where
from kafka_source.quota.settings import QuotaSettings
from kafka_source.quota.stream_quota import StreamQuota
from kafka_source.runtime.shutdown import leave_on_exit
from kafka_source.source import read_task, sink_commit_replay, start_and_end
from kafka_source.source.partition_owner import (
    GroupMemberOwner,
    OwnedPartitions,
    PartitionOwner,
    Standalone,
    group_settings,
    in_group,
    subscription_of,
)
from kafka_source.source.plan import bundles, limit, plan, spans
from kafka_source.source.read_task import Query, ReadTask, TaskBundle

log = logging.getLogger(__name__)

_ANY_BYTES = (1 << 63) - 1

# Far fewer than Spark starts a task for in the time in which they are read.
_TASK_RECORDS = 1000

# How long a partition may have no leader: a broker that dies is missed after 9 s, by default.
_SETTLE_SECONDS = 30.0
_LOOK_SECONDS = 0.2


class MicroBatches:
    """Plans micro-batches; the reader classes below give it the signatures of the Spark versions.

    Args:
        query: What the tasks know.
    """

    def __init__(self, query: Query) -> None:
        self._options = query.options
        self._settings = query.settings
        check_engine(query.options["engine"], query.settings)
        self._cluster = Cluster.of(query.options, query.settings)
        self._subscription = subscription_of(query.options)
        # When the query started; what has come since is read from its first record.
        self._subscribed = frozenset(self._cluster.partitions(self._subscription))
        self._ownership = self._owner(query)
        # Where each owned partition goes on, in the generation for which this was resolved.
        self._positions: dict[TopicPartition, int] = {}
        self._generation: int | None = None
        self._before: StreamOffset | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._target: dict[TopicPartition, int] | None = None
        self._last_batch = float("-inf")
        self._topics = TopicIds(self._cluster, query.options["kafka.metadata.max.age.ms"])
        # Topics that are gone or others than the query has read, until a batch has begun with them anew.
        self._anew: dict[str, Topic | None] = {}
        quota = QuotaSettings.of(query.options)
        self._quota = None if quota is None else StreamQuota(quota, query.settings)
        # What `next` gave last; a batch that ends elsewhere is replayed from the checkpoint.
        self._planned: StreamOffset | None = None

    def next(self, before: StreamOffset, *, limited: bool) -> StreamOffset:
        """The end offset of the micro-batch after `before`; `before` itself if there is nothing new.

        Args:
            before: Where the last batch ended; without partitions at a query's first start.
            limited: Whether the options' bounds on a micro-batch hold.
        """
        self._check_cluster(before)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                return self._next(before, limited=limited)
            except RefreshRetriableError:
                # A leader is lost, or a topic was deleted since it was looked at, or is not known everywhere yet.
                if time.monotonic() > deadline:
                    raise
                self._topics.doubt()
                time.sleep(_LOOK_SECONDS)

    def _next(self, given: StreamOffset, *, limited: bool) -> StreamOffset:
        before = self._without_lost(given)
        owned = self._ownership.commit_and_rejoin(before.ends)
        if owned.generation != self._generation:
            # The leader may have called for it because of topics that it has seen change.
            self._topics.doubt()
            before = self._without_lost(given)
        starts = self._resolve(before, owned)
        self._latest = self._cluster.latest(starts, read_committed=self._read_committed)
        starts = self._check_data_loss(starts)
        available = {tp: (start, max(start, self._end(tp))) for tp, start in starts.items()}
        if limited and self._hold_back(available):
            return given
        ends = limit(available, self._options["maxOffsetsPerTrigger"] if limited else None)
        if self._quota is not None and limited:
            ends = self._quota.admit(starts, ends, owned.slots)
        if ends == starts and (before.partitions or self._remembered(starts)):
            return given
        if not self._ownership.still_owned():
            # A driver that was suspended while it planned would plan what others have read meanwhile.
            return given
        self._last_batch = time.monotonic()
        self._planned = StreamOffset(
            spans(starts, ends, owned.slots, owned.copies),
            cluster=self._cluster.cluster_id(),
            generation=owned.generation,
            slots=owned.count,
            min_partitions=self._options["minPartitions"],
            max_records=self._options["maxRecordsPerPartition"],
            task_records=self._task_records,
            topics=self._topics.ids({tp.topic for tp in starts}),
            stream=(before.stream or uuid.uuid4().hex) if self._sink_commits else None,
        )
        return self._planned

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[TaskBundle]:
        """The input partitions of the batch that ends at `end`, with the slots' credentials of now."""
        self._check_cluster(end)
        replayed = end != self._planned
        if replayed:
            # It was planned before a restart, and its topics may have gone since.
            end = self._without_lost(end)
        planned: sink_commit_replay.Planned = plan(end, start)
        if self._sink_commits and replayed:
            owned = self._ownership.commit_and_rejoin({})
            planned = sink_commit_replay.left_of(planned, owned.slots, self._marked(), end.stream or "")
        whole = sum(r.size for _, ranges in planned for r in ranges)
        numbers = itertools.count()
        tasks = [
            TaskBundle(tuple(self._task(next(numbers), slot, ranges, whole, end.topics) for slot, ranges in bundle))
            for bundle in bundles(planned, end.task_records)
        ]
        return self._with_handoff(tasks, planned, end) if self._sink_commits and tasks else tasks

    def _with_handoff(
        self, tasks: list[TaskBundle], planned: sink_commit_replay.Planned, end: StreamOffset
    ) -> list[TaskBundle]:
        """The same tasks, the first of which tells the sink what all of them read."""
        first, *others = tasks
        credentials = first.tasks[0].credentials
        assert credentials is not None
        return [replace(first, handoff=sink_commit_replay.handoff_of(planned, credentials, end.stream or "")), *others]

    def _task(
        self, number: int, slot: int, ranges: tuple[Range, ...], whole: int, topics: Mapping[str, str]
    ) -> ReadTask:
        credentials, cluster = self._ownership.credentials(slot), self._cluster.cluster_id()
        task = ReadTask(ranges, credentials, cluster=cluster, topics=only_of(ranges, topics))
        if self._quota is None:
            return task
        share = sum(r.size for r in ranges) / max(1, whole)
        return replace(task, ticket=self._quota.ticket(number if slot < 0 else slot, share))

    def finished(self, end: StreamOffset) -> None:
        """Everything before `end` is durable in Spark's sink."""
        gone = {name for name, topic in self._anew.items() if topic is None or differ(end.topics.get(name), topic.id)}
        self._ownership.finish(end.without(gone).ends)

    def stop_at_latest(self) -> None:
        """Fix the end of an AvailableNow run at what is there now, in every partition of the subscription."""
        partitions = self._cluster.partitions(self._subscription)
        self._target = self._cluster.latest(partitions, read_committed=self._read_committed)

    def latest(self) -> dict[str, dict[str, int]]:
        """The ends of the partitions as last seen, for the query's progress."""
        report: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self._latest.items()):
            report.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return report

    def quota(self) -> dict[str, Any] | None:
        """How much of the quota is used, with rates and delays; None without one."""
        return None if self._quota is None else self._quota.figures()

    def close(self) -> None:
        """Give the partitions up."""
        if self._quota is not None:
            self._quota.close()
        self._ownership.close()

    @property
    def _task_records(self) -> int:
        given: int | None = self._options["minRecordsPerTask"]
        cut = self._options.given("minPartitions") or self._options.given("maxRecordsPerPartition")
        return given or (1 if cut or not in_group(self._options) else _TASK_RECORDS)

    @property
    def _read_committed(self) -> bool:
        return bool(self._options["kafka.isolation.level"] == "read_committed")

    @property
    def _sink_commits(self) -> bool:
        return bool(self._options["commit"] == "sink")

    def _marked(self) -> dict[TopicPartition, CommitOffset]:
        return sink_commit_replay.committed_with_marks(self._settings, self._options["kafka.group.id"])

    def _owner(self, query: Query) -> PartitionOwner:
        options = query.options
        if not in_group(options):
            return Standalone(self._cluster, self._subscription)
        group = group_settings(options, partitions=len(self._subscribed), stream=True)
        commits = options["commit"] in (None, "batch")
        return GroupMemberOwner(options, query.settings, self._subscription, group, commits=commits)

    def _check_cluster(self, offset: StreamOffset) -> None:
        check_same_cluster(
            offset.cluster,
            self._cluster.cluster_id(),
            servers=self._options["kafka.bootstrap.servers"],
            moved_from=self._options[MOVED_FROM],
        )

    def _resolve(self, before: StreamOffset, owned: OwnedPartitions) -> dict[TopicPartition, int]:
        """Where each owned partition goes on."""
        mine = self._topics.existing(owned.slots)
        if before != self._before:
            self._positions.update(before.ends)
            self._before = before
        if owned.generation != self._generation or any(tp not in self._positions for tp in mine):
            goes_on = self._goes_on(before, owned)
            known = {tp: offset for tp, offset in goes_on.items() if offset is not None}
            self._positions = known | self._first(before, [tp for tp in mine if tp not in known])
            self._generation = owned.generation
        return {tp: self._positions[tp] for tp in mine}

    def _goes_on(self, before: StreamOffset, owned: OwnedPartitions) -> dict[TopicPartition, int | None]:
        """Where each owned partition goes on by what the checkpoint and the group know; None: neither knows it."""
        mine, uses_committed = self._topics.existing(owned.slots), self._uses_committed(before, owned)
        if self._sink_commits:
            marked = self._marked() if uses_committed else {}
            marked = {tp: entry for tp, entry in marked.items() if tp.topic not in self._anew}
            return {
                tp: sink_commit_replay.goes_on_at(tp, self._positions.get(tp), marked, before.stream) for tp in mine
            }
        known = [tp for tp in mine if tp.topic not in self._anew]
        committed = self._ownership.committed(known) if uses_committed else {}
        # Another application of the group may have read on meanwhile: the furthest position is the right one.
        return {
            tp: max((c for c in (self._positions.get(tp), committed.get(tp)) if c is not None), default=None)
            for tp in mine
        }

    def _first(self, before: StreamOffset, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions start that this query and its group have not read yet."""
        # Partitions that were added while the query runs: from the start, so that nothing is missed. A query that has
        # had nothing to read yet has no partitions in `before`.
        added = [tp for tp in partitions if before.partitions or tp.topic in self._anew or tp not in self._subscribed]
        others = [tp for tp in partitions if tp not in added]
        starts = start_and_end.starting(
            self._cluster, self._options, others, {}, subscribed=self._subscribed, default="latest"
        )
        self._ownership.remember(starts)
        return starts | self._cluster.earliest(added)

    def _without_lost(self, before: StreamOffset) -> StreamOffset:
        """`before` without topics that are gone, or are others by now, which are read from their first offset.

        Raises:
            DataLossError: There is such a topic, and failOnDataLoss is set.
        """
        if before.cluster not in (None, self._cluster.cluster_id()):
            # The topics were moved here (`cluster.moved.from`), and had other ids there.
            before = replace(before, topics={})
            self._topics.doubt()
        lost = self._topics.lost(before)
        self._anew = {name: topic for name, topic in self._anew.items() if name in lost or name not in before.topics}
        news = {name: topic for name, topic in lost.items() if name not in self._anew or self._anew[name] != topic}
        for name, topic in sorted(news.items()):
            error = lost_topic(before, name, topic)
            if self._options["failOnDataLoss"]:
                raise error
            log.warning("%s (failOnDataLoss is false: the query goes on)", error)
        if news:
            self._anew |= news
            self._ownership.forget_topics(news)
            self._positions = {tp: at for tp, at in self._positions.items() if tp.topic not in news}
        return before.without(lost) if lost else before

    def _uses_committed(self, before: StreamOffset, owned: OwnedPartitions) -> bool:
        # Where all copies emit rows, the group's offsets tell of one of them only.
        return not owned.copies and bool(before.partitions or self._options["group.start"] == "committed")

    def _remembered(self, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether a query that dies before its first batch would start at the same positions again."""
        if not starts or self._ownership.keeps_positions:
            return True
        by_time = self._options.given("startingTimestamp") or self._options.given("startingOffsetsByTimestamp")
        return self._options["startingOffsets"] == "earliest" and not by_time

    def _end(self, tp: TopicPartition) -> int:
        if self._target is None:
            return self._latest[tp]
        # A partition that is younger than an AvailableNow run is left to the next one.
        return min(self._latest[tp], self._target.get(tp, 0))

    def _check_data_loss(self, starts: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        ahead = {tp: start for tp, start in starts.items() if start > self._latest[tp]}
        if not ahead:
            return starts
        moved = start_and_end.check_data_loss(self._cluster, self._options, ahead)
        self._positions.update(moved)
        if self._sink_commits:
            # Else the sink would take it for another member's reading that the group stands beyond the batch.
            self._ownership.rewind_committed(moved)
        return starts | moved

    def _hold_back(self, available: Mapping[TopicPartition, tuple[int, int]]) -> bool:
        least = self._options["minOffsetsPerTrigger"]
        if least is None or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._last_batch) * 1000
        new = sum(end - start for start, end in available.values())
        return bool(new < least and waited_ms < self._options["maxTriggerDelay"])


class _StreamReader(DataSourceStreamReader):
    """What the stream reader does in every Spark version.

    Args:
        given: The options as the user wrote them.
        schema: The columns asked for.

    Raises:
        OptionError: An option is wrong.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._query = Query.of(given, schema, Where.STREAM)
        self._planner: MicroBatches | None = None
        self._leave: Callable[[], None] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing planned yet; the first batch resolves its positions, and its offset keeps them."""
        return StreamOffset().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The input partitions of the batch that ends at `end`."""
        return list(self._batches().tasks(StreamOffset.from_json(start), StreamOffset.from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one input partition."""
        assert isinstance(partition, TaskBundle)
        return read_task.read_bundle(partition, self._query)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has made everything before `end` durable."""
        self._batches().finished(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Leave the group."""
        if self._leave is not None:
            self._leave()
            self._planner = self._leave = None

    def _batches(self) -> MicroBatches:
        if self._planner is None:
            self._planner = MicroBatches(self._query)
            self._leave = leave_on_exit(self._planner.close)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a pickled reader; connections stay in the driver.
        return {**self.__dict__, "_planner": None, "_leave": None}


def _shown(end: StreamOffset, quota: Mapping[str, Any] | None) -> dict[str, Any]:
    """The offset for Spark, which shows it in the query's progress; the quota's figures are to be looked at there."""
    if quota is None:
        return end.to_json()
    log.info("quota %s", quota)
    return {**end.to_json(), "quota": quota}


if hasattr(spark_api.DataSourceStreamReader, "getDefaultReadLimit"):  # Spark >= 4.2
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    class StreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """The stream reader for Spark 4.2 and later, which tells where it stands and whether bounds hold."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """The bound of the options, so that Spark can lift it for Trigger.Once."""
            most = self._query.options["maxOffsetsPerTrigger"]
            least = self._query.options["minOffsetsPerTrigger"]
            bound = most or least
            if bound is None and QuotaSettings.of(self._query.options) is not None:
                # How much a batch may have is the quota's to say, which may change; Spark only needs to know of it.
                return ReadMaxBytes(_ANY_BYTES)
            return ReadAllAvailable() if bound is None else ReadMaxRows(bound)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            """The end of the next micro-batch; `start` if there is nothing new."""
            before = StreamOffset.from_json(start)
            limited = not isinstance(limit, ReadAllAvailable)
            end = self._batches().next(before, limited=limited)
            return start if end is before else _shown(end, self._batches().quota())

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            """Fix the end of this run."""
            self._batches().stop_at_latest()

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
            """The ends of the partitions as last seen."""
            return self._batches().latest() or None

else:

    class StreamReader(_StreamReader):  # type: ignore[no-redef]
        """The stream reader for Spark 4.0 and 4.1, which do not say whether bounds hold: they always do."""

        _known: dict[str, Any] | None = None

        def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
            """The end of the next micro-batch; the last one if there is nothing new."""
            start = self._known or self.initialOffset()
            before = StreamOffset.from_json(start)
            end = self._batches().next(before, limited=True)
            self._known = start if end is before else _shown(end, self._batches().quota())
            return self._known

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            """The input partitions of the batch that ends at `end`.

            Spark asks for this before it asks where to go on, also after a restart: then for the empty batch that ends
            where the query stands.
            """
            self._known = end
            return super().partitions(start, end)
