"""One task's records on their way to the brokers: whom to send what, what the answers mean, and when to give up.

A partition has one record batch under way at most: its next one leaves when the broker has taken the one before. So
batches stay in order whatever is sent again, and an idempotent producer's numbers leave no gap. A broker gets one
request at a time, with a batch for each of its partitions; meanwhile the next ones are encoded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.error_codes import (
    DUPLICATE_SEQUENCE_NUMBER,
    LOCAL_MSG_TIMED_OUT,
    LOCAL_UNKNOWN_TOPIC,
    MESSAGE_TOO_LARGE,
)
from kafka_source.errors import RetriableError, category, code_name
from kafka_source.kafka_client import ConnectionLost, Snapshot, answering
from kafka_source.sink.produce.accumulator import Accumulator, RecordBatch
from kafka_source.sink.produce.connection import ProduceConnection
from kafka_source.sink.produce.delivery_errors import delivery_error
from kafka_source.sink.produce.producer_settings import ProducerSettings
from kafka_source.sink.records import Records

MOST_REQUEST_BYTES = 8 * 1024 * 1024
MOST_QUEUED_BYTES = 16 * 1024 * 1024
MOST_PENDING_BYTES = 32 * 1024 * 1024
_LONGEST_WAIT = 1.0


class ProduceConnections(Protocol):
    """What a sender needs of its producer; see `NativeProducer`."""

    cluster: Snapshot

    def refresh(self, topics: Iterable[str], seconds: float) -> None: ...  # noqa: D102
    def is_stale(self, topic: str) -> bool: ...  # noqa: D102
    def connection(self, node: int) -> ProduceConnection: ...  # noqa: D102
    def keep(self, node: int, connection: ProduceConnection) -> None: ...  # noqa: D102


class ProducerTransaction(Protocol):
    """What a sender needs of the transaction that its records are in; see `TaskTransaction`."""

    transactional_id: str

    def add(self, partitions: set[TopicPartition], seconds: float) -> None: ...  # noqa: D102


@dataclass(slots=True)
class _Lane:
    """A partition's batches.

    Attributes:
        tp: The partition.
        batches: With the time at which each was ended; the first may be under way.
        node: Its leader; None: not known now.
        under_way: Whether the first batch is.
        failures: How often it was not taken since one was.
        again_at: Not before this time is its leader looked for, or its first batch sent again.
    """

    tp: TopicPartition
    batches: deque[tuple[RecordBatch, float]] = field(default_factory=deque)
    node: int | None = None
    under_way: bool = False
    failures: int = 0
    again_at: float = 0.0


class Sender:
    """Made for each task.

    Args:
        brokers: Lends connections and metadata.
        settings: Of the producer.
        accumulator: Encodes.
        transaction: What the records are a part of; None: nothing.
    """

    def __init__(
        self,
        brokers: ProduceConnections,
        settings: ProducerSettings,
        accumulator: Accumulator,
        transaction: ProducerTransaction | None = None,
    ) -> None:
        self._brokers = brokers
        self._settings = settings
        self._accumulator = accumulator
        self._transaction = transaction
        self._added: set[TopicPartition] = set()
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._connections: dict[int, ProduceConnection] = {}
        self._queued = 0
        self._problem = ""
        self._left_at = self._filled_since = time.monotonic()

    def send(self, records: Records) -> None:
        """Encode records, and send what makes a full batch; waits while too much is on its way.

        Raises:
            DeliveryError: A record was not delivered, or cannot be.
            AuthenticationError: The brokers refuse the credentials.
        """
        self._enter()
        for topic, mine in records.by_topic():
            self._accumulator.add(topic, self._partitions(topic), mine)
        self._queue(everything=self._is_to_go())
        self._go_on(wait=False)
        while self._queued > MOST_QUEUED_BYTES:
            self._go_on(wait=True)
        self._left_at = time.monotonic()

    def flush(self) -> None:
        """Send everything and wait until it is acknowledged; errors as of `send`."""
        self._enter()
        self._queue(everything=True)
        while self._queued:
            self._go_on(wait=True)

    def give_back(self) -> None:
        """Return the connections; those with an answer under way are closed."""
        for node, connection in self._connections.items():
            self._brokers.keep(node, connection)
        self._connections.clear()

    # ---- what is to be sent

    def _enter(self) -> None:
        """Who gives the records may be slow: meanwhile nobody listened to the brokers."""
        self._excuse(time.monotonic() - self._left_at, self._lanes.values())

    def _excuse(self, seconds: float, lanes: Iterable[_Lane]) -> None:
        """Time passed in which nobody could take their batches."""
        for lane in lanes:
            lane.batches = deque((batch, since + seconds) for batch, since in lane.batches)

    def _is_to_go(self) -> bool:
        """Whether batches that are not full have waited for long enough, or take too much memory."""
        waited = time.monotonic() - self._filled_since
        # While others wait to be sent these may get fuller.
        return self._accumulator.pending_bytes > MOST_PENDING_BYTES or (
            not self._queued and waited >= self._settings.linger
        )

    def _queue(self, *, everything: bool) -> None:
        now = time.monotonic()
        if everything:
            self._filled_since = now
        for batch in self._accumulator.take(everything=everything):
            lane = self._lanes.get(batch.tp)
            if lane is None:
                lane = self._lanes[batch.tp] = _Lane(batch.tp, node=self._leader(batch.tp))
            lane.batches.append((batch, now))
            self._queued += len(batch.data)

    def _partitions(self, topic: str) -> int:
        """How many a topic has; asks until it is there."""
        # It may be missing from an answer while its leaders change.
        if self._brokers.is_stale(topic) or topic not in self._brokers.cluster.topics:
            self._find_topic(topic)
        return len(self._brokers.cluster.topics[topic].partitions)

    def _find_topic(self, topic: str) -> None:
        give_up_at = time.monotonic() + min(self._settings.unknown_topic_timeout, self._settings.delivery_timeout)
        for pause in self._settings.retry.pauses():
            try:
                self._brokers.refresh({topic}, self._settings.delivery_timeout)
            except RetriableError as problem:
                raise delivery_error(LOCAL_MSG_TIMED_OUT, topic, None, str(problem)) from problem
            if topic in self._brokers.cluster.refused:
                raise delivery_error(self._brokers.cluster.refused[topic], topic, None)
            if topic in self._brokers.cluster.topics:
                return
            if time.monotonic() + pause > give_up_at:
                raise delivery_error(LOCAL_UNKNOWN_TOPIC, topic, None)
            time.sleep(pause)

    # ---- sender

    def _go_on(self, *, wait: bool) -> None:
        self._find_leaders()
        self._send_requests()
        if self._hear(wait=wait):
            self._send_requests()
        self._check_time()

    def _find_leaders(self) -> None:
        now = time.monotonic()
        homeless = [lane for lane in self._lanes.values() if lane.batches and lane.node is None]
        if not any(lane.again_at <= now for lane in homeless):
            return
        try:
            self._brokers.refresh({lane.tp.topic for lane in homeless}, self._settings.request_timeout)
        except RetriableError as problem:
            self._problem = str(problem)
        for lane in homeless:
            lane.node = self._leader(lane.tp)
            if lane.node is None:
                self._put_off(lane)

    def _leader(self, tp: TopicPartition) -> int | None:
        topic = self._brokers.cluster.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None or partition.leader not in self._brokers.cluster.brokers:
            return None
        return partition.leader

    def _send_requests(self) -> None:
        now = time.monotonic()
        by_node: dict[int, list[_Lane]] = {}
        for lane in self._lanes.values():
            if lane.batches and lane.node is not None and not lane.under_way and lane.again_at <= now:
                by_node.setdefault(lane.node, []).append(lane)
        for node, lanes in by_node.items():
            try:
                self._send(node, lanes)
            except ConnectionLost as lost:
                self._lost(node, lost)

    def _send(self, node: int, lanes: list[_Lane]) -> None:
        connection = self._connections.get(node)
        if connection is not None and connection.busy:
            return
        if connection is not None and connection.spent:
            self._connections.pop(node).close()
            connection = None
        if connection is None:
            connection = self._connections[node] = self._brokers.connection(node)
            if connection.busy:
                return
        lanes = _fitting(sorted(lanes, key=lambda lane: lane.batches[0][1]))
        self._add_to_transaction(lanes)
        for lane in lanes:
            lane.under_way = True
        connection.send(
            [lane.batches[0][0] for lane in lanes],
            None if self._transaction is None else self._transaction.transactional_id,
        )

    def _add_to_transaction(self, lanes: list[_Lane]) -> None:
        if self._transaction is None:
            return
        if all(lane.tp in self._added for lane in lanes):
            return
        # All that is known of, so that there is one request and not many.
        new = self._lanes.keys() - self._added
        self._transaction.add(new, self._settings.delivery_timeout)
        self._added |= new

    # ---- hearing

    def _hear(self, *, wait: bool) -> bool:
        """Whether an answer has come."""
        now = time.monotonic()
        put_off = (lane.again_at for lane in self._lanes.values() if lane.batches and lane.again_at > now)
        ready = answering(self._connections.values(), min([now + _LONGEST_WAIT, *put_off]) if wait else now)
        heard = False
        for node, connection in list(self._connections.items()):
            if not connection.waiting:
                continue
            try:
                if connection.fileno() in ready:
                    self._take(node, connection)
                    heard = True
                elif time.monotonic() > connection.overdue_at:
                    raise connection.lost("no answer came in time")
            except ConnectionLost as lost:
                self._lost(node, lost)
        return heard

    def _take(self, node: int, connection: ProduceConnection) -> None:
        response = connection.receive()
        answers = {answer.tp: answer for answer in response.answers}
        if response.throttle_ms:
            self._excuse(response.throttle_ms / 1000, [lane for lane in self._lanes.values() if lane.node == node])
        for batch in connection.batches:
            lane, answer = self._lanes[batch.tp], answers.get(batch.tp)
            lane.under_way = False
            if answer is None:
                raise connection.lost(f"it did not say what became of {_name(batch.tp)}")
            if answer.error in (0, DUPLICATE_SEQUENCE_NUMBER):
                lane.batches.popleft()
                lane.failures = 0
                self._queued -= len(batch.data)
                continue
            if answer.error == MESSAGE_TOO_LARGE and batch.records > 1:
                self._split(lane)
                continue
            if not issubclass(category(answer.error), RetriableError):
                raise delivery_error(answer.error, batch.tp.topic, batch.tp.partition, answer.message)
            self._problem = f"{_name(batch.tp)}: {code_name(answer.error)} {answer.message}".strip()
            lane.node = None
            self._put_off(lane)

    def _split(self, lane: _Lane) -> None:
        """The topic takes smaller batches only (`ProducerBatch.split`); its limit is for those who may describe it."""
        batch, since = lane.batches.popleft()
        halves = self._accumulator.split(batch)
        lane.batches.extendleft((half, since) for half in reversed(halves))
        self._queued += sum(len(half.data) for half in halves) - len(batch.data)

    def _lost(self, node: int, problem: ConnectionLost) -> None:
        """What was under way there may have been written or not: it is sent again, under the same number."""
        self._problem = str(problem)
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()
        for lane in self._lanes.values():
            if lane.node == node:
                lane.node, lane.under_way = None, False
                self._put_off(lane)

    def _put_off(self, lane: _Lane) -> None:
        lane.again_at = time.monotonic() + self._settings.retry.pause(lane.failures)
        lane.failures += 1

    def _check_time(self) -> None:
        before = time.monotonic() - self._settings.delivery_timeout
        for lane in self._lanes.values():
            if lane.batches and lane.batches[0][1] < before:
                problem = f"nobody took it for {self._settings.delivery_timeout:.0f} s"
                reason = f"{problem} ({self._problem})" if self._problem else problem
                raise delivery_error(LOCAL_MSG_TIMED_OUT, lane.tp.topic, lane.tp.partition, reason)


def _fitting(lanes: list[_Lane]) -> list[_Lane]:
    """As many as one request may hold, one at least; one alone if it has failed, for the request may be too large."""
    if lanes[0].failures:
        return lanes[:1]
    total = 0
    for count, lane in enumerate(lanes):
        total += len(lane.batches[0][0].data)
        if total > MOST_REQUEST_BYTES and count:
            return lanes[:count]
    return lanes


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
