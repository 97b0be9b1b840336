"""The native engine's producers: what a worker keeps of them between its tasks, and a task's transaction."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import replace

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError, RetriableError, error_for_code
from kafka_source.kafka_client import (
    TRANSACTION,
    ConnectionLost,
    Deadline,
    KafkaClient,
    RawConnection,
    Snapshot,
    check_coordinator,
    kept_client,
    to_coordinator,
)
from kafka_source.kafka_client.messages import AddPartitionsToTxnRequest, InitProducerIdRequest
from kafka_source.per_process import PerProcess
from kafka_source.quota.settings import DEFAULT_CLIENT_ID
from kafka_source.sink.not_delivered import not_delivered
from kafka_source.sink.offsets_transaction import initialise
from kafka_source.sink.ongoing import OpenTransaction
from kafka_source.sink.outbox import NOBODY, Outbox, ProducerIdentity
from kafka_source.sink.produce_connection import ProduceConnection
from kafka_source.sink.producer_settings import ProducerSettings
from kafka_source.sink.records import Records
from kafka_source.sink.sending import Sending
from kafka_source.sink.timeout import transaction_timeout_ms

_CONTROL_SECONDS = 60.0
_TIMED_OUT = -192
_NOT_ATTEMPTED = 55
_ABORT_SECONDS = 5.0
# As for all of a transaction's requests, the first version of the protocol: see `ongoing.end`.
_ADD_VERSION = 3
_INIT_VERSION = 4


class NativeProducer:
    """Keeps connections, metadata and an identity for the worker's next task.

    Args:
        settings: Of the Kafka clients.

    Attributes:
        settings: Of the producer.
        cluster: Leaders and brokers as last seen.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = ProducerSettings.of(settings)
        self.cluster = Snapshot(None, {})
        self._client_settings = settings
        self._seen: dict[str, float] = {}
        self._idle: dict[int, ProduceConnection] = {}
        self._outbox: Outbox | None = None

    @property
    def client(self) -> KafkaClient:
        """For questions and transactions."""
        return kept_client(self._client_settings)

    def is_stale(self, topic: str) -> bool:
        """Whether the topic is not known, or was asked for long ago: it may have more partitions by now."""
        seen = self._seen.get(topic)
        return seen is None or time.monotonic() - seen > self.settings.metadata_age

    def refresh(self, topics: Iterable[str], seconds: float) -> None:
        """Ask for the leaders of these topics anew.

        Raises:
            RetriableError: Nobody answers in time.
            AuthenticationError: The brokers refuse us.
        """
        wanted, client = set(topics), self.client
        seen = client.run(client.metadata(wanted, Deadline(seconds), create=True))
        others = {name: topic for name, topic in self.cluster.topics.items() if name not in wanted}
        self.cluster = replace(seen, topics={**others, **seen.topics})
        self._seen |= dict.fromkeys(seen.topics, time.monotonic())

    def connection(self, node: int) -> ProduceConnection:
        """A connection to a broker that is nobody else's until `keep`.

        Raises:
            ConnectionLost: It cannot be reached, or is not known.
        """
        kept = self._idle.pop(node, None)
        if kept is not None and not kept.spent:
            return kept
        if kept is not None:
            kept.close()
        broker = self.cluster.brokers.get(node)
        if broker is None:
            raise ConnectionLost(f"Broker {node} is not in the cluster's metadata: it is down.")
        # The brokers' quotas of `client.id` are the producers'; the driver's questions have another.
        client_id = self._client_settings.get("client.id") or DEFAULT_CLIENT_ID
        raw = RawConnection.open(broker.endpoint, replace(self.client.settings, client_id=client_id))
        return ProduceConnection(raw, acks=self.settings.acks, timeout=self.settings.request_timeout)

    def keep(self, node: int, connection: ProduceConnection) -> None:
        """Take a connection back for the next task; one with an answer under way is closed."""
        if connection.waiting or node in self._idle:
            connection.close()
        else:
            self._idle[node] = connection

    def take_outbox(self) -> Outbox:
        """An outbox that nobody else fills until `keep_outbox`, with an identity of its own where it is to have one.

        Raises:
            KafkaGroupError: The brokers give none.
        """
        outbox, self._outbox = self._outbox, None
        if outbox is None:
            identity = self._new_identity() if self.settings.idempotent else NOBODY
            outbox = Outbox(self.settings, identity)
        return outbox

    def keep_outbox(self, outbox: Outbox) -> None:
        """Take an outbox back, all of whose records are acknowledged."""
        self._outbox = outbox

    def _new_identity(self) -> ProducerIdentity:
        client, deadline = self.client, Deadline(min(_CONTROL_SECONDS, self.settings.delivery_timeout))

        async def ask() -> ProducerIdentity:
            connection = await client.any_connection(deadline)
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            answer = await connection.send(request, deadline.left, _INIT_VERSION)
            if answer.error_code:
                raise error_for_code(answer.error_code, "Asking for a producer id failed")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return client.run(client.retrying(ask, deadline))


def at_least_once(settings: Settings) -> NativeDelivery:
    """See `Delivery`."""
    return NativeDelivery(_producers.of(settings))


def in_transaction(settings: Settings, transactional_id: str) -> NativeTransactionalDelivery:
    """See `TransactionalDelivery`.

    Raises:
        KafkaGroupError: The transactional id could not be initialised.
    """
    return NativeTransactionalDelivery(_producers.of(settings), settings, transactional_id)


class NativeDelivery:
    """Records of one task, at least once.

    Args:
        brokers: The worker's producer.
    """

    def __init__(self, brokers: NativeProducer) -> None:
        self._brokers = brokers
        self._outbox: Outbox | None = None
        self._sending: Sending | None = None

    def send(self, records: Records) -> None:
        """See `Delivery`."""
        if not len(records):
            return
        if self._sending is None:
            try:
                self._outbox = self._brokers.take_outbox()
            except RetriableError as problem:
                raise not_delivered(_TIMED_OUT, next(records.by_topic())[0], None, str(problem)) from problem
            self._sending = Sending(self._brokers, self._brokers.settings, self._outbox)
        self._sending.send(records)

    def flush(self) -> None:
        """See `Delivery`."""
        if self._sending is not None:
            self._sending.flush()

    def keep(self) -> None:
        """See `Delivery`."""
        if self._sending is not None and self._outbox is not None:
            self._sending.give_back()
            self._brokers.keep_outbox(self._outbox)

    def drop(self) -> None:
        """See `Delivery`: whatever is under way may be written, but nothing more is sent under this identity."""
        if self._sending is not None:
            self._sending.give_back()


class TaskTransaction:
    """A transaction of one task that the driver ends.

    Args:
        client: Of the cluster.
        transaction: From `initialise`.
        timeout_ms: After so long the coordinator aborts it.
    """

    def __init__(self, client: KafkaClient, transaction: OpenTransaction, timeout_ms: int) -> None:
        self.transactional_id = transaction.transactional_id
        self.identity = ProducerIdentity(transaction.producer_id, transaction.epoch, transactional=True)
        self._client = client
        self._transaction = transaction
        self._timeout_ms = timeout_ms

    def add(self, partitions: set[TopicPartition], seconds: float) -> None:
        """Tell the coordinator that the transaction writes to these partitions.

        Raises:
            FencedError: Another process uses the transactional id.
            KafkaGroupError: The coordinator refuses, or does not answer in time.
        """
        self._client.run(self._add(partitions, Deadline(seconds)))

    def abort(self) -> None:
        """Give up; what cannot be aborted now the next initialisation of this id aborts."""
        # By a new epoch and not by EndTxn: a request that is still under way would open the transaction again.
        with contextlib.suppress(KafkaGroupError):
            given_up = initialise(
                self._client,
                self.transactional_id,
                self._timeout_ms,
                Deadline(_ABORT_SECONDS),
                ended=self._transaction,
            )
            self._client.run(given_up)

    async def _add(self, partitions: set[TopicPartition], deadline: Deadline) -> None:
        name = self.transactional_id
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
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
            # If one is refused the others are not attempted: that is no reason.
            for code, where in sorted(refused, key=lambda one: one[0] == _NOT_ATTEMPTED):
                check_coordinator(
                    self._client, TRANSACTION, name, code, f"Adding {where} to the transaction of {name} failed"
                )

        await self._client.retrying(ask, deadline)


class NativeTransactionalDelivery:
    """Records of one task in a transaction.

    Args:
        brokers: The worker's producer.
        settings: Of the Kafka clients.
        transactional_id: Whoever used it before is fenced.

    Raises:
        KafkaGroupError: The transactional id could not be initialised.
    """

    def __init__(self, brokers: NativeProducer, settings: Settings, transactional_id: str) -> None:
        client = brokers.client
        timeout_ms = transaction_timeout_ms(settings)
        opened = client.run(initialise(client, transactional_id, timeout_ms, Deadline(_CONTROL_SECONDS)))
        self._transaction = TaskTransaction(client, opened, timeout_ms)
        how = ProducerSettings.of(settings, transactional=True)
        self._sending = Sending(brokers, how, Outbox(how, self._transaction.identity), self._transaction)

    def send(self, records: Records) -> None:
        """See `Delivery`."""
        self._sending.send(records)

    def flush(self) -> None:
        """See `Delivery`."""
        self._sending.flush()

    def abort(self) -> None:
        """See `TransactionalDelivery`."""
        self._sending.give_back()
        self._transaction.abort()

    def release(self) -> None:
        """See `TransactionalDelivery`."""
        self._sending.give_back()


_producers = PerProcess(NativeProducer)
