"""The batch reader: it joins the group, resolves starts and ends, and plans; each task then acts as its slot."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from assignors.model import TopicPartition
from kafka_source.boundary import short_errors
from kafka_source.cluster.lookup import Cluster
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.commits.keeper import start_keeper
from kafka_source.commits.kept import offsets_of
from kafka_source.commits.policy import CommitPolicy
from kafka_source.engine_selection import check_engine
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError
from kafka_source.group.model import GroupSettings, group_settings, subscription_of
from kafka_source.group.siblings import Siblings
from kafka_source.model.commits import rewinds_in
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.options.assignment_strategies import strategies_of
from kafka_source.produce.dead_letters import check_dead_letter_topic
from kafka_source.quota.bounds import QuotaSettings
from kafka_source.quota.server import CONSUMER_RATE, ticket_of_server_process
from kafka_source.runtime import spark_processes
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.runtime.shared_files import exclusive, name_of
from kafka_source.runtime.spark_processes import driver_pid
from kafka_source.source import read_task
from kafka_source.source.group_member_owner import GroupMemberOwner
from kafka_source.source.owners import PartitionOwner
from kafka_source.source.plan import mark_late_bounds, plan, spans
from kafka_source.source.positions import Positions
from kafka_source.source.read_task import Query, ReadTask, TaskFactory, is_unbound, shares_of
from kafka_source.source.start_and_end import resolve_batch

if TYPE_CHECKING:
    from kafka_source.source.decoded_columns import Readers

log = logging.getLogger(__name__)

# The time for which a planner retries to join after the planner of another scan has fenced it.
_FENCED_SECONDS = 30.0
_FENCED_PAUSES = RetryPolicy(0.2, 1.0)


@short_errors
class BatchReader(DataSourceReader):
    """The reader of a batch. Spark calls `partitions` in a short-lived process of the driver, and `read` in executors.

    Args:
        given: The options as the user wrote them.
        schema: The columns to read.
        readers: The schemas of decoded columns, fixed in `load()`; None: not fixed yet, or no column is decoded.

    Raises:
        OptionError: An option is invalid.
        KafkaGroupError: The schema registry does not have the values' schema, or does not answer.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, readers: Readers | None = None) -> None:
        self._query = Query.of(given, schema, Where.BATCH, readers)

    def partitions(self) -> list[InputPartition]:
        """Return an input partition for each slot with records to read; without a group, a partition for each range.

        Without a group the words `earliest` and `latest` stay in the plan, and each action looks up their offsets.
        """
        options, policy = self._query.options, self._query.new_policy()
        check_engine(options.engine, options.settings)
        # Spark uses the planner's process for later plans too, so no connection may stay open in this process.
        with closing(Cluster.of(options)) as cluster:
            subscription = subscription_of(options)
            if not options.is_member:
                owner = PartitionOwner(cluster, subscription, offsets_of(options, policy, Positions()))
                with cluster.metadata_snapshot():
                    subscribed = cluster.partitions(subscription)
                    check_dead_letter_topic(options, cluster, subscribed)
                    return list(self._plan(cluster, policy, owner, subscribed))
            subscribed = cluster.partitions(subscription)
            check_dead_letter_topic(options, cluster, subscribed)
            group = group_settings(options, partitions=len(subscribed), stream=False)
            planned = self._plan_as_members(cluster, policy, group, subscribed)
        if policy.right is not None:
            slots = [task.credentials for task in planned if task.credentials is not None]
            ends = {r.topic_partition: r.end for task in planned for r in task.ranges}
            start_keeper(
                self._query.settings,
                group,
                subscription,
                slots,
                policy.right,
                ends,
                strategies_of(options),
                driver_pid(),
            )
        return list(planned)

    def _plan_as_members(
        self, cluster: Cluster, policy: CommitPolicy, group: GroupSettings, subscribed: list[TopicPartition]
    ) -> list[ReadTask]:
        """Join and plan; then pass the slots to the process that keeps them, or leave if the read commits nothing.

        If the read commits nothing, slots that stayed would only delay the group's other reads until the slots'
        sessions end.

        An action may scan its DataFrame several times, for example in a self-join. Each scan is planned by a process of
        its own, with the same instance ids, so that all scans read the same records. Planners that join together would
        fence each other, so planners take turns. If nothing is committed, a later join does not disturb earlier tasks.
        """
        options = self._query.options

        def join_and_plan() -> list[ReadTask]:
            siblings = Siblings.find(group.group, driver_pid())
            members = GroupMemberOwner(options, policy, subscription_of(options), group, siblings=siblings)
            with _one_planner(group), closing(members), members.rebalance_paused():
                planned = self._plan(cluster, policy, members, subscribed)
                if policy.right is not None:
                    # A slot without a task would stay a member until its session ends, and delay every other read.
                    members.detach({task.credentials.slot for task in planned if task.credentials is not None})
                    return planned
                members.leave()
                return [replace(task, credentials=None) for task in planned]

        def fenced(error: Exception, _: int, __: float) -> bool:
            log.info("plan group=%s failed: %s", group.group, error)
            return isinstance(error, FencedError) and error.code == ErrorCode.FENCED_INSTANCE_ID

        deadline = Deadline(_FENCED_SECONDS)
        return retry(join_and_plan, _FENCED_PAUSES, on=FencedError, deadline=deadline, again=fenced)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In an executor, yield the records of one input partition."""
        if not isinstance(partition, ReadTask):
            # Spark adds an empty input partition of its own class to an empty plan.
            return iter(())
        spark_processes.prepare_worker(self._query.options.log_level, self._query.options.log_format)
        return read_task.read(partition, self._query)

    def _plan(
        self, cluster: Cluster, policy: CommitPolicy, owner: PartitionOwner, subscribed: list[TopicPartition]
    ) -> list[ReadTask]:
        options = self._query.options
        owned = owner.rejoin_if_due()
        # Look up the topic ids before the offsets. Spark plans a DataFrame once, and a topic may be deleted and created
        # again before an action reads it. If so, a task with a planned offset finds a different id, and fails.
        with cluster.metadata_snapshot():
            topics = TopicIds(cluster.topics, 0).ids({tp.topic for tp in owned.slots})
            owner.offsets.note_topics(topics, cluster.cluster_id())
            bounds = resolve_batch(cluster, options, owner, sorted(owned.slots), subscribed=subscribed, check_all=False)
        end = StreamOffset(
            spans(bounds.starts, bounds.ends, owned.slots, owned.copies),
            generation=owned.generation,
            slots=owned.count,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
            epochs=bounds.epochs,
        )
        inputs = plan(end) if options.in_group else mark_late_bounds(plan(end), bounds)
        committed = owner.offsets.committed(sorted(owned.slots)) if policy.right is not None else {}
        factory = TaskFactory(owner.credentials, cluster.cluster_id(), topics, rewinds_in(committed))
        planned = [_without_ids_if_unbound(factory.task(one)) for one in inputs]
        quota = QuotaSettings.of(options)
        if quota is None:
            return planned
        # Every read has a quota of its own.
        ticket = ticket_of_server_process(quota, self._query.settings, CONSUMER_RATE, driver_pid(), uuid4().hex)
        return [
            replace(task, ticket=ticket.of(number, share))
            for number, (task, share) in enumerate(zip(planned, shares_of(planned), strict=True))
        ]


@contextmanager
def _one_planner(group: GroupSettings) -> Iterator[None]:
    """Let only one of this driver's planner processes join this group at a time."""
    name = name_of((group.group, driver_pid()))
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(f"plan-{name}"))
        except OSError as error:
            log.warning("group=%s: planners of this driver cannot find each other: %s", group.group, error)
        yield


def _without_ids_if_unbound(task: ReadTask) -> ReadTask:
    """Return the task; without topic ids if no offset is planned, so that the task can read topics created again."""
    return replace(task, topics={}) if is_unbound(task.ranges) else task
