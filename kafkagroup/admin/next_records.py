"""Look up when the next record of each partition of a group was written."""

from collections.abc import Iterable

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.source.alignment import Stretch, next_records
from kafka_source.source.log_times import BrokerTimes
from kafkagroup.admin.rows import PartitionLag


class NextTimes:
    """Reads the next record of partitions with lag; `look` may be called repeatedly.

    Args:
        settings: The Kafka client settings, with `bootstrap.servers`.
    """

    def __init__(self, settings: Settings) -> None:
        self._times = BrokerTimes(settings, Cluster(settings), engine="auto", read_committed=False)

    def look(self, lag: Iterable[PartitionLag]) -> dict[TopicPartition, int]:
        """Return the timestamp of each partition's next record, if there is one, in milliseconds since 1970.

        Records without a timestamp, or with one that is too large for microseconds, are left out.
        """
        starts, ends = {}, {}
        for row in lag:
            if row.end is not None and row.behind:
                tp = TopicPartition(row.topic, row.partition)
                starts[tp], ends[tp] = Stretch(row.end - row.behind, row.end - row.behind), row.end
        found = next_records(self._times, starts, ends)
        times = {tp: stretch.records[0].timestamp for tp, stretch in found.items() if stretch.records}
        return {tp: time for tp, time in times.items() if time >= 0}
