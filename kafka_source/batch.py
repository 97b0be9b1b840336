"""The batch reader: positions, group, plan; then each task reads and commits its slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from assignors.model import TopicPartition
from kafka_source import positions, tasks
from kafka_source.cluster import Cluster
from kafka_source.driver_process import driver_process
from kafka_source.engine_choice import check_engine
from kafka_source.offsets import StreamOffset
from kafka_source.options import Where
from kafka_source.ownership import Alone, InGroup, Ownership, group_settings, in_group, subscription_of
from kafka_source.plan import plan, spans
from kafka_source.quota.driver import CONSUMER_RATE
from kafka_source.quota.hub import start_hub
from kafka_source.quota.server import new_token
from kafka_source.quota.settings import QuotaSettings, Ticket
from kafka_source.tasks import Reading, ReadTask, shares_of
from kafka_source.topic_ids import TopicIds, only_of


class BatchReader(DataSourceReader):
    """Reads what is there now, once; Spark calls `partitions` in a short-lived process of the driver.

    Args:
        given: The options as the user wrote them.
        schema: The columns asked for.

    Raises:
        OptionError: An option is wrong.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._reading = Reading.of(given, schema, Where.BATCH)

    def partitions(self) -> list[InputPartition]:
        """The plan: an input partition for each slot with something to read, or for each range without a group."""
        options, settings = self._reading.options, self._reading.settings
        check_engine(options["engine"], settings)
        cluster = Cluster.of(options, settings)
        subscription = subscription_of(options)
        subscribed = cluster.partitions(subscription)
        if not in_group(options):
            return list(self._plan(cluster, Alone(cluster, subscription), subscribed))
        group = group_settings(options, partitions=len(subscribed), stream=False)
        with closing(InGroup(options, settings, subscription, group, commits=False)) as members:
            planned = self._plan(cluster, members, subscribed)
            members.detach()
        return [replace(task, takes_over=group) for task in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one input partition."""
        if not isinstance(partition, ReadTask):
            # Spark makes up one input partition where the plan has none.
            return iter(())
        return tasks.read(partition, self._reading)

    def _plan(self, cluster: Cluster, ownership: Ownership, subscribed: list[TopicPartition]) -> list[ReadTask]:
        options = self._reading.options
        owned = ownership.settle({})
        mine = sorted(owned.slots)
        # Before the offsets. Spark plans a DataFrame once, and a topic may be another one when an action reads it.
        topics = TopicIds(cluster, 0).ids({tp.topic for tp in mine})
        committed = ownership.committed(mine) if options["group.start"] == "committed" else {}
        starts = positions.starting(cluster, options, mine, committed, subscribed=subscribed, default="earliest")
        known = {tp: starts[tp] for tp, offset in committed.items() if offset is not None}
        starts |= positions.check_data_loss(cluster, options, known)
        ends = positions.ending(cluster, options, mine, subscribed=subscribed)
        offset = StreamOffset(
            spans(starts, ends, owned.slots, owned.copies),
            generation=owned.generation,
            slots=owned.count,
            min_partitions=options["minPartitions"],
            max_records=options["maxRecordsPerPartition"],
        )
        planned = [
            ReadTask(ranges, ownership.credentials(slot), cluster=cluster.cluster_id(), topics=only_of(ranges, topics))
            for slot, ranges in plan(offset)
        ]
        quota = QuotaSettings.of(options)
        if quota is None:
            return planned
        hub = start_hub(quota, self._reading.settings, CONSUMER_RATE, new_token(), driver_process())
        shares = [1.0 if quota.per_member else share for share in shares_of(planned)]
        return [
            replace(task, ticket=Ticket(quota, hub.bounds, number, share, hub.endpoint, hub.token))
            for number, (task, share) in enumerate(zip(planned, shares, strict=True))
        ]
