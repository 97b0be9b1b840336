"""The fetch engine with librdkafka, whose consumers are in no group; slower than `native`."""

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from assignors.model import TopicPartition
from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.client_config.java_settings import Role
from kafka_source.client_config.tls import check_versions
from kafka_source.cluster.list_offsets import end_offsets
from kafka_source.errors import (
    CorruptRecordsError,
    DataLossError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    UnreadableRecordError,
    from_confluent,
)
from kafka_source.fetch.engine import PACED_BATCH_SECONDS, FetchRequest, conform
from kafka_source.fetch.librdkafka_meter import WireMeter
from kafka_source.kafka_client import Deadline, Snapshot, cached_client
from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.model.identity import MOVED_FROM, check_same_cluster, describe_recreated, is_recreated
from kafka_source.model.record_columns import TOO_LARGE, Column
from kafka_source.model.stream_offset import Range
from kafka_source.runtime.process_cache import ProcessCache


class Rows:
    """The messages of the next record batch.

    Args:
        columns: The columns of the batch, in order.
    """

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._reads_headers = any(column.name == "headers" for column in columns)
        self.bytes = 0
        self.since = time.monotonic()
        self._messages: list[Message] = []
        # The headers of the messages, which are slow to read.
        self._headers: list[list[tuple[str, bytes | None]] | None] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message) -> None:
        """Add a message, and its size to `bytes`.

        Raises:
            UnreadableRecordError: The batch has headers, and the key of a header is not UTF-8.
        """
        self._messages.append(message)
        self.bytes += _size(message)
        if self._reads_headers:
            headers = _headers(message)
            self._headers.append(headers)
            self.bytes += sum(len(key) + len(value or b"") for key, value in headers or ())

    def drain(self) -> pa.RecordBatch:
        """Return the record batch and begin the next.

        Raises:
            UnreadableRecordError: A text column is not UTF-8, or a timestamp is outside of Spark's range.
            InvalidConfigurationError: See `conform`.
        """
        messages, self._messages, self.bytes = self._messages, [], 0
        headers, self._headers = self._headers, []
        self.since = time.monotonic()
        arrays = [
            pa.array(headers, field.type) if column.name == "headers" else _array(column, field, messages)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        nullable = pa.schema([field.with_nullable(True) for field in self._schema])
        return conform(pa.RecordBatch.from_arrays(arrays, schema=nullable), self._schema)


def _size(message: Message) -> int:
    """Return the size of key and value in bytes. Reading headers is slow, so only a batch with headers counts them."""
    return len(message.key() or b"") + len(message)


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
            return _times(messages, lenient=column.lenient).cast(field.type)
        case "timestampType":
            # librdkafka has 0 for no timestamp, 1 for a create time, 2 for a log-append time; Spark has -1, 0 and 1.
            return pa.array([m.timestamp()[0] - 1 for m in messages], field.type)
    raise AssertionError(column.name)


# If the key of a header is no text, confluent-kafka returns a list without this header and also sets an error. Fast
# calls of CPython from 3.11 on do not check for the error, and the process crashes. A call from C checks for it. Only
# the first call for a message sets the error.
_headers_of = methodcaller("headers")


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    try:
        headers: list[tuple[str, bytes | None]] | None = _headers_of(message)
    except (UnicodeDecodeError, SystemError):
        reason = "the key of a header is no UTF-8 text; do not request the column headers, or set engine to native"
        raise _unreadable(message, reason) from None
    return headers


def _times(messages: list[Message], *, lenient: bool) -> pa.Array:
    """Return the timestamps in microseconds."""
    times = [m.timestamp()[1] * 1000 for m in messages]
    try:
        return pa.array(times, pa.int64())
    except OverflowError:
        if lenient:
            return pa.array([at if _fits(at) else TOO_LARGE for at in times], pa.int64())
        message = next(m for m, at in zip(messages, times, strict=True) if not _fits(at))
    raise _unreadable(message, "the timestamp is too large for microseconds; do not request the column timestamp")


def _fits(micros: int) -> bool:
    return -(1 << 63) <= micros < 1 << 63


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
            reason = f"the {column.name} is no UTF-8 text ({error.reason}); request `{column.name} binary`"
            raise _unreadable(message, reason) from None
    raise AssertionError("Arrow refused text that Python takes")


def _unreadable(message: Message, reason: str) -> UnreadableRecordError:
    return UnreadableRecordError(
        topic=message.topic() or "", partition=message.partition() or 0, offset=message.offset() or 0, reason=reason
    )


log = logging.getLogger(__name__)

_CHUNK = 2000
_POLL_SECONDS = 0.05
_STATISTICS_MS = 1000
_MIN_GRAIN, _MAX_GRAIN = 4096, 1 << 20
# With a grant of at least this size, a task fetches as if there were no quota.
_UNLIMITED_BYTES = 4 * _MAX_GRAIN
_AHEAD_MS = 5
_CLUSTER_SECONDS = 10.0
_LEADER_SECONDS = 1.0
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)


def engine(settings: Settings) -> "LibrdkafkaEngine":
    """Return this process's engine for these settings."""
    return _engines.of(settings)


@dataclass(frozen=True, slots=True)
class Client:
    """A consumer, and the meter of its bytes on the network."""

    consumer: Consumer
    meter: WireMeter


@dataclass(frozen=True, slots=True)
class _Kind:
    """The settings of a consumer for a request; consumers of one kind can replace each other.

    Attributes:
        read_committed: The isolation level.
        label: `group.id`, a label only.
        grain: The fetch size in bytes for one partition under a quota; None: librdkafka's default.
        paced: Whether there is a quota.
    """

    read_committed: bool
    label: str
    grain: int | None
    paced: bool


class LibrdkafkaEngine:
    """Reads ranges with consumers that join no group. An idle consumer serves the worker's next task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: dict[_Kind, Client] = {}
        self._closed = False
        # The last problem since the last records, for the error of a timeout. A consumer that serves many tasks reports
        # problems to the engine, so each task resets it.
        self.last_problem = ""
        self._topic_unknown = False
        self.shaken = True
        # The size of a message on the network in the last fetch, in bytes by topic.
        self.record_bytes: dict[str, float] = {}

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """Yield the records of a request, see `FetchEngine.read`."""
        kind = _kind(request)
        client = self._idle.pop(kind, None) or self._client(kind)
        try:
            yield from _LibrdkafkaReader(client, request, self, in_grains=kind.grain is not None).batches()
            client.consumer.unassign()
        except BaseException:
            # An interrupted consumer may hold records of the old assignment, so the next task gets a new consumer.
            client.consumer.close()
            raise
        if self._closed:
            client.consumer.close()
        else:
            self._idle[kind] = client

    def close(self) -> None:
        """Close the idle consumers; a task that still reads closes its own consumer at its end."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[1].consumer.close()

    def describe(self, topics: Sequence[str]) -> Snapshot:
        """Return the brokers' description of these topics, with their ids, which librdkafka does not expose."""
        client, deadline = cached_client(self._settings), Deadline(_CLUSTER_SECONDS)
        return client.run(client.metadata(topics, deadline))

    def high_watermark(self, tp: TopicPartition) -> int:
        """Return a partition's high watermark, because a read_committed consumer only shows the last stable offset.

        Raises:
            RetriableError: No broker answers, or the leader does not answer.
        """
        client, deadline = cached_client(self._settings), Deadline(_CLUSTER_SECONDS)
        ends = client.run(end_offsets(client, [tp], deadline))
        if tp not in ends:
            raise RetriableError(f"The leader of {tp.topic}-{tp.partition} does not return the end of the log.")
        return ends[tp]

    def check_cluster(self, expected: str | None, found: str | None) -> None:
        """Raise InvalidConfigurationError if the task was planned for another cluster."""
        check_same_cluster(
            expected,
            found,
            servers=self._settings.get("bootstrap.servers", ""),
            moved_from=self._settings.get(MOVED_FROM),
        )

    def topic_became_unknown(self) -> bool:
        """Return whether the client has found a topic or partition missing since the last call."""
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
            # The time for which a topic may be unknown before librdkafka reports it as missing.
            "topic.metadata.propagation.max.ms": 10_000,
            **librdkafka_config(self._settings, Role.CONSUMER),
            "group.id": self._settings.get("group.id") or kind.label,
            "isolation.level": "read_committed" if kind.read_committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": self._on_problem,
        }
        if kind.paced:
            # Statistics report throttling too. `throttle_cb` would put two events for each throttled fetch into the
            # queue of messages, and librdkafka fetches nothing until the events are consumed.
            config |= {"stats_cb": meter.on_stats, "statistics.interval.ms": _STATISTICS_MS}
        else:
            config["throttle_cb"] = meter.on_throttle
        if kind.grain is not None:
            for name in ("fetch.message.max.bytes", "max.partition.fetch.bytes"):
                config.pop(name, None)
            # Fetch no records ahead, because such records are lost at the end of a task.
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
            # Settings that are valid alone can be invalid together.
            raise from_confluent(error, "Making a consumer failed") from None

    def _on_problem(self, error: KafkaError) -> None:
        self.last_problem, self.shaken = error.str(), True
        # Only this callback reports an unknown topic. A partition's other errors arrive in place of a message.
        self._topic_unknown |= error.code() in _UNKNOWN


_engines = ProcessCache(LibrdkafkaEngine, close=LibrdkafkaEngine.close)


def _kind(request: FetchRequest) -> _Kind:
    pacer = request.pacer
    if not pacer.enabled:
        return _Kind(request.read_committed, request.label, None, paced=False)
    pacer.seconds_to_wait(sum(r.size for r in request.ranges))
    max_bytes = pacer.max_bytes(1024.0)
    if max_bytes is None or max_bytes >= _UNLIMITED_BYTES:
        return _Kind(request.read_committed, request.label, None, paced=True)
    # The fetch size is at most one grant of the quota, because records that were fetched ahead are lost at the end of
    # a task. The size is a power of two, so that a consumer can serve later tasks whose bounds are similar.
    grain = max(_MIN_GRAIN, min(_MAX_GRAIN, 1 << (max_bytes.bit_length() - 1)))
    return _Kind(request.read_committed, request.label, grain, paced=True)


class _LibrdkafkaReader:
    """Reads the ranges of one request: keeps the open ranges, and the rows of the next Arrow batch."""

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
        # The time of the next check of a log that ended before its range.
        self._look_again: dict[TopicPartition, float] = {}
        self._ask_for_leaders_at = 0.0
        # The partitions that librdkafka has stopped fetching.
        self._stopped: set[TopicPartition] = set()
        self._rows = Rows(request.columns)
        # The time from which records are late.
        self._overdue_at = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as Arrow record batches; see `FetchEngine.read`."""
        for batch in self._batches():
            given_at = time.monotonic()
            yield batch
            # Time in which the caller works does not count, because no request is under way.
            self._overdue_at += time.monotonic() - given_at

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if not self._open:
            return
        self._check_identity()
        self._consumer.assign([])
        self._wait_anew()
        while self._open:
            self._overdue_at += self._hold_back()
            self._assign_more()
            messages = self._consumer.consume(self._max_messages(), _POLL_SECONDS)
            if self._engine.shaken:
                self._check_identity()
            for message in messages:
                self._take(message)
                if len(self._rows) >= self._request.batch_rows or self._rows.bytes >= self._request.batch_bytes:
                    yield self._rows.drain()
            self._count(messages)
            self._overdue_at += self._throttled()
            if self._pacer.enabled and len(self._rows) and time.monotonic() > self._rows.since + PACED_BATCH_SECONDS:
                yield self._rows.drain()
            self._check_ends()
            if any(message.error() is None for message in messages):
                self._wait_anew()
            elif self._engine.topic_became_unknown():
                self._check_existence()
            elif self._open and not self._look_again and time.monotonic() > self._overdue_at:
                # While a log's end is checked again, the records that the log lacks may be lost, so they are not late.
                raise self._timed_out()
        if len(self._rows):
            yield self._rows.drain()

    def _check_identity(self) -> None:
        """Before records from new connections are used, compare the ids of cluster and topics with the plan's ids.

        The brokers' names may lead to another cluster, and librdkafka requests topics by name only.
        """
        cluster, topics = self._request.cluster, self._request.topics
        names = sorted({tp.topic for tp in self._open})
        self._engine.shaken = False
        try:
            if cluster is not None:
                found = self._consumer.list_topics(names[0], timeout=_CLUSTER_SECONDS).cluster_id
                self._engine.check_cluster(cluster, found)
            if topics:
                self._check_topics(self._engine.describe(names))
        except (KafkaException, RetriableError):
            # No broker answers. Before records arrive again, the client reports a new connection.
            self._engine.shaken = True

    def _check_topics(self, found: Snapshot) -> None:
        """Report the loss of ranges whose topics were created again; with `failOnDataLoss=false` leave them out."""
        if self._request.cluster not in (None, found.cluster_id):
            # The topics were migrated to this cluster (cluster.moved.from), where they have other ids.
            return
        for tp, whole in list(self._open.items()):
            topic = found.topics.get(tp.topic)
            if topic is not None and is_recreated(self._request.topics.get(tp.topic), topic.id_text):
                self._lost(whole, None, describe_recreated(topic.id_text))

    def _assign_more(self) -> None:
        """Assign the ranges to the consumer; if the fetch size is small, assign one range after another.

        With a small fetch size brokers send a whole batch of the first partition, and truncated batches of the others.
        """
        more = list(self._unassigned)
        if self._in_grains:
            more = more[: 1 - len(self._assigned())]
        if more:
            for tp in more:
                del self._unassigned[tp]
            self._consumer.incremental_assign([Position(tp.topic, tp.partition, self._next[tp]) for tp in more])

    def _assigned(self) -> list[TopicPartition]:
        return [tp for tp in self._open if tp not in self._unassigned]

    def _left(self, partitions: Iterable[TopicPartition]) -> int:
        return sum(self._open[tp].end - self._next[tp] for tp in partitions)

    def _max_messages(self) -> int:
        # `consume` waits until it has the requested number of messages, so do not request more than exist.
        max_messages = min(_CHUNK, self._left(self._assigned()))
        if not self._pacer.enabled:
            return max_messages
        each = max((self._engine.record_bytes.get(tp.topic, 0.0) for tp in self._assigned()), default=0.0)
        allowed = self._pacer.max_bytes(each or 1.0)
        if allowed is None:
            return max_messages
        # Each consumed message can start a fetch. While the size of messages is unknown, consume one message.
        return max(1, min(max_messages, int(allowed / each))) if each else 1

    def _hold_back(self) -> float:
        """Wait for as long as the quota delays the next fetch, and return the seconds."""
        if not self._pacer.enabled:
            return 0.0
        begun = time.monotonic()
        while (pause := self._pacer.seconds_to_wait(self._left(self._open))) > 0:
            time.sleep(pause)
        return time.monotonic() - begun

    def _count(self, messages: list[Message]) -> None:
        """Count the consumed messages for the quota; librdkafka then fetches as many new messages."""
        if not self._pacer.enabled:
            return
        sizes: dict[TopicPartition, list[int]] = {}
        for message in messages:
            if message.error() is None:
                sizes.setdefault(_partition(message), []).append(_size(message))
        for tp, each in sizes.items():
            size = self._meter.on_the_wire(sum(each), len(each))
            self._engine.record_bytes[tp.topic] = size / len(each)
            self._pacer.measured(tp, size, len(each))
            self._pacer.fetched(self._meter.count(size), len(each))

    def _throttled(self) -> float:
        """Return the seconds for which brokers throttle this client from now on, and count these seconds."""
        throttle = self._meter.take_throttle()
        self._pacer.throttled(throttle)
        return throttle

    def _wait_anew(self) -> None:
        """Begin the time limit for the next records; an error names a problem that came after this."""
        self._engine.last_problem = ""
        self._overdue_at = time.monotonic() + self._request.timeout_ms / 1000

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
            # The position is after transaction markers and compacted records, which are no messages.
            end = message.offset()
            if whole is not None and end is not None:
                if end >= whole.end:
                    self._finish(tp)
                else:
                    self._look_again[tp] = time.monotonic() + self._request.loss_patience
        elif whole is None:
            if error.fatal():
                raise from_confluent(error, "Reading failed")
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._out_of_range(whole)
        elif error.code() in _UNKNOWN:
            self._lost(whole, None)
        elif error.code() in (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG):
            raise CorruptRecordsError(topic=tp.topic, partition=tp.partition, offset=self._next[tp], reason=error.str())
        else:
            problem = from_confluent(error, f"Reading {tp.topic}-{tp.partition} at offset {self._next[tp]} failed")
            if error.fatal() or isinstance(problem, InvalidConfigurationError):
                raise problem
            # librdkafka repeats a read after any error, and the read has a time limit.
            self._engine.last_problem = str(problem)

    def _finish(self, tp: TopicPartition) -> None:
        del self._open[tp]
        if tp in self._unassigned:
            del self._unassigned[tp]
        elif self._open or self._pacer.enabled:
            # Unassign the partition immediately, before librdkafka sends its next fetch.
            self._consumer.incremental_unassign([Position(tp.topic, tp.partition)])

    def _watermarks(self, whole: Range) -> tuple[int, int]:
        """Return the first offset and the high watermark of a partition."""
        position = Position(whole.topic, whole.partition)
        try:
            low, high = self._consumer.get_watermark_offsets(position, timeout=self._request.timeout_ms / 1000)
        except KafkaException as error:
            raise from_confluent(error, f"Asking for the offsets of {whole.topic}-{whole.partition} failed") from error
        return low, self._engine.high_watermark(whole.topic_partition) if self._request.read_committed else high

    def _check_ends(self) -> None:
        """Check the ends of short logs a second time, because a new leader may have fewer offsets for a while."""
        self._ask_for_leaders()
        for tp in [tp for tp, when in self._look_again.items() if time.monotonic() >= when]:
            del self._look_again[tp]
            whole = self._open.get(tp)
            if whole is None:
                continue
            low, high = self._watermarks(whole)
            if high < whole.end:
                self._lost(whole, (low, high))
            elif tp in self._stopped:
                self._stopped.remove(tp)
                self._seek(tp, self._next[tp])

    def _ask_for_leaders(self) -> None:
        """Make librdkafka request metadata, because the broker with a short log may no longer be the leader.

        While the leader answers, librdkafka requests metadata only every five minutes.
        """
        if not self._look_again or time.monotonic() < self._ask_for_leaders_at:
            return
        for topic in {tp.topic for tp in self._look_again}:
            with contextlib.suppress(KafkaException):
                self._consumer.list_topics(topic, timeout=_LEADER_SECONDS)
        self._ask_for_leaders_at = time.monotonic() + _LEADER_SECONDS

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
        if self._next[tp] > high:
            # A leader may be behind for a while. librdkafka stops fetching the partition until a position is set again.
            self._stopped.add(tp)
            self._look_again[tp] = time.monotonic() + self._request.loss_patience
        elif self._next[tp] < low < whole.end:
            self._report_loss(whole, (low, high))
            self._seek(tp, low)
        elif self._next[tp] < low:
            self._lost(whole, (low, high))
        else:
            # The log has the offset again.
            self._seek(tp, self._next[tp])

    def _seek(self, tp: TopicPartition, offset: int) -> None:
        self._next[tp] = offset
        self._consumer.incremental_unassign([Position(tp.topic, tp.partition)])
        self._consumer.incremental_assign([Position(tp.topic, tp.partition, offset)])

    def _lost(self, whole: Range, available: tuple[int, int] | None, reason: str = "") -> None:
        self._report_loss(whole, available, reason)
        self._finish(whole.topic_partition)

    def _report_loss(self, whole: Range, available: tuple[int, int] | None, reason: str = "") -> None:
        tp, planned = whole.topic_partition, self._next[whole.topic_partition]
        error = DataLossError(
            topic=tp.topic, partition=tp.partition, planned=planned, available=available, reason=reason
        )
        if self._request.fail_on_data_loss:
            raise error
        log.warning("%s (failOnDataLoss is false: the task continues)", error)

    def _timed_out(self) -> RetriableError:
        where = ", ".join(f"{tp.topic}-{tp.partition} at offset {self._next[tp]}" for tp in list(self._open)[:5])
        problem = f"; the last problem was: {self._engine.last_problem}" if self._engine.last_problem else ""
        return RetriableError(
            f"No records came within {self._request.timeout_ms} ms (kafkaConsumer.pollTimeoutMs) for {where}{problem}"
        )


def _partition(message: Message) -> TopicPartition:
    number = message.partition()
    return TopicPartition(message.topic() or "", -1 if number is None else number)
