"""The librdkafka engine: `Consumer.consume` into Arrow. Slower than `native`, knows all that librdkafka knows."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from assignors.model import TopicPartition
from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.client_config.tls import check_versions
from kafka_source.errors import (
    CorruptRecordsError,
    DataLossError,
    KafkaGroupError,
    RetriableError,
    UnreadableRecordError,
    from_confluent,
)
from kafka_source.fetch.engine import PACED_BATCH_SECONDS, FetchRequest, conform
from kafka_source.fetch.librdkafka_meter import WireMeter
from kafka_source.model.cluster_identity import MOVED_FROM, check_same_cluster
from kafka_source.model.stream_offset import Range
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.schema import Column, arrow_schema

log = logging.getLogger(__name__)

_CHUNK = 2000
_POLL_SECONDS, _TOLD_SECONDS, _LAST_SECONDS = 0.05, 0.01, 0.003
_STATISTICS_MS = 1000
_SMALLEST_GRAIN, _LARGEST_GRAIN = 4096, 1 << 20
_AHEAD_MS = 5
# How much larger than the average the last fetch of a range may be.
_LAST_FETCH = 1.2
_CLUSTER_SECONDS = 10.0
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


def engine(settings: Settings) -> LibrdkafkaEngine:
    """The engine of this process for these settings."""
    return _engines.of(settings)


@dataclass(frozen=True, slots=True)
class Client:
    """A consumer, and what it tells of the wire."""

    consumer: Consumer
    meter: WireMeter


@dataclass(frozen=True, slots=True)
class _Kind:
    """Which consumers can stand in for each other; `grain`: of a partition's fetches under a quota, None: any size."""

    read_committed: bool
    label: str
    grain: int | None
    paced: bool


class LibrdkafkaEngine:
    """Reads ranges with consumers that join no group; a consumer is kept for the worker's next task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: dict[_Kind, Client] = {}
        self._closed = False
        self._last_problem = ""
        self._topic_unknown = False
        self.shaken = True
        # Of each topic, as seen last.
        self.record_bytes: dict[str, float] = {}

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """See `FetchEngine.read`."""
        kind = _kind(request)
        client = self._idle.pop(kind, None) or self._client(kind)
        try:
            yield from _LibrdkafkaReader(client, request, self, in_grains=kind.grain is not None).batches()
            client.consumer.unassign()
        except BaseException:
            # An interrupted consumer may hold records of the old assignment: the next task gets a new one.
            client.consumer.close()
            raise
        if self._closed:
            client.consumer.close()
        else:
            self._idle[kind] = client

    def close(self) -> None:
        """Close the idle consumers; a task that still reads closes its own at its end."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[1].consumer.close()

    def check_cluster(self, expected: str | None, found: str | None) -> None:
        """Raises InvalidConfigurationError if the cluster that was found is not the one that is expected."""
        check_same_cluster(
            expected,
            found,
            servers=self._settings.get("bootstrap.servers", ""),
            moved_from=self._settings.get(MOVED_FROM),
        )

    @property
    def last_problem(self) -> str:
        """What the client said last of its connections; for the message of a timeout."""
        return self._last_problem

    def topic_became_unknown(self) -> bool:
        """Whether the client has met a topic or partition that does not exist, since this was last asked."""
        met, self._topic_unknown = self._topic_unknown, False
        return met

    def _client(self, kind: _Kind) -> Client:
        check_versions(self._settings)
        meter = WireMeter()
        config: dict[str, Any] = {
            "client.id": self._settings.client_id(),
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 32 * 1024,
            "check.crcs": True,
            # How long a topic may be unknown before it counts as gone.
            "topic.metadata.propagation.max.ms": 10_000,
            **librdkafka_config(self._settings),
            "group.id": self._settings.get("group.id") or kind.label,
            "isolation.level": "read_committed" if kind.read_committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": self._on_problem,
        }
        if kind.paced:
            # Seldom, and no throttle: until they are heard they stand in the queue, which holds the next fetch back.
            config |= {"stats_cb": meter.on_stats, "statistics.interval.ms": _STATISTICS_MS}
        else:
            config["throttle_cb"] = meter.on_throttle
        if kind.grain is not None:
            for name in ("fetch.message.max.bytes", "max.partition.fetch.bytes"):
                config.pop(name, None)
            # Fetched as it is taken out, and no more: what is read ahead is lost at the end of a task.
            config |= {
                "fetch.message.max.bytes": kind.grain,
                "queued.min.messages": 1,
                "fetch.queue.backoff.ms": _AHEAD_MS,
            }
        for name in ("group.instance.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"):
            config.pop(name, None)
        config.pop("partition.assignment.strategy", None)
        try:
            return Client(Consumer(config, logger=log), meter)
        except KafkaException as error:
            # Settings that each are fine may be none together.
            raise from_confluent(error, "Making a consumer failed") from None

    def _on_problem(self, error: KafkaError) -> None:
        self._last_problem, self.shaken = error.str(), True
        # Comes here and not, as other problems of partitions, in place of a message.
        self._topic_unknown |= error.code() in _UNKNOWN


_engines = ProcessCache(LibrdkafkaEngine, close=LibrdkafkaEngine.close)


def _kind(request: FetchRequest) -> _Kind:
    pacer = request.pacer
    if not pacer.paces:
        return _Kind(request.read_committed, request.label, None, paced=False)
    pacer.wait(sum(r.size for r in request.ranges))
    most = pacer.most_bytes(1024.0)
    # Less than may be fetched at once: of what does not fit whole, brokers send the beginning in vain.
    each = _LARGEST_GRAIN if most is None else most // 4
    # In powers of two, so that a consumer serves the next task too, whose share is a little different.
    grain = None if each >= _LARGEST_GRAIN else max(_SMALLEST_GRAIN, 1 << (each.bit_length() - 1))
    return _Kind(request.read_committed, request.label, grain, paced=True)


class _LibrdkafkaReader:
    """One request being read: which ranges are still open, and the rows of the next batch."""

    def __init__(self, client: Client, request: FetchRequest, engine: LibrdkafkaEngine, *, in_grains: bool) -> None:
        self._consumer = client.consumer
        self._in_grains = in_grains
        self._meter = client.meter
        self._pacer = request.pacer
        self._request = request
        self._engine = engine
        self._open = {r.topic_partition: r for r in request.ranges if r.size > 0}
        self._next = {tp: r.start for tp, r in self._open.items()}
        self._unassigned = dict.fromkeys(self._open)
        # First fetches of which nobody knew how large they would be.
        self._uncounted = 0
        self._rows = _Rows(request.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        if not self._open:
            return
        self._check_cluster()
        self._consumer.assign([])
        deadline = self._deadline()
        while self._open:
            deadline += self._hold_back()
            messages = self._assign_more()
            if not messages:
                deadline += self._hold_back()
                messages = self._take_out()
            if self._engine.shaken:
                self._check_cluster()
            rows, size = self._rows.all_rows, self._rows.all_bytes
            for message in messages:
                self._take(message)
                if len(self._rows) >= self._request.batch_rows or self._rows.bytes >= self._request.batch_bytes:
                    yield self._rows.drain()
            if self._pacer.paces and self._rows.all_rows > rows:
                self._account(messages[-1], self._rows.all_rows - rows, self._rows.all_bytes - size)
            deadline += self._throttled()
            if self._pacer.paces and len(self._rows) and time.monotonic() > self._rows.since + PACED_BATCH_SECONDS:
                yield self._rows.drain()
            if messages:
                # Not before they are taken: who takes the batches may be slow.
                deadline = self._deadline()
            elif self._engine.topic_became_unknown():
                self._check_existence()
            elif time.monotonic() > deadline:
                raise self._timed_out()
        if len(self._rows):
            yield self._rows.drain()

    def _check_cluster(self) -> None:
        """Before anything is taken from a client that has (new) connections: another cluster may be behind the name."""
        if self._request.cluster is None:
            return
        self._engine.shaken = False
        try:
            found = self._consumer.list_topics(next(iter(self._open)).topic, timeout=_CLUSTER_SECONDS).cluster_id
        except KafkaException:
            # Nobody answers now. Records cannot come either, and when they do the client has told of it before.
            self._engine.shaken = True
            return
        self._engine.check_cluster(self._request.cluster, found)

    def _assign_more(self) -> list[Message]:
        """Have the ranges fetched; in small grains one after another. What has come at once.

        Brokers send a whole batch of one partition, and of the others pieces that are too small to hold one.
        """
        more = list(self._unassigned)
        if self._in_grains:
            more = more[: 1 - len(self._assigned())]
        if not more:
            return []
        for tp in more:
            del self._unassigned[tp]
        self._consumer.incremental_assign([Position(tp.topic, tp.partition, self._next[tp]) for tp in more])
        if not self._in_grains:
            return []
        if record_bytes := self._record_bytes():
            self._pacer.fetched(self._meter.count(record_bytes, 1), 0)
        else:
            self._uncounted = 1
        # What librdkafka tells itself of the assignment holds the first fetch back until it is out of the queue; who
        # listens for it might take the first record, and have the second one fetched at once.
        time.sleep(_TOLD_SECONDS)
        return self._consumer.consume(1, 0)

    def _take_out(self) -> list[Message]:
        if not (self._in_grains and self._is_fetched()):
            return self._consumer.consume(self._most_messages(), _POLL_SECONDS)
        # A message that is awaited leaves the queue empty, and the next one is fetched at once, beyond the range; one
        # that stands in it has the next looked for some milliseconds later, when the partition is unassigned already.
        time.sleep(_LAST_SECONDS)
        return self._consumer.consume(self._all_messages(), 0)

    def _assigned(self) -> list[TopicPartition]:
        return [tp for tp in self._open if tp not in self._unassigned]

    def _left(self, partitions: Iterable[TopicPartition]) -> int:
        return sum(self._open[tp].end - self._next[tp] for tp in partitions)

    def _all_messages(self) -> int:
        # `consume` waits for all it is asked for, so ask for no more than there can be.
        return min(_CHUNK, self._left(self._assigned()))

    def _most_messages(self) -> int:
        most = self._all_messages()
        if not self._pacer.paces:
            return most
        each = self._record_bytes()
        allowed = self._pacer.most_bytes(each or 1.0)
        if allowed is None:
            return most
        # Of messages that nobody has seen one is enough: each that is taken out has another one fetched.
        return max(1, min(most, int(allowed / each))) if each else 1

    def _hold_back(self) -> float:
        """Wait as long as the quota wants; the seconds that were waited."""
        if self._pacer.paces and self._is_fetched():
            return 0.0
        begun = time.monotonic()
        while (pause := self._pacer.wait(self._left(self._open))) > 0:
            time.sleep(pause)
        return time.monotonic() - begun

    def _record_bytes(self) -> float:
        """Of a message, about; 0: nobody has seen one."""
        return max((self._engine.record_bytes.get(tp.topic, 0.0) for tp in self._assigned()), default=0.0)

    def _is_fetched(self) -> bool:
        """Whether what is left of the assigned partitions has come already, or is one fetch."""
        left = self._left(self._assigned())
        # A response is smaller on average where brokers refuse fetches.
        return left == 1 or 0 < left * self._record_bytes() <= _LAST_FETCH * self._meter.response_bytes

    def _account(self, last: Message, records: int, size: int) -> None:
        """Note for the quota that so many records were taken out, of so many bytes; `last` is of the same partition."""
        tp = _partition(last)
        # What is taken out has the next ones fetched, but at the end; the first one was accounted for before.
        was_taken = last.error() is None and self._next.get(tp) == (last.offset() or 0) + 1
        at_end = was_taken and tp not in self._open
        fetches = records + self._uncounted - at_end
        self._uncounted = 0
        self._pacer.fetched(self._meter.count(size / records * fetches, fetches), records)
        self._pacer.measured(tp, self._meter.on_the_wire(size, records), records)
        self._engine.record_bytes[tp.topic] = size / records

    def _throttled(self) -> float:
        """Note for how long brokers throttle from now on, in seconds."""
        throttle = self._meter.take_throttle()
        self._pacer.throttled(throttle)
        return throttle

    def _deadline(self) -> float:
        return time.monotonic() + self._request.timeout_ms / 1000

    def _take(self, message: Message) -> None:
        error = message.error()
        tp = _partition(message)
        whole = self._open.get(tp)
        if error is None:
            if whole is None:
                return
            offset = message.offset()
            if offset is None:
                raise KafkaGroupError(f"A record of {tp.topic}-{tp.partition} has no offset.")
            if offset < whole.end:
                self._rows.add(message)
                self._next[tp] = offset + 1
            if offset + 1 >= whole.end:
                self._finish(tp)
        elif error.code() == KafkaError._PARTITION_EOF:
            # The position is past transaction markers and compacted records, which no message tells of.
            end = message.offset()
            if whole is not None and end is not None:
                if end >= whole.end:
                    self._finish(tp)
                else:
                    self._check_still_there(whole)
        elif whole is None:
            if error.fatal():
                raise from_confluent(error, "Reading failed")
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._out_of_range(whole)
        elif error.code() in _UNKNOWN:
            self._lost(whole, None)
        elif error.code() in (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG):
            raise CorruptRecordsError(topic=tp.topic, partition=tp.partition, offset=self._next[tp], reason=error.str())
        elif not error.retriable():
            raise from_confluent(error, f"Reading {tp.topic}-{tp.partition} at offset {self._next[tp]} failed")

    def _finish(self, tp: TopicPartition) -> None:
        del self._open[tp]
        if tp in self._unassigned:
            del self._unassigned[tp]
        elif self._open or self._pacer.paces:
            # At once, before the next fetch of it leaves.
            self._consumer.incremental_unassign([Position(tp.topic, tp.partition)])

    def _watermarks(self, whole: Range) -> tuple[int, int]:
        position = Position(whole.topic, whole.partition)
        try:
            low, high = self._consumer.get_watermark_offsets(position, timeout=self._request.timeout_ms / 1000)
        except KafkaException as error:
            raise from_confluent(error, f"Asking for the offsets of {whole.topic}-{whole.partition} failed") from error
        return low, high

    def _check_still_there(self, whole: Range) -> None:
        low, high = self._watermarks(whole)
        if high < whole.end and not self._request.read_committed:
            self._lost(whole, (low, high))

    def _check_existence(self) -> None:
        for tp, whole in list(self._open.items()):
            try:
                topic = self._consumer.list_topics(tp.topic, timeout=self._request.timeout_ms / 1000).topics[tp.topic]
            except KafkaException as error:
                raise from_confluent(error, f"Asking for topic {tp.topic} failed") from error
            if tp.partition not in topic.partitions:
                self._lost(whole, None)

    def _out_of_range(self, whole: Range) -> None:
        low, high = self._watermarks(whole)
        tp = whole.topic_partition
        if not self._next[tp] < low < whole.end:
            self._lost(whole, (low, high))
            return
        self._complain(whole, (low, high))
        self._next[tp] = low
        self._consumer.incremental_unassign([Position(tp.topic, tp.partition)])
        self._consumer.incremental_assign([Position(tp.topic, tp.partition, low)])

    def _lost(self, whole: Range, available: tuple[int, int] | None) -> None:
        self._complain(whole, available)
        self._finish(whole.topic_partition)

    def _complain(self, whole: Range, available: tuple[int, int] | None) -> None:
        tp = whole.topic_partition
        error = DataLossError(topic=tp.topic, partition=tp.partition, planned=self._next[tp], available=available)
        if self._request.fail_on_data_loss:
            raise error
        log.warning("%s (failOnDataLoss is false: reading goes on)", error)

    def _timed_out(self) -> RetriableError:
        where = ", ".join(f"{tp.topic}-{tp.partition} at offset {self._next[tp]}" for tp in list(self._open)[:5])
        problem = f"; the last problem was: {self._engine.last_problem}" if self._engine.last_problem else ""
        return RetriableError(
            f"No records came within {self._request.timeout_ms} ms (kafkaConsumer.pollTimeoutMs) for {where}{problem}"
        )


def _partition(message: Message) -> TopicPartition:
    number = message.partition()
    return TopicPartition(message.topic() or "", -1 if number is None else number)


class _Rows:
    """The rows of the next record batch, by column; `all_` is of those before it too."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._schema = arrow_schema(columns)
        self.bytes = self._bytes_before = self._rows_before = 0
        self.since = time.monotonic()
        self._messages: list[Message] = []

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def all_rows(self) -> int:
        return self._rows_before + len(self._messages)

    @property
    def all_bytes(self) -> int:
        return self._bytes_before + self.bytes

    def add(self, message: Message) -> None:
        self._messages.append(message)
        self.bytes += len(message)

    def drain(self) -> pa.RecordBatch:
        self._rows_before, self._bytes_before = self.all_rows, self.all_bytes
        messages, self._messages, self.bytes = self._messages, [], 0
        self.since = time.monotonic()
        arrays = [_array(column, field, messages) for column, field in zip(self._columns, self._schema, strict=True)]
        nullable = pa.schema([field.with_nullable(True) for field in self._schema])
        return conform(pa.RecordBatch.from_arrays(arrays, schema=nullable), self._schema)


def _array(column: Column, field: pa.Field, messages: list[Message]) -> pa.Array:
    match column.name:
        case "key":
            return _bytes(column, messages, [m.key() for m in messages])
        case "value":
            return _bytes(column, messages, [m.value() for m in messages])
        case "topic":
            return pa.array([m.topic() for m in messages], field.type)
        case "partition":
            return pa.array([m.partition() for m in messages], field.type)
        case "offset":
            return pa.array([m.offset() for m in messages], field.type)
        case "timestamp":
            return pa.array([m.timestamp()[1] * 1000 for m in messages], pa.int64()).cast(field.type)
        case "timestampType":
            # librdkafka says 0 for none, 1 for create time, 2 for log-append time; Spark says -1, 0 and 1.
            return pa.array([m.timestamp()[0] - 1 for m in messages], field.type)
        case "headers":
            return pa.array([_headers(m) for m in messages], field.type)
    raise AssertionError(column.name)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return None if headers is None else [{"key": key, "value": value} for key, value in list(headers)]


def _bytes(column: Column, messages: list[Message], values: list[Any]) -> pa.Array:
    array = pa.array(values, pa.binary())
    if not column.text:
        return array
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    for message, value in zip(messages, values, strict=True):
        try:
            value is None or value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableRecordError(
                topic=message.topic() or "",
                partition=message.partition() or 0,
                offset=message.offset() or 0,
                reason=f"the {column.name} is no UTF-8 text ({error.reason}); ask for `{column.name} binary`",
            ) from None
    raise AssertionError("Arrow refused text that Python takes")
