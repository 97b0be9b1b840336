"""The native engine's producers, and what a worker keeps of them between its tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafka_source.client_config import Settings
from kafka_source.error_codes import LOCAL_MSG_TIMED_OUT
from kafka_source.errors import RetriableError, error_for_code
from kafka_source.kafka_client import Deadline, IdleConnections, KafkaClient, Snapshot, cached_client
from kafka_source.kafka_client.messages import InitProducerIdRequest
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.sink.produce.accumulator import NOBODY, Accumulator, ProducerIdentity
from kafka_source.sink.produce.connection import ProduceConnection
from kafka_source.sink.produce.delivery_errors import delivery_error
from kafka_source.sink.produce.producer_settings import ProducerSettings
from kafka_source.sink.produce.sender import Sender
from kafka_source.sink.records import Records
from kafka_source.sink.two_phase.task_transaction import TaskTransaction
from kafka_source.sink.two_phase.timeout import transaction_timeout_ms
from kafka_source.transactions.open_transaction import initialise

_CONTROL_SECONDS = 60.0
# The first version of the protocol: see `transactions.open_transaction`.
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
        self._idle: IdleConnections[int, ProduceConnection] = IdleConnections()
        self._accumulator: Accumulator | None = None

    @property
    def client(self) -> KafkaClient:
        """For questions and transactions."""
        return cached_client(self._client_settings)

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
        self.cluster = self.cluster.renewed(seen, wanted)
        self._seen |= dict.fromkeys(seen.topics, time.monotonic())

    def connection(self, node: int) -> ProduceConnection:
        """A connection to a broker that is nobody else's until `keep`.

        Raises:
            ConnectionLost: It cannot be reached, or is not known.
        """
        kept = self._idle.take(node)
        if kept is not None:
            return kept
        broker = self.cluster.broker(node)
        raw = self.client.open_socket(broker.endpoint, self._client_settings.client_id())
        return ProduceConnection(raw, acks=self.settings.acks, timeout=self.settings.request_timeout)

    def keep(self, node: int, connection: ProduceConnection) -> None:
        """Take a connection back for the next task; one with an answer under way is closed."""
        self._idle.keep(node, connection)

    def close(self) -> None:
        """Close the idle connections; a task that still writes closes its own at its end."""
        self._idle.close()

    def take_accumulator(self) -> Accumulator:
        """Return an accumulator that nobody else fills until `keep_accumulator`.

        Raises:
            KafkaGroupError: The brokers give none.
        """
        accumulator, self._accumulator = self._accumulator, None
        if accumulator is None:
            identity = self._new_identity() if self.settings.idempotent else NOBODY
            accumulator = Accumulator(self.settings, identity)
        return accumulator

    def keep_accumulator(self, accumulator: Accumulator) -> None:
        """Take an accumulator back, all of whose records are acknowledged."""
        self._accumulator = accumulator

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
        self._accumulator: Accumulator | None = None
        self._sending: Sender | None = None

    def send(self, records: Records) -> None:
        """See `Delivery`."""
        if not len(records):
            return
        if self._sending is None:
            try:
                self._accumulator = self._brokers.take_accumulator()
            except RetriableError as problem:
                raise delivery_error(LOCAL_MSG_TIMED_OUT, next(records.by_topic())[0], None, str(problem)) from problem
            self._sending = Sender(self._brokers, self._brokers.settings, self._accumulator)
        self._sending.send(records)

    def flush(self) -> None:
        """See `Delivery`."""
        if self._sending is not None:
            self._sending.flush()

    def keep(self) -> None:
        """See `Delivery`."""
        if self._sending is not None and self._accumulator is not None:
            self._sending.give_back()
            self._brokers.keep_accumulator(self._accumulator)

    def drop(self) -> None:
        """See `Delivery`: whatever is under way may be written, but nothing more is sent under this identity."""
        if self._sending is not None:
            self._sending.give_back()


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
        self._sending = Sender(brokers, how, Accumulator(how, self._transaction.identity), self._transaction)

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


_producers = ProcessCache(NativeProducer, close=NativeProducer.close)
