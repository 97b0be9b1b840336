"""The native engine: raw Fetch responses, decoded into Arrow by the Rust kernel while the next one is on its way."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import kafkagroup_native as kernel
import pyarrow as pa

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import (
    CorruptRecordsError,
    DataLossError,
    RetriableError,
    category,
    error_for_code,
)
from kafka_source.fetch import librdkafka, wire
from kafka_source.fetch.connection import FetchConnection, Wanted
from kafka_source.fetch.engine import FetchRequest
from kafka_source.kafka_client import ConnectionLost, Deadline, EventLoop, KafkaClient, Snapshot, delay
from kafka_source.kafka_client.messages import ListOffsetsRequest
from kafka_source.offsets import Range
from kafka_source.schema import arrow_schema

log = logging.getLogger(__name__)

MOST_FETCH_BYTES = 8 * 1024 * 1024
_LEAST_FETCH_BYTES = 64 * 1024
_UNKNOWN_RECORD_BYTES = 1024
_CONTROL_SECONDS = 30.0
_BACK_OFF = (0.05, 1.0)
_SETTLE_SECONDS = 10.0

_OFFSET_OUT_OF_RANGE = 1
_UNKNOWN_TOPIC_OR_PARTITION = 3
_UNKNOWN_TOPIC_ID = 100
_EARLIEST, _LATEST = -2, -1

_engines: dict[Settings, NativeEngine] = {}


def engine(settings: Settings) -> NativeEngine:
    """The engine of this process for these settings."""
    return _engines.setdefault(settings, NativeEngine(settings))


class NativeEngine:
    """Keeps connections, metadata and record sizes for the worker's next task.

    Args:
        settings: Of the Kafka clients.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._client_id = f"{settings.get('client.id') or 'kafkagroup'}-fetch"
        self._client: KafkaClient | None = None
        self._idle: dict[tuple[int, bool], FetchConnection] = {}
        self.cluster = Snapshot(None, {})
        self.record_bytes: dict[str, float] = {}

    def read(self, request: FetchRequest) -> Iterator[pa.RecordBatch]:
        """See `Engine.read`."""
        reading = _Reading(self, request)
        try:
            yield from reading.batches()
        finally:
            reading.give_back()

    def refresh(self, topics: set[str]) -> None:
        """Ask for the leaders of these topics anew."""
        self.cluster = self._control().run(self._control().metadata(topics, Deadline(_CONTROL_SECONDS)))

    def connection(self, node: int, *, read_committed: bool) -> FetchConnection:
        """A connection to a broker that is nobody else's until `keep`.

        Raises:
            ConnectionLost: It cannot be reached, or is not known.
        """
        kept = self._idle.pop((node, read_committed), None)
        if kept is not None and not kept.spent:
            return kept
        if kept is not None:
            kept.close()
        broker = self.cluster.brokers.get(node)
        if broker is None:
            raise ConnectionLost(f"broker {node} is not known.")
        raw = self._control().open_socket(broker.endpoint)
        return FetchConnection(raw, self.settings.get("client.rack") or "", read_committed=read_committed)

    def keep(self, node: int, connection: FetchConnection, *, read_committed: bool) -> None:
        """Take a connection back for the next task; one with an answer under way is closed."""
        if connection.waiting or (node, read_committed) in self._idle:
            connection.close()
        else:
            self._idle[(node, read_committed)] = connection

    def bounds(self, tp: TopicPartition, node: int) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last."""
        client = self._control()
        found = []
        for when in (_EARLIEST, _LATEST):
            partition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=tp.partition, current_leader_epoch=-1, timestamp=when
            )
            topic = ListOffsetsRequest.ListOffsetsTopic(name=tp.topic, partitions=[partition])
            request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
            answer = client.run(client.send(node, request, Deadline(_CONTROL_SECONDS), max_version=6))
            partition = answer.topics[0].partitions[0]
            if partition.error_code:
                raise error_for_code(
                    partition.error_code, f"Asking for the offsets of {tp.topic}-{tp.partition} failed"
                )
            found.append(partition.offset)
        return found[0], found[1]

    def _control(self) -> KafkaClient:
        if self._client is None:
            self._client = KafkaClient(self.settings, EventLoop.shared(), self._client_id)
        return self._client


@dataclass(slots=True)
class _Part:
    """A partition being read.

    Attributes:
        whole: Its range.
        asked: The offset that the next request asks for.
        node: The broker to ask; None: not known now.
        epoch: The leader's epoch, -1 where a follower is asked.
        stuck_since: When the log was first seen to end before the range does; None: it does not.
    """

    whole: Range
    asked: int
    node: int | None = None
    epoch: int = -1
    stuck_since: float | None = None

    @property
    def left(self) -> int:
        return self.whole.end - self.asked


class _Reading:
    """One request being read."""

    def __init__(self, engine: NativeEngine, request: FetchRequest) -> None:
        self._engine = engine
        self._request = request
        self._schema = arrow_schema(request.columns)
        self._parts = {r.topic_partition: _Part(r, r.start) for r in request.ranges if r.size > 0}
        self._topics = {tp.topic for tp in self._parts}
        self._connections: dict[int, FetchConnection] = {}
        self._builder = kernel.BatchBuilder(
            [(c.name, "string") if c.text else c.name for c in request.columns],
            batch_rows=request.batch_rows,
            batch_bytes=request.batch_bytes,
        )
        self._failures = 0
        self._problem = ""
        self._last_progress = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All records, in Arrow."""
        self._find_leaders(self._topics - set(self._engine.cluster.topics))
        while self._parts:
            self._send_requests()
            node = next((n for n, c in self._connections.items() if c.waiting), None)
            if node is None:
                self._wait_and_refresh()
                continue
            # Taken out and put back, so that brokers are heard in turn.
            connection = self._connections.pop(node)
            self._connections[node] = connection
            try:
                buffer, response = connection.receive()
            except ConnectionLost as lost:
                self._lost(node, lost)
                continue
            yield from self._take(node, buffer, response)
        if self._builder.num_rows:
            yield self._batch()

    def give_back(self) -> None:
        """Return the connections to the engine."""
        for node, connection in self._connections.items():
            self._engine.keep(node, connection, read_committed=self._request.read_committed)
        self._connections.clear()

    # ---- asking

    def _send_requests(self) -> None:
        by_node: dict[int, list[_Part]] = {}
        for part in self._parts.values():
            if part.node is not None and part.left > 0:
                by_node.setdefault(part.node, []).append(part)
        for node, parts in by_node.items():
            self._send(node, parts)

    def _send(self, node: int, parts: list[_Part]) -> None:
        try:
            connection = self._connections.get(node)
            if connection is None:
                connection = self._engine.connection(node, read_committed=self._request.read_committed)
                self._connections[node] = connection
            if not connection.waiting:
                sizes = [self._bytes_for(part) for part in parts]
                asked = [
                    Wanted(p.whole.topic, p.whole.partition, p.asked, p.epoch, size)
                    for p, size in zip(parts, sizes, strict=True)
                ]
                connection.send(asked, min(MOST_FETCH_BYTES, sum(sizes)))
        except ConnectionLost as lost:
            self._lost(node, lost)

    def _bytes_for(self, part: _Part) -> int:
        """What is left of a range in bytes, about: to ask for no more than is to be read."""
        each = self._engine.record_bytes.get(part.whole.topic, _UNKNOWN_RECORD_BYTES)
        return min(MOST_FETCH_BYTES, max(_LEAST_FETCH_BYTES, int(part.left * each * 1.1)))

    # ---- hearing

    def _take(self, node: int, buffer: bytearray, response: wire.Response) -> Iterator[pa.RecordBatch]:
        if response.error:
            raise error_for_code(response.error, "Fetching failed")
        sets = []
        for fetched in response.partitions:
            part = self._parts.get(TopicPartition(fetched.topic, fetched.partition))
            if part is None:
                continue
            if fetched.error:
                self._heed(part, fetched.error)
            elif fetched.preferred >= 0 and fetched.preferred != node and fetched.begin == fetched.end:
                part.node, part.epoch = fetched.preferred, -1
            else:
                sets.append((part, self._records(part, buffer, fetched)))
        # The next request leaves before the records of this response are decoded.
        self._send_requests()
        for part, records in sets:
            if records is not None:
                yield from self._decode(part, records)
        for tp in [tp for tp, part in self._parts.items() if part.left <= 0]:
            del self._parts[tp]

    def _records(self, part: _Part, buffer: bytearray, fetched: wire.Fetched) -> kernel.RecordSet | None:
        whole, begun = part.whole, part.asked
        part.asked = min(whole.end, wire.next_offset(buffer, fetched.begin, fetched.end, begun))
        if part.asked == begun:
            self._check_end(part, fetched)
            return None
        part.stuck_since = None
        self._failures, self._last_progress = 0, time.monotonic()
        got = max(1, part.asked - begun)
        self._engine.record_bytes[whole.topic] = (fetched.end - fetched.begin) / got
        return kernel.RecordSet(
            buffer,
            whole.topic,
            whole.partition,
            start=fetched.begin,
            end=fetched.end,
            from_offset=begun,
            to_offset=whole.end,
            aborted_transactions=fetched.aborted or None,
        )

    def _decode(self, part: _Part, records: kernel.RecordSet) -> Iterator[pa.RecordBatch]:
        whole = part.whole
        try:
            while self._builder.append(records):
                yield self._batch()
        except kernel.OldMessageFormat:
            log.info(
                "%s has records of an old format from offset %d on: librdkafka reads them", whole, records.next_offset
            )
            if self._builder.num_rows:
                yield self._batch()
            rest = Range(whole.topic, whole.partition, records.next_offset, whole.end)
            part.asked = whole.end
            yield from librdkafka.engine(self._engine.settings).read(replace(self._request, ranges=(rest,)))
        except kernel.RecordsError as error:
            raise CorruptRecordsError(
                topic=error.topic, partition=error.partition, offset=error.offset, reason=error.reason
            ) from None

    def _batch(self) -> pa.RecordBatch:
        batch = pa.record_batch(self._builder.take())
        return batch if batch.schema.equals(self._schema) else batch.cast(self._schema)

    # ---- trouble

    def _heed(self, part: _Part, code: int) -> None:
        tp = part.whole.topic_partition
        if code == _OFFSET_OUT_OF_RANGE:
            self._out_of_range(part)
        elif issubclass(category(code), RetriableError):
            self._problem = f"{tp.topic}-{tp.partition}: {error_for_code(code, 'the broker says')}"
            part.node = None
        else:
            raise error_for_code(code, f"Reading {tp.topic}-{tp.partition} at offset {part.asked} failed")

    def _out_of_range(self, part: _Part) -> None:
        tp = part.whole.topic_partition
        leader = self._engine.cluster.topics[tp.topic].partitions[tp.partition].leader
        if part.node != leader:
            # A follower may not have it yet.
            part.node = None
            return
        low, high = self._engine.bounds(tp, leader)
        if low <= part.asked <= high:
            return
        self._give_up(part, (low, high))
        if part.asked < low < part.whole.end:
            part.asked = low
        else:
            part.asked = part.whole.end

    def _check_end(self, part: _Part, fetched: wire.Fetched) -> None:
        """A response without a whole batch: the log may end before the range does, for a moment or for good."""
        if fetched.high_watermark >= part.whole.end or self._request.read_committed:
            part.stuck_since = None
            self._check_progress()
            return
        now = time.monotonic()
        part.stuck_since = part.stuck_since or now
        # After a change of leader the new one may know of fewer offsets for a while.
        if now - part.stuck_since > _SETTLE_SECONDS:
            self._give_up(part, (fetched.log_start, fetched.high_watermark))
            part.asked = part.whole.end

    def _give_up(self, part: _Part, available: tuple[int, int] | None) -> None:
        whole = part.whole
        error = DataLossError(topic=whole.topic, partition=whole.partition, planned=part.asked, available=available)
        if self._request.fail_on_data_loss:
            raise error
        log.warning("%s (failOnDataLoss is false: reading goes on)", error)

    def _lost(self, node: int, lost: ConnectionLost) -> None:
        self._problem = str(lost)
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()
        for part in self._parts.values():
            if part.node == node:
                part.node = None

    def _wait_and_refresh(self) -> None:
        """Nobody is being asked: some leaders are not known, or their brokers do not answer."""
        self._check_progress()
        time.sleep(delay(self._failures, *_BACK_OFF))
        self._failures += 1
        self._find_leaders(self._topics)

    def _find_leaders(self, stale: set[str]) -> None:
        if stale:
            self._engine.refresh(self._topics)
        for tp, part in list(self._parts.items()):
            topic = self._engine.cluster.topics.get(tp.topic)
            partition = topic.partitions.get(tp.partition) if topic is not None else None
            if partition is None:
                if self._failures * _BACK_OFF[0] < 1:
                    continue  # a broker that has just started may not know it yet
                self._give_up(part, None)
                del self._parts[tp]
            elif part.node is None and partition.leader >= 0:
                part.node, part.epoch = partition.leader, partition.leader_epoch

    def _check_progress(self) -> None:
        if (time.monotonic() - self._last_progress) * 1000 <= self._request.timeout_ms:
            return
        where = ", ".join(f"{p.whole.topic}-{p.whole.partition} at offset {p.asked}" for p in self._parts.values())
        problem = f"; the last problem was: {self._problem}" if self._problem else ""
        raise RetriableError(
            f"No records came within {self._request.timeout_ms} ms (kafkaConsumer.pollTimeoutMs) for {where}{problem}"
        )
