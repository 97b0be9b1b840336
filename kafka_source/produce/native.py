"""The native engine for writes: a `Sender` delivers a task's records, at least once or in a transaction.

A delivery lives as long as its task. `NativeProducer`, one in each worker process for each set of settings, keeps
connections, metadata and an idempotent identity for later tasks.
"""

from dataclasses import replace

from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import RetriableError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.produce.accumulator import Accumulator
from kafka_source.produce.delivery_errors import delivery_error
from kafka_source.produce.native_producer import CONTROL_SECONDS, NativeProducer
from kafka_source.produce.records import Records
from kafka_source.produce.sender import Sender, TaskTransaction
from kafka_source.produce.settings import ProducerSettings, transaction_timeout_ms
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.transactions.open_transaction import OpenTransaction, has_second_protocol, initialise


def at_least_once(settings: Settings) -> "NativeDelivery":
    """Return a delivery for one task; see `ProduceEngine`."""
    return NativeDelivery(_producers.of(settings))


def in_transaction(settings: Settings, transactional_id: str) -> "NativeTransactionalDelivery":
    """Return a delivery in a new transaction; see `delivery.in_transaction`."""
    return NativeTransactionalDelivery(_producers.of(settings), settings, transactional_id)


class NativeDelivery:
    """Delivers the records of one task at least once; implements `Delivery`."""

    def __init__(self, producer: NativeProducer) -> None:
        self._producer = producer
        self._accumulator: Accumulator | None = None
        self._sender: Sender | None = None

    def send(self, records: Records) -> None:
        """Send records; see `RecordWriter`."""
        if not len(records):
            return
        if self._sender is None:
            try:
                self._accumulator = self._producer.take_accumulator()
            except RetriableError as problem:
                raise delivery_error(
                    ErrorCode.LOCAL_MSG_TIMED_OUT, next(records.by_topic())[0], None, str(problem)
                ) from problem
            self._sender = Sender(self._producer, self._producer.settings, self._accumulator)
        self._sender.send(records)

    def flush(self) -> None:
        """Wait until all records are acknowledged; see `RecordWriter`."""
        if self._sender is not None:
            self._sender.flush()

    def keep(self) -> None:
        """Keep connections and identity for the next task; see `Delivery`."""
        if self._sender is not None and self._accumulator is not None:
            self._sender.release_connections()
            self._producer.keep_accumulator(self._accumulator)

    def drop(self) -> None:
        """Drop the delivery; see `Delivery`. Sent records may still be written. The identity is not used again."""
        if self._sender is not None:
            self._sender.release_connections()


class NativeTransactionalDelivery:
    """Delivers the records of one task in a transaction; implements `TransactionalDelivery`.

    Args:
        producer: The worker's producer.
        settings: Settings of the Kafka clients.
        transactional_id: The transactional id; every other process that uses it is fenced.

    Attributes:
        transaction: See `TransactionalDelivery`.

    Raises:
        UnknownOutcomeError: The coordinator may have initialised the transactional id, or may still do so.
        KafkaGroupError: The transactional id could not be initialised.
    """

    def __init__(self, producer: NativeProducer, settings: Settings, transactional_id: str) -> None:
        client = producer.client
        self.transaction = client.run(_opened(client, transactional_id, transaction_timeout_ms(settings)))
        self._transaction = TaskTransaction(client, self.transaction)
        producer_settings = ProducerSettings.of(settings, transactional=True)
        accumulator = Accumulator(producer_settings, self._transaction.identity)
        self._sender = Sender(producer, producer_settings, accumulator, self._transaction)

    def send(self, records: Records) -> None:
        """Send records; see `RecordWriter`."""
        self._sender.send(records)

    def flush(self) -> None:
        """Wait until all records are acknowledged; see `RecordWriter`."""
        self._sender.flush()

    def abort(self) -> None:
        """Abort the transaction; see `TransactionalDelivery`."""
        self._sender.release_connections()
        self._transaction.abort()

    def release(self) -> None:
        """Leave the transaction open; see `TransactionalDelivery`."""
        self._sender.release_connections()


async def _opened(client: KafkaClient, transactional_id: str, timeout_ms: int) -> OpenTransaction:
    """Return a new transaction, in the newest protocol that the coordinator supports."""
    deadline = Deadline(CONTROL_SECONDS)
    transaction = await initialise(client, transactional_id, timeout_ms, deadline, once=True)
    second = await has_second_protocol(client, transactional_id, deadline)
    return replace(transaction, second_protocol=second)


_producers = ProcessCache(NativeProducer, close=NativeProducer.close)
