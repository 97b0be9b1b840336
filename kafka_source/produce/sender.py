"""Send a task's record batches (`Sender`): the choice of brokers, repetitions, time limits, a `send` that blocks.

At most one record batch of a partition is in flight; the next batch is sent when the broker has acknowledged it. So
batches stay in order even if some are sent again, and sequence numbers of an idempotent producer have no gap. A broker
gets one request at a time, with one batch for each of its partitions, while the next batches are encoded.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AbortableError, KafkaGroupError, RetriableError, category, code_name
from kafka_source.kafka_client import (
    TRANSACTION,
    ConnectionLost,
    Deadline,
    KafkaClient,
    check_coordinator,
    poll_readable,
    to_coordinator,
)
from kafka_source.kafka_client.messages.transaction import AddPartitionsToTxnRequest
from kafka_source.model.partition_runs import numbers_by_topic
from kafka_source.produce.accumulator import Accumulator, ProducerIdentity, RecordBatch
from kafka_source.produce.delivery_errors import delivery_error
from kafka_source.produce.native_producer import NativeProducer
from kafka_source.produce.protocol import ProduceConnection
from kafka_source.produce.records import Records
from kafka_source.produce.settings import ProducerSettings
from kafka_source.transactions.open_transaction import (
    FENCED_TIMEOUT_MS,
    MARKER_PAUSES,
    OpenTransaction,
    end,
    initialise,
)

MAX_REQUEST_BYTES = 8 * 1024 * 1024
MAX_QUEUED_BYTES = 16 * 1024 * 1024
MAX_PENDING_BYTES = 32 * 1024 * 1024
_MAX_WAIT = 1.0
_ABORT_SECONDS = 5.0
# The first version of the transaction protocol: see `transactions.open_transaction`.
_ADD_VERSION = 3


@dataclass(slots=True)
class _PartitionQueue:
    """The encoded batches of one partition that are not acknowledged yet.

    Attributes:
        tp: The partition.
        batches: The batches, and the starts of their delivery timeouts (`time.monotonic()`).
        leader: The node id of the partition's leader; None if unknown.
        in_flight: Whether the first batch is in flight.
        failures: Failed attempts since the last acknowledged batch.
        early: Attempts since the last acknowledged batch, while the coordinator was still changing the transaction.
        retry_at: Earliest time to look up the leader, or to send the first batch, again.
    """

    tp: TopicPartition
    batches: deque[tuple[RecordBatch, float]] = field(default_factory=deque)
    leader: int | None = None
    in_flight: bool = False
    failures: int = 0
    early: int = 0
    retry_at: float = 0.0


class Sender:
    """Sends the records of one task, from that task's thread.

    Args:
        producer: The worker's producer, which lends connections and metadata.
        settings: Settings of the producer.
        accumulator: Encodes the records.
        transaction: The transaction that the records belong to; None for no transaction.
    """

    def __init__(
        self,
        producer: NativeProducer,
        settings: ProducerSettings,
        accumulator: Accumulator,
        transaction: "TaskTransaction | None" = None,
    ) -> None:
        self._producer = producer
        self._settings = settings
        self._accumulator = accumulator
        self._transaction = transaction
        self._in_transaction: set[TopicPartition] = set()
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._connections: dict[int, ProduceConnection] = {}
        self._queued_bytes = 0
        # The topic id with which records were acknowledged, by topic.
        self._written: dict[str, UUID] = {}
        self._last_problem = ""
        self._left_at = self._filled_since = time.monotonic()

    def send(self, records: Records) -> None:
        """Encode records and send the batches that are full; block while too many bytes are queued.

        Raises:
            DeliveryError: A record was not or cannot be delivered.
            AuthenticationError: The brokers refuse the credentials.
        """
        self._resume()
        for topic, of_topic in records.by_topic():
            self._accumulator.add(topic, self._partition_count(topic, of_topic.last_partition()), of_topic)
        self._enqueue(everything=self._should_send_partial_batches())
        self._poll(wait=False)
        while self._queued_bytes > MAX_QUEUED_BYTES:
            self._poll(wait=True)
        self._left_at = time.monotonic()

    def flush(self) -> None:
        """Send all records and wait until they are acknowledged; errors as in `send`."""
        self._resume()
        self._enqueue(everything=True)
        while self._queued_bytes:
            self._poll(wait=True)

    def release_connections(self) -> None:
        """Give the connections back to the producer, which closes a connection that still expects a response."""
        for node, connection in self._connections.items():
            self._producer.keep(node, connection)
        self._connections.clear()

    # ---- queues

    def _resume(self) -> None:
        """Extend the delivery timeouts by the time since the last call, because nothing was sent or received since.

        The rows come from Spark, perhaps slowly, and the sender has no thread of its own.
        """
        self._extend_timeouts(time.monotonic() - self._left_at, self._queues.values())

    def _extend_timeouts(self, seconds: float, queues: Iterable[_PartitionQueue]) -> None:
        for queue in queues:
            queue.batches = deque((batch, since + seconds) for batch, since in queue.batches)

    def _should_send_partial_batches(self) -> bool:
        """Return whether partial batches have waited for `linger.ms`, or take too much memory."""
        waited = time.monotonic() - self._filled_since
        # While other batches wait for a broker, partial batches can fill up at no cost.
        return self._accumulator.pending_bytes > MAX_PENDING_BYTES or (
            not self._queued_bytes and waited >= self._settings.linger
        )

    def _enqueue(self, *, everything: bool) -> None:
        now = time.monotonic()
        if everything:
            self._filled_since = now
        for batch in self._accumulator.take(everything=everything):
            queue = self._queues.get(batch.tp)
            if queue is None:
                queue = self._queues[batch.tp] = _PartitionQueue(batch.tp, leader=self._leader(batch.tp))
            queue.batches.append((batch, now))
            self._queued_bytes += len(batch.data)

    def _partition_count(self, topic: str, last: int) -> int:
        """Return a topic's number of partitions; wait until it exists, and look it up again for an unknown `last`."""
        known = self._producer.cluster.topics.get(topic)
        # A topic may be missing from a metadata response while its leaders change, and a partition may have been added.
        # Java's producer retries for `max.block.ms`; one request is enough if a broker knows the partition.
        if known is None or self._producer.is_stale(topic) or last >= len(known.partitions):
            self._find_topic(topic)
        return len(self._producer.cluster.topics[topic].partitions)

    def _find_topic(self, topic: str) -> None:
        give_up_at = time.monotonic() + min(self._settings.unknown_topic_timeout, self._settings.delivery_timeout)
        for pause in self._settings.retry.pauses():
            try:
                self._producer.refresh({topic}, self._settings.delivery_timeout)
            except RetriableError as problem:
                raise delivery_error(ErrorCode.LOCAL_MSG_TIMED_OUT, topic, None, str(problem)) from problem
            if topic in self._producer.cluster.refused:
                raise delivery_error(self._producer.cluster.refused[topic], topic, None)
            if topic in self._producer.cluster.topics:
                return
            if time.monotonic() + pause > give_up_at:
                raise delivery_error(ErrorCode.LOCAL_UNKNOWN_TOPIC, topic, None)
            time.sleep(pause)

    # ---- requests

    def _poll(self, *, wait: bool) -> None:
        """Send all batches that can be sent, and handle all received responses; with `wait`, wait for a response."""
        self._find_leaders()
        self._send_requests()
        if self._receive(wait=wait):
            self._send_requests()
        self._check_delivery_timeout()

    def _find_leaders(self) -> None:
        now = time.monotonic()
        leaderless = [queue for queue in self._queues.values() if queue.batches and queue.leader is None]
        if not any(queue.retry_at <= now for queue in leaderless):
            return
        try:
            self._producer.refresh(
                {queue.tp.topic for queue in leaderless}, min(self._settings.request_timeout, self._time_left())
            )
        except RetriableError as problem:
            self._last_problem = str(problem)
        for queue in leaderless:
            queue.leader = self._leader(queue.tp)
            if queue.leader is None:
                self._back_off(queue)

    def _leader(self, tp: TopicPartition) -> int | None:
        topic = self._producer.cluster.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is None or partition.leader not in self._producer.cluster.brokers:
            return None
        return partition.leader

    def _send_requests(self) -> None:
        now = time.monotonic()
        by_node: dict[int, list[_PartitionQueue]] = {}
        for queue in self._queues.values():
            if queue.batches and queue.leader is not None and not queue.in_flight and queue.retry_at <= now:
                by_node.setdefault(queue.leader, []).append(queue)
        for node, queues in by_node.items():
            try:
                self._send_request(node, queues)
            except ConnectionLost as lost:
                self._on_connection_lost(node, lost)

    def _send_request(self, node: int, queues: list[_PartitionQueue]) -> None:
        connection = self._connections.get(node)
        if connection is not None and connection.busy:
            return
        if connection is not None and connection.expiring:
            self._connections.pop(node).close()
            connection = None
        if connection is None:
            connection = self._connections[node] = self._producer.connection(node, self._time_left())
            if connection.busy:
                return
        queues = _of_one_request(sorted(queues, key=lambda queue: queue.batches[0][1]))
        topic_ids = self._topic_ids({queue.tp.topic for queue in queues})
        self._add_to_transaction(queues)
        for queue in queues:
            queue.in_flight = True
        connection.send(
            [queue.batches[0][0] for queue in queues],
            None if self._transaction is None else self._transaction.opened,
            topic_ids,
        )

    def _topic_ids(self, topics: Iterable[str]) -> dict[str, UUID]:
        """Return the known ids of topics.

        Raises:
            DeliveryError: A topic was created again after a part of the records was acknowledged. This part is lost
                with the old topic, and the rest would go to the new topic.
        """
        cluster = self._producer.cluster.topics
        ids = {name: cluster[name].topic_id for name in topics if name in cluster}
        found = {name: topic_id for name, topic_id in ids.items() if topic_id is not None}
        for name, topic_id in found.items():
            if self._written.get(name, topic_id) != topic_id:
                reason = "the topic was deleted and created again, and earlier records are lost with the old topic"
                raise delivery_error(ErrorCode.UNKNOWN_TOPIC_ID, name, None, reason)
        return found

    def _add_to_transaction(self, queues: list[_PartitionQueue]) -> None:
        if self._transaction is None or all(queue.tp in self._in_transaction for queue in queues):
            return
        if self._transaction.opened.second_protocol and len({queue.leader for queue in self._queues.values()}) == 1:
            # In this protocol the leader requests to add its partitions to the transaction. Requests of several leaders
            # would wait for each other, longer than one AddPartitionsToTxn request takes.
            return
        # Add all known partitions, in one request.
        new = self._queues.keys() - self._in_transaction
        self._transaction.add(new, self._settings.delivery_timeout)
        self._in_transaction |= new

    # ---- responses

    def _receive(self, *, wait: bool) -> bool:
        """Handle all received responses; return whether a response was received."""
        now = time.monotonic()
        retries = (queue.retry_at for queue in self._queues.values() if queue.batches and queue.retry_at > now)
        ready = poll_readable(self._connections.values(), min([now + _MAX_WAIT, *retries]) if wait else now)
        received = False
        for node, connection in list(self._connections.items()):
            if not connection.waiting:
                continue
            try:
                if connection.fileno() in ready:
                    self._handle_response(node, connection)
                    received = True
                elif time.monotonic() >= connection.overdue_at:
                    raise connection.lost("no answer came in time")
            except ConnectionLost as lost:
                self._on_connection_lost(node, lost)
        return received

    def _handle_response(self, node: int, connection: ProduceConnection) -> None:
        response = connection.receive()
        results = {result.tp: result for result in response.partitions}
        if response.throttle_ms:
            of_node = [queue for queue in self._queues.values() if queue.leader == node]
            self._extend_timeouts(response.throttle_ms / 1000, of_node)
        for batch in connection.batches:
            queue, result = self._queues[batch.tp], results.get(batch.tp)
            queue.in_flight = False
            if result is None:
                raise connection.lost(f"its response does not name {_name(batch.tp)}")
            if result.error in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                queue.batches.popleft()
                queue.failures = queue.early = 0
                self._queued_bytes -= len(batch.data)
                if batch.tp.topic in connection.topic_ids:
                    self._written[batch.tp.topic] = connection.topic_ids[batch.tp.topic]
                continue
            if result.error == ErrorCode.MESSAGE_TOO_LARGE and batch.records > 1:
                self._split(queue)
                continue
            if not issubclass(category(result.error), RetriableError):
                raise delivery_error(result.error, batch.tp.topic, batch.tp.partition, result.message)
            self._last_problem = f"{_name(batch.tp)}: {code_name(result.error)} {result.message}".strip()
            if result.error == ErrorCode.CONCURRENT_TRANSACTIONS:
                # Leader and size are right, but the coordinator is still changing the transaction.
                queue.retry_at = time.monotonic() + MARKER_PAUSES.pause(queue.early)
                queue.early += 1
                continue
            queue.leader = None
            self._back_off(queue)

    def _split(self, queue: _PartitionQueue) -> None:
        """Split the first batch into two, because the topic accepts only smaller batches (as Java's `split`).

        The sender does not know the topic's limit, because describing a topic's configuration needs another permission.
        """
        batch, since = queue.batches.popleft()
        halves = self._accumulator.split(batch)
        queue.batches.extendleft((half, since) for half in reversed(halves))
        self._queued_bytes += sum(len(half.data) for half in halves) - len(batch.data)

    def _on_connection_lost(self, node: int, problem: ConnectionLost) -> None:
        """Send the batches in flight again with the same sequence numbers, because they may or may not be written."""
        self._last_problem = str(problem)
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()
        for queue in self._queues.values():
            if queue.leader == node:
                queue.leader, queue.in_flight = None, False
                self._back_off(queue)

    def _back_off(self, queue: _PartitionQueue) -> None:
        queue.retry_at = time.monotonic() + self._settings.retry.pause(queue.failures)
        queue.failures += 1

    def _time_left(self) -> float:
        """Return the seconds within which the oldest batch has to be acknowledged."""
        oldest = min(queue.batches[0][1] for queue in self._queues.values() if queue.batches)
        return max(0.0, oldest + self._settings.delivery_timeout - time.monotonic())

    def _check_delivery_timeout(self) -> None:
        oldest = time.monotonic() - self._settings.delivery_timeout
        for queue in self._queues.values():
            if queue.batches and queue.batches[0][1] < oldest:
                problem = f"not acknowledged within {self._settings.delivery_timeout:.0f} s"
                reason = f"{problem} ({self._last_problem})" if self._last_problem else problem
                raise delivery_error(ErrorCode.LOCAL_MSG_TIMED_OUT, queue.tp.topic, queue.tp.partition, reason)


def _of_one_request(queues: list[_PartitionQueue]) -> list[_PartitionQueue]:
    """Return the queues that fit into one request, at least one.

    A queue whose last request failed is sent alone, because that request may have been too large.
    """
    if queues[0].failures:
        return queues[:1]
    total = 0
    for count, queue in enumerate(queues):
        total += len(queue.batches[0][0].data)
        if total > MAX_REQUEST_BYTES and count:
            return queues[:count]
    return queues


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


class TaskTransaction:
    """The transaction that a sender's records belong to.

    Args:
        client: Client of the cluster that the sink writes to.
        transaction: From `initialise`.

    Attributes:
        opened: The transaction.
        identity: The producer id and epoch in its record batches.
    """

    def __init__(self, client: KafkaClient, transaction: OpenTransaction) -> None:
        self.opened = transaction
        self.identity = ProducerIdentity(transaction.producer_id, transaction.epoch, transactional=True)
        self._client = client

    def add(self, partitions: set[TopicPartition], seconds: float) -> None:
        """Add partitions to the transaction, before the first record is sent to them (AddPartitionsToTxn).

        Raises:
            FencedError: Another process has initialised the transactional id.
            AbortableError: The coordinator has not answered in time.
            KafkaGroupError: The coordinator refuses a partition.
        """
        try:
            self._client.run(self._add(partitions, Deadline(seconds)))
        except RetriableError as error:
            # KIP-1050: if a request was retried until its time limit, its transaction is aborted.
            raise AbortableError(str(error), code=error.code) from error

    def abort(self) -> None:
        """Abort the transaction, or leave the abort to the next initialisation of the transactional id."""
        with contextlib.suppress(KafkaGroupError):
            self._client.run(self._give_up(Deadline(_ABORT_SECONDS)))

    async def _give_up(self, deadline: Deadline) -> None:
        # Another attempt may have taken the id since. InitProducerId alone would abort that attempt's transaction,
        # while EndTxn is refused if the id has another epoch.
        try:
            await end(self._client, self.opened, commit=False, deadline=deadline)
        except KafkaGroupError as error:
            if error.code != ErrorCode.INVALID_TXN_STATE:  # The transaction has no partition yet.
                raise
        if not self.opened.second_protocol:
            # In the first protocol EndTxn keeps the epoch, so a late request would open a transaction again. This also
            # shows later attempts that the id is free.
            name = self.opened.transactional_id
            await initialise(self._client, name, FENCED_TIMEOUT_MS, deadline, ended=self.opened)

    async def _add(self, partitions: set[TopicPartition], deadline: Deadline) -> None:
        name = self.opened.transactional_id
        by_topic = numbers_by_topic(sorted(partitions))
        topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[topic_type(name=topic, partitions=found) for topic, found in by_topic.items()],
        )

        async def ask() -> None:
            answer = await to_coordinator(self._client, TRANSACTION, name, request, deadline, _ADD_VERSION)
            refused = [
                (partition.partition_error_code, f"{topic.name}-{partition.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
                if partition.partition_error_code
            ]
            # If one partition is refused, the others are "not attempted". Report the refusal.
            for code, where in sorted(refused, key=lambda one: one[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                check_coordinator(
                    self._client, TRANSACTION, name, code, f"Adding {where} to the transaction of {name} failed"
                )

        await self._client.retrying(ask, deadline)
