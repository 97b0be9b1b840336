"""Choose the records of `peek` (the first, or the last by time), and recognise text, JSON and schema ids in them."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.engine_selection import why_not_native
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, UnknownTopicError, UnreadableRecordError
from kafka_source.fetch.engine import FetchEngine, FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.model.record_columns import COLUMN_TYPES, Column
from kafka_source.model.rewind_target import AtOffset, AtTime
from kafka_source.model.stream_offset import Range
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.values.header_ids import header_of
from kafkagroup.admin.rows import Rows, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_source.values.readable import ReadableValues

Format = Literal["none", "text", "json", "binary"]
"""none: the key or value is null; binary: the text is base64."""

_FRAME = struct.Struct(">bi")
_MAGIC = 0
# Schema registries count ids from 1. A frame with an id above this limit is taken for other data.
_MAX_SCHEMA_ID = 1 << 24
# The size of a value of Java's LongSerializer. Such a value may be a time in milliseconds, which begins like a frame.
_LONG_BYTES = 8


@dataclass(frozen=True, slots=True)
class Payload:
    """A key, a value, or a header's value.

    Attributes:
        format: The format of the bytes after any frame.
        text: The text; base64 of binary; None for a null.
        size: The number of bytes, with the frame; None for a null.
        schema_id: The id of the schema in the schema registry, if the bytes begin with Confluent's frame: a byte 0 and
            four bytes with the id. JSON Schema values become JSON. With a registry, Avro and Protobuf become JSON too.
        message: The full name of the Protobuf message, if a schema registry is given.
    """

    format: Format
    text: str | None
    size: int | None
    schema_id: int | None = None
    message: str | None = None

    def __str__(self) -> str:
        text = "-" if self.text is None else self.text
        message = "" if self.message is None else f" {self.message}"
        framed = text if self.schema_id is None else f"[schema {self.schema_id}{message}] {text}"
        return f"{framed} (base64)" if self.format == "binary" else framed


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    key: str
    value: Payload

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic.

    Attributes:
        topic: The topic.
        partition: The partition number.
        offset: The offset.
        timestamp: The time in ISO 8601, in UTC. A time after the year 9999, for example of a producer that writes
            microseconds, is shown in ms since 1970, or as "beyond microseconds" if Arrow cannot represent it.
        timestamp_type: Whether the producer (create) or the broker (append) has set the time.
        key: The key.
        value: The value.
        headers: The headers, in order.
    """

    topic: str
    partition: int
    offset: int
    timestamp: str
    timestamp_type: Literal["create", "append"]
    key: Payload
    value: Payload
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class SchemaUse:
    """The number of records with values of one schema.

    Attributes:
        schema_id: The id in Confluent's frame; None: no frame.
        message: The full name of the Protobuf message, if a schema registry is given.
        records: The number of records.
        first: The first record with the schema, by time, as topic-partition@offset.
        last: The last record with the schema.
    """

    schema_id: int | None
    message: str | None
    records: int
    first: str
    last: str


def schemas_of(records: Iterable[Record]) -> Rows[SchemaUse]:
    """Return the schema ids and messages of records' values, sorted."""
    found: dict[tuple[int | None, str | None], list[str]] = {}
    for one in records:
        place = f"{one.topic}-{one.partition}@{one.offset}"
        found.setdefault((one.value.schema_id, one.value.message), []).append(place)
    uses = (SchemaUse(*schema, len(places), places[0], places[-1]) for schema, places in found.items())
    return Rows(SchemaUse, sorted(uses, key=lambda use: (use.schema_id is None, use.schema_id or 0, use.message or "")))


def payload(data: bytes | None, decoder: ReadableValues | None = None, header: bytes | None = None) -> Payload:
    """Return the content of a key, a value or a header.

    Args:
        data: The bytes.
        decoder: Decodes Avro and Protobuf with the schemas of a registry; None: without a registry.
        header: The header that names the schema, if the record has one.
    """
    if data is None:
        return Payload("none", None, None)
    named = None if decoder is None else decoder.of_header(header, data)
    if named is not None:
        return Payload("json", named.json, len(data), message=named.message)
    schema_id = _schema_id(data, decoder)
    decoded = None if decoder is None or schema_id is None else decoder.of_frame(schema_id, data)
    if decoded is not None:
        return Payload("json", decoded.json, len(data), schema_id, decoded.message)
    body = data if schema_id is None else data[_FRAME.size :]
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or not _is_readable(text) or (schema_id is not None and not _is_json(text)):
        return Payload("binary", base64.b64encode(body).decode(), len(data), schema_id)
    return Payload("json" if _is_json(text) else "text", text, len(data), schema_id)


def _schema_id(data: bytes, decoder: ReadableValues | None) -> int | None:
    if len(data) <= _FRAME.size:
        return None
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != _MAGIC or not 0 < schema_id < _MAX_SCHEMA_ID:
        return None
    is_known = len(data) != _LONG_BYTES if decoder is None else decoder.knows(schema_id)
    return schema_id if is_known else None


def _is_readable(text: str) -> bool:
    return all(one.isprintable() or one in "\t\r\n" for one in text)


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or array; a number or a word in quotes is shown as text."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(word: str) -> None:
    """Refuse a number that JSON does not have, such as NaN."""
    raise ValueError(word)


Start: TypeAlias = AtTime | AtOffset | None
"""The position from which records are read; None: the last records of the topic."""

_COLUMNS = tuple(map(Column, ("offset", "timestamp", "timestampType", "key", "value", "headers")))
_WITHOUT_TIME = tuple(column for column in _COLUMNS if column.name != "timestamp")
EVERY_COLUMN = tuple(Column(name) for name in COLUMN_TYPES if name != "replica")
"""The columns that a function gets: all columns of a read."""

_BATCH_ROWS = 1000
_BATCH_BYTES = 4 * 1024 * 1024
_TIMEOUT_MS = 30_000
_APPEND_TIME = 1
# The factor by which the searched part at the log's end grows while the part has too few records. Offsets without a
# record belong to markers, aborted transactions and compacted records.
_WIDER = 8


class Peek:
    """Returns records of one topic by time, with readable keys and values, and on later calls the new records.

    Args:
        settings: The Kafka client settings.
        topic: The topic.
        partitions: Only these partitions; empty: all.
        read_committed: Whether to leave out records of aborted and of open transactions.
        engine: native, librdkafka or auto.
        registry: The settings of a schema registry's client, to decode Avro and Protobuf; None: no registry.

    Raises:
        OptionError: A setting of the registry is wrong.
        InvalidConfigurationError: kafkagroup-native, which decodes Avro and Protobuf, is not installed.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        *,
        partitions: Collection[int] = (),
        read_committed: bool = False,
        engine: str = "auto",
        registry: Settings | None = None,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._partitions = partitions
        self._source = _Source(engine_for(engine, settings), read_committed, _decoder(registry))
        self._ends: dict[TopicPartition, int] = {}

    def records(self, start: Start = None, limit: int = 10) -> Rows[Record]:
        """Return at most `limit` records, sorted by their timestamps.

        Args:
            start: The position of the first record to return. None: return the newest records.
            limit: The maximum number of records.

        Raises:
            UnknownTopicError: The topic or a partition does not exist.
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        with closing(Cluster(self._settings)) as cluster:
            chosen = self._chosen(cluster)
            read_committed = self._source.read_committed
            starts, ends = cluster.bounds(chosen, chosen, read_committed=read_committed)
            asked = dict.fromkeys(chosen, start.timestamp_ms) if isinstance(start, AtTime) else {}
            times = cluster.at_times(asked, read_committed=read_committed)
        self._ends = dict(ends)
        found: list[Record] = []
        for tp in chosen:
            if start is None:
                found += self._source.last(tp, starts[tp], ends[tp], limit)
            else:
                begin = start.offset if isinstance(start, AtOffset) else times[tp]
                first = ends[tp] if begin is None else max(begin, starts[tp])
                found += self._source.first(tp, first, ends[tp], limit)
        found.sort(key=_by_time)
        return Rows(Record, found[-limit:] if start is None else found[:limit])

    def batches(self, records: Iterable[Record]) -> Iterator[pa.RecordBatch]:
        """Yield given records, partition by partition, with all columns of a read, to pass them to a function.

        Raises:
            KafkaGroupError: The brokers do not answer, or a time is too large for microseconds.
        """
        by_partition: dict[TopicPartition, list[int]] = {}
        for one in records:
            by_partition.setdefault(TopicPartition(one.topic, one.partition), []).append(one.offset)
        for tp, offsets in by_partition.items():
            yield from self._source.batches(tp, offsets)

    def new(self) -> Rows[Record]:
        """Return the records that came since the last call of `records` or of this method, sorted by time.

        Raises:
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        with closing(Cluster(self._settings)) as cluster:
            chosen = self._chosen(cluster)
            starts, ends = cluster.bounds(chosen, chosen, read_committed=self._source.read_committed)
        found: list[Record] = []
        for tp in chosen:
            begin = max(self._ends.get(tp, 0), starts[tp])
            found += self._source.first(tp, begin, ends[tp], max(1, ends[tp] - begin))
        self._ends = dict(ends)
        found.sort(key=_by_time)
        return Rows(Record, found)

    def _chosen(self, cluster: Cluster) -> list[TopicPartition]:
        existing = cluster.partitions(TopicSelection(topics=(self._topic,)))
        chosen = [tp for tp in existing if not self._partitions or tp.partition in self._partitions]
        if missing := sorted(set(self._partitions) - {tp.partition for tp in chosen}):
            raise UnknownTopicError(
                f"Topic {self._topic} has no partition {missing[0]}: it has {len(existing)} partitions.",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return chosen


def _decoder(registry: Settings | None) -> ReadableValues | None:
    if registry is None:
        return None
    if (reason := why_not_native()) is not None:
        raise InvalidConfigurationError(f"To decode Avro and Protobuf, install kafkagroup-native: {reason}.")
    # The client is loaded only with a registry.
    from kafka_source.values.readable import ReadableValues

    return ReadableValues(registry)


def _by_time(record: Record) -> tuple[str, int, int]:
    return record.timestamp, record.partition, record.offset


@dataclass(frozen=True, slots=True)
class _Source:
    """Reads ranges of one partition at a time."""

    engine: FetchEngine
    read_committed: bool
    decoder: ReadableValues | None

    def first(self, tp: TopicPartition, begin: int, end: int, limit: int) -> list[Record]:
        """Return the first records of `[begin, end)`."""
        found: list[Record] = []
        while begin < end and len(found) < limit:
            try:
                for record in self._read(tp, begin, end, limit, _COLUMNS):
                    found.append(record)
                    begin = record.offset + 1
                    if len(found) >= limit:
                        break
                else:
                    begin = end
            except UnreadableRecordError as error:
                # The record's time, for example in nanoseconds, exceeds Arrow's microseconds.
                found += self._read(tp, begin, error.offset, limit, _COLUMNS)
                found += self._read(tp, error.offset, error.offset + 1, 1, _WITHOUT_TIME)
                begin = error.offset + 1
        return found[:limit]

    def _fetch(
        self, tp: TopicPartition, begin: int, end: int, limit: int, columns: tuple[Column, ...]
    ) -> Iterator[pa.RecordBatch]:
        request = FetchRequest(
            ranges=(Range(tp.topic, tp.partition, begin, end),),
            columns=columns,
            batch_rows=min(limit, _BATCH_ROWS),
            batch_bytes=_BATCH_BYTES,
            timeout_ms=_TIMEOUT_MS,
            read_committed=self.read_committed,
            # Records that retention has deleted since the bounds were looked up are no error here.
            fail_on_data_loss=False,
        )
        return self.engine.read(request)

    def batches(self, tp: TopicPartition, offsets: Collection[int]) -> Iterator[pa.RecordBatch]:
        """Yield the records with these offsets, with all columns of a read."""
        for batch in self._fetch(tp, min(offsets), max(offsets) + 1, _BATCH_ROWS, EVERY_COLUMN):
            yield batch.take([row for row, offset in enumerate(batch["offset"].to_pylist()) if offset in offsets])

    def _read(
        self, tp: TopicPartition, begin: int, end: int, limit: int, columns: tuple[Column, ...]
    ) -> Iterator[Record]:
        for batch in self._fetch(tp, begin, end, limit, columns):
            # Times become numbers, because Python's calendar ends in the year 9999.
            if "timestamp" in batch.schema.names:
                times = batch.column("timestamp").cast("int64")
                batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", times)
            yield from (_record(tp, row, self.decoder) for row in batch.to_pylist())

    def last(self, tp: TopicPartition, begin: int, end: int, limit: int) -> list[Record]:
        """Return the last records of `[begin, end)`."""
        size = limit
        while True:
            first = max(begin, end - size)
            found = self.first(tp, first, end, end - first)
            if len(found) >= limit or first == begin:
                return found[-limit:]
            size *= _WIDER


def _record(tp: TopicPartition, row: Mapping[str, Any], decoder: ReadableValues | None) -> Record:
    headers = row["headers"] or ()
    # The last of several headers with the same name counts.
    named = {one["key"]: one["value"] for one in headers}
    return Record(
        tp.topic,
        tp.partition,
        row["offset"],
        time_text(row.get("timestamp")),
        "append" if row["timestampType"] == _APPEND_TIME else "create",
        payload(row["key"], decoder, named.get(header_of("key"))),
        payload(row["value"], decoder, named.get(header_of("value"))),
        tuple(Header(one["key"], payload(one["value"])) for one in headers),
    )
