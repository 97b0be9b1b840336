"""Read some records of a topic with this connector's own reader, without a group and without Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import UnknownTopicError
from kafka_source.fetch.engine import FetchEngine, FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.model.record_columns import Column
from kafka_source.model.rewind_target import AtOffset, AtTime
from kafka_source.model.stream_offset import Range
from kafka_source.model.topic_selection import TopicSelection
from kafkagroup.admin.record_view import Header, Record, view
from kafkagroup.admin.rows import Rows

Start: TypeAlias = AtTime | AtOffset | None
"""From where on records are read; None: the last ones of the topic."""

_COLUMNS = tuple(map(Column, ("offset", "timestamp", "timestampType", "key", "value", "headers")))
_BATCH_ROWS = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_TIMEOUT_MS = 30_000
_APPEND_TIME = 1
# How much longer the part of the log is in which the last records are looked for, if it has too few. Offsets without a
# record are those of markers, of aborted transactions and of what compaction has removed.
_WIDER = 8


def peek(
    settings: Settings,
    topic: str,
    *,
    start: Start = None,
    partitions: Collection[int] = (),
    limit: int = 10,
    read_committed: bool = False,
    engine: str = "auto",
) -> Rows[Record]:
    """Return records of a topic, by time, with what their keys and values hold.

    Args:
        settings: The Kafka client settings.
        topic: The topic.
        start: From where on records are read; None: the last ones of the topic.
        partitions: Only these partitions; empty: all.
        limit: The most records: from `start` on those with the lowest timestamps, without `start` the latest ones.
        read_committed: Whether to leave out records of aborted and of open transactions.
        engine: native, librdkafka or auto.

    Raises:
        UnknownTopicError: The topic or a partition does not exist.
        KafkaGroupError: The brokers do not answer, or refuse a request.
    """
    with closing(Cluster(settings)) as cluster:
        existing = cluster.partitions(TopicSelection(topics=(topic,)))
        chosen = [tp for tp in existing if not partitions or tp.partition in partitions]
        if missing := sorted(set(partitions) - {tp.partition for tp in chosen}):
            raise UnknownTopicError(
                f"Topic {topic} has no partition {missing[0]}: it has {len(existing)} partitions.",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        starts, ends = cluster.bounds(chosen, chosen, read_committed=read_committed)
        times = cluster.at_times(dict.fromkeys(chosen, start.timestamp_ms)) if isinstance(start, AtTime) else {}
    source = _Source(engine_for(engine, settings), read_committed)
    found: list[Record] = []
    for tp in chosen:
        if start is None:
            found += source.last(tp, starts[tp], ends[tp], limit)
        else:
            begin = start.offset if isinstance(start, AtOffset) else times[tp]
            found += source.first(tp, ends[tp] if begin is None else max(begin, starts[tp]), ends[tp], limit)
    found.sort(key=lambda one: (one.timestamp, one.partition, one.offset))
    return Rows(Record, found[-limit:] if start is None else found[:limit])


@dataclass(frozen=True, slots=True)
class _Source:
    """Reads ranges of one partition at a time."""

    engine: FetchEngine
    read_committed: bool

    def first(self, tp: TopicPartition, begin: int, end: int, limit: int) -> list[Record]:
        """Return the first records of `[begin, end)`."""
        found: list[Record] = []
        if begin >= end:
            return found
        request = FetchRequest(
            ranges=(Range(tp.topic, tp.partition, begin, end),),
            columns=_COLUMNS,
            batch_rows=min(limit, _BATCH_ROWS),
            batch_bytes=_BATCH_BYTES,
            timeout_ms=_TIMEOUT_MS,
            read_committed=self.read_committed,
            # Records that retention has deleted since the bounds were looked up are no error here.
            fail_on_data_loss=False,
        )
        for batch in self.engine.read(request):
            found += (_record(tp, row) for row in batch.to_pylist())
            if len(found) >= limit:
                break
        return found[:limit]

    def last(self, tp: TopicPartition, begin: int, end: int, limit: int) -> list[Record]:
        """Return the last records of `[begin, end)`."""
        size = limit
        while True:
            first = max(begin, end - size)
            found = self.first(tp, first, end, end - first)
            if len(found) >= limit or first == begin:
                return found[-limit:]
            size *= _WIDER


def _record(tp: TopicPartition, row: Mapping[str, Any]) -> Record:
    headers = row["headers"] or ()
    return Record(
        tp.topic,
        tp.partition,
        row["offset"],
        row["timestamp"].isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "append" if row["timestampType"] == _APPEND_TIME else "create",
        view(row["key"]),
        view(row["value"]),
        tuple(Header(one["key"], view(one["value"])) for one in headers),
    )
