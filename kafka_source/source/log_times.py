"""Look up the timestamps of records for `maxTimestampSkew`: a small fetch at a position, and ListOffsets by time."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import RefreshRetriableError, RetriableError
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.model.record_columns import Column
from kafka_source.model.rewind_target import MAX_LONG
from kafka_source.model.stream_offset import Range
from kafka_source.options import ReadOptions
from kafka_source.source.alignment import Alignment, Record

_COLUMNS = (Column("topic"), Column("partition"), Column("offset"), Column("timestamp", lenient=True))
# The bytes of a fetch: Java's default of a producer's `batch.size`, because brokers send whole batches.
_FETCH_BYTES = 16_384
# After a timeout the trigger is tried again, with the new current leaders.
_TIMEOUT_MS = 10_000
_BATCH_ROWS = 10_000


def alignment_of(options: ReadOptions, cluster: Cluster) -> Alignment | None:
    """Return the alignment of a query's partitions; None without `maxTimestampSkew`."""
    if options.max_timestamp_skew is None:
        return None
    times = BrokerTimes(options.settings, cluster, engine=options.engine, read_committed=options.read_committed)
    return Alignment(options.max_timestamp_skew, times, lambda: round(time.time() * 1000))


class BrokerTimes:
    """Implements `LogTimes` with requests to the brokers.

    Args:
        settings: Kafka client settings.
        cluster: The cluster.
        engine: The option `engine`.
        read_committed: Whether to leave out records of aborted transactions.
    """

    def __init__(self, settings: Settings, cluster: Cluster, *, engine: str, read_committed: bool) -> None:
        self._cluster, self._engine, self._read_committed = cluster, engine, read_committed
        most = min(_FETCH_BYTES, settings.integer("max.partition.fetch.bytes") or _FETCH_BYTES)
        self._settings = Settings({**settings.given, "max.partition.fetch.bytes": str(most)})

    def records(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, Sequence[Record]]:
        """Return the records of these ranges, see `LogTimes`.

        Raises:
            RefreshRetriableError: A leader does not answer.
            KafkaGroupError: As `FetchEngine.read`, except for lost records, which the tasks report.
        """
        request = FetchRequest(
            tuple(Range(*tp, start, end) for tp, (start, end) in ranges.items()),
            _COLUMNS,
            batch_rows=_BATCH_ROWS,
            batch_bytes=_FETCH_BYTES,
            timeout_ms=_TIMEOUT_MS,
            read_committed=self._read_committed,
            fail_on_data_loss=False,
        )
        found: dict[TopicPartition, list[Record]] = {}
        try:
            for batch in engine_for(self._engine, self._settings).read(request):
                for topic, number, offset, at in zip(*map(_values, batch.columns), strict=True):
                    one = Record(offset, -1 if at is None else at // 1000)
                    found.setdefault(TopicPartition(topic, number), []).append(one)
        except RetriableError as error:
            raise RefreshRetriableError(f"Looking for the timestamps of the next records failed: {error}") from None
        return found

    def first_later(self, partitions: Collection[TopicPartition], timestamp: int) -> Mapping[TopicPartition, Record]:
        """Return the first record of each log that is later than a timestamp, see `LogTimes`."""
        times = dict.fromkeys(partitions, min(timestamp + 1, MAX_LONG))
        found = self._cluster.first_at(times, read_committed=self._read_committed)
        return {tp: Record(one.offset, one.timestamp) for tp, one in found.items() if one.offset >= 0}


def _values(column: pa.Array) -> list[Any]:
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values
