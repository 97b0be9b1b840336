"""The engine that writes with librdkafka, by one Python call for each record."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_source.client_config import DEFAULT_CLIENT_ID, Settings, librdkafka_config
from kafka_source.client_config.java_settings import Role
from kafka_source.client_config.tls import check_versions
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, KafkaGroupError, from_confluent
from kafka_source.produce.delivery_errors import delivery_error
from kafka_source.produce.records import Records
from kafka_source.produce.settings import (
    DELIVERY_TIMEOUT_MS,
    LINGER_MS,
    REQUEST_BYTES,
    UNKNOWN_TOPIC_MS,
    check_transactional,
    is_idempotent,
    transaction_timeout_ms,
)
from kafka_source.runtime.deadline import Deadline, call_within
from kafka_source.transactions.producers import TransactionalProducers, cause_of

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_MAX_IDLE = 4
_ABORT_SECONDS = 5.0
_INIT_SECONDS = 60.0

# librdkafka's name for Java's default partitioner: murmur2 of the key; without a key, one partition for a batch.
_JAVA_COMPATIBLE = "murmur2_random"

# Java's defaults where librdkafka's differ; the defaults for unknown topics, linger and memory are kafkagroup's own.
_DEFAULTS = {
    "client.id": DEFAULT_CLIENT_ID,
    "partitioner": _JAVA_COMPATIBLE,
    "message.timeout.ms": str(DELIVERY_TIMEOUT_MS),
    "topic.metadata.propagation.max.ms": str(UNKNOWN_TOPIC_MS),
    "message.max.bytes": str(REQUEST_BYTES),
    "linger.ms": str(LINGER_MS),
    # Memory for records that wait to be sent, small because a Python worker's memory is outside of the executor's heap.
    "queue.buffering.max.kbytes": "65536",
}

_ALIASES = {"delivery.timeout.ms": "message.timeout.ms"}


class LibrdkafkaDelivery:
    """Delivers the records of one task; implements `Delivery` and `TransactionalDelivery`.

    Args:
        config: librdkafka's configuration.
        make: Creates the producer from its configuration; None for a producer without transactions.
        keep: Keeps the delivery for the worker's next task; None: it is not kept.

    Attributes:
        transaction: Always None, because librdkafka does not expose its producer id and epoch.
    """

    transaction: None = None

    def __init__(
        self,
        config: Mapping[str, Any],
        make: Callable[[dict[str, Any]], Producer] | None = None,
        keep: "Callable[[LibrdkafkaDelivery], None] | None" = None,
    ) -> None:
        self._keep = keep
        self._failed: tuple[KafkaError, str, int | None] | None = None
        self._problem: KafkaError | None = None
        config = {
            **config,
            # Reports of success would cost more than sending the records.
            "delivery.report.only.error": True,
            "on_delivery": self._on_failure,
            "error_cb": self._on_client_error,
        }
        try:
            self._producer = Producer(config, logger=log) if make is None else make(config)
        except KafkaException as error:
            raise from_confluent(error, "Creating a producer failed") from error

    def send(self, records: Records) -> None:
        """Send records; see `RecordWriter`. Block while the producer's queue is full."""
        produce, count = self._producer.produce, len(records)
        topics: Iterable[str] = (
            repeat(records.topics, count) if isinstance(records.topics, str) else records.topics.to_pylist()
        )
        values = records.values.to_pylist()
        keys: Iterable[Any] = repeat(None, count) if records.keys is None else records.keys.to_pylist()
        if records.partitions is None and records.headers is None:
            for topic, value, key in zip(topics, values, keys, strict=True):
                try:
                    produce(topic, value, key)
                except (BufferError, KafkaException) as error:
                    self._produce_when_possible(error, topic, value, key, -1)
        else:
            partitions: Iterable[int] = (
                repeat(-1, count) if records.partitions is None else records.partitions.fill_null(-1).to_pylist()
            )
            headers: Iterable[Any] = repeat(None, count) if records.headers is None else map(_headers, records.headers)
            for topic, value, key, partition, record_headers in zip(
                topics, values, keys, partitions, headers, strict=True
            ):
                arguments = {} if record_headers is None else {"headers": record_headers}
                try:
                    produce(topic, value, key, partition, **arguments)
                except (BufferError, KafkaException) as error:
                    self._produce_when_possible(error, topic, value, key, partition, **arguments)
        self._serve(0)

    def flush(self) -> None:
        """Wait until all records are acknowledged; see `RecordWriter`."""
        while self._call(lambda: self._producer.flush(_POLL_SECONDS)) > 0:
            self._raise_failure()
        self._raise_failure()

    def keep(self) -> None:
        """Keep the producer for the next task; see `Delivery`."""
        if self._keep is not None:
            self._keep(self)

    def drop(self) -> None:
        """Drop the records that are not sent yet; see `Delivery`."""
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.flush(_POLL_SECONDS)

    def abort(self) -> None:
        """Abort the transaction; see `TransactionalDelivery`."""
        self.drop()
        with contextlib.suppress(KafkaException, TimeoutError):
            deadline = Deadline(_ABORT_SECONDS)
            call_within(deadline, lambda: self._producer.abort_transaction(deadline.left))

    def release(self) -> None:
        """Leave the transaction open; see `TransactionalDelivery`."""
        # Do not close the producer, because confluent-kafka would abort the open transaction.
        del self._producer

    def _produce_when_possible(
        self, error: Exception, topic: str, value: Any, key: Any, partition: int, **headers: Any
    ) -> None:
        while isinstance(error, BufferError):
            self._serve(_POLL_SECONDS)
            empty = not len(self._producer)
            try:
                self._producer.produce(topic, value, key, partition, **headers)
                return
            except BufferError as full:
                if empty:
                    reason = "it is larger than the producer's queue, which kafka.buffer.memory limits"
                    raise delivery_error(ErrorCode.MESSAGE_TOO_LARGE, topic, partition, reason) from None
                error = full
            except KafkaException as next_error:
                error = next_error
        if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
            raise self._error(error.args[0], topic, partition) from error
        raise error

    def _serve(self, seconds: float) -> None:
        self._call(lambda: self._producer.poll(seconds))
        self._raise_failure()

    def _call(self, call: Callable[[], int]) -> int:
        try:
            return call()
        except KafkaException as error:
            # A fatal error arrives here. If a record has failed, the record's error has more details.
            failure = from_confluent(error, "Writing failed") if self._failed is None else self._error(*self._failed)
            raise failure from error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._error(*self._failed)
        if self._problem is not None:
            problem = from_confluent(self._problem, "Writing failed")
            if isinstance(problem, AuthenticationError):
                raise problem

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error, message.topic() or "", message.partition()

    def _error(self, error: KafkaError, topic: str, partition: int | None) -> KafkaGroupError:
        error = cause_of(error, self._producer)
        timed_out = self._problem is not None and error.code() == KafkaError._MSG_TIMED_OUT
        detail = self._problem.str() if self._problem is not None and timed_out else ""
        return delivery_error(error.code(), topic, partition, detail)

    def _on_client_error(self, error: KafkaError) -> None:
        # Temporary connection problems arrive here too. The text of a later failure names the last problem.
        self._problem = error


class _IdleDeliveries:
    """Idle producers for the worker's next task, because a new producer needs new connections and metadata."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Settings, LibrdkafkaDelivery]] = []

    def take(self, settings: Settings) -> LibrdkafkaDelivery:
        with self._lock:
            for i, (of, delivery) in enumerate(self._idle):
                if of == settings:
                    del self._idle[i]
                    return delivery
        check_versions(settings)
        return LibrdkafkaDelivery(producer_config(settings), keep=partial(self.give_back, settings))

    def give_back(self, settings: Settings, delivery: LibrdkafkaDelivery) -> None:
        with self._lock:
            self._idle.append((settings, delivery))
            del self._idle[:-_MAX_IDLE]


_idle = _IdleDeliveries()


def at_least_once(settings: Settings) -> LibrdkafkaDelivery:
    """Return the delivery of one task; see `ProduceEngine`."""
    return _idle.take(settings)


def in_transaction(settings: Settings, transactional_id: str) -> LibrdkafkaDelivery:
    """Return a delivery in a new transaction; see `delivery.in_transaction`."""
    check_versions(settings)
    return LibrdkafkaDelivery(transactional_config(settings), partial(_in_new_transaction, transactional_id))


def _in_new_transaction(transactional_id: str, config: dict[str, Any]) -> Producer:
    producer = TransactionalProducers(config, transactional_id).take(Deadline(_INIT_SECONDS))
    producer.begin_transaction()
    return producer


def _headers(headers: pa.Scalar) -> list[tuple[str, bytes | None]] | None:
    found = headers.as_py()
    return None if found is None else [(header["key"], header["value"]) for header in found]


def producer_config(settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration for an at-least-once sink.

    Raises:
        OptionError: A setting is unknown or not allowed, or its value is wrong.
    """
    given = librdkafka_config(settings, Role.PRODUCER)
    if given.get("delivery.timeout.ms") == "0":
        # 0 means no limit in librdkafka.
        given["delivery.timeout.ms"] = "1"
    given = {_ALIASES.get(name, name): value for name, value in given.items()}
    config: dict[str, Any] = {**_DEFAULTS, **given}
    config.setdefault("enable.idempotence", is_idempotent(settings))
    return config


def transactional_config(settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration for an exactly-once sink, without `transactional.id`.

    Raises:
        OptionError: `producer_config` raises it, or a setting contradicts transactions.
    """
    config = producer_config(settings)
    check_transactional(settings)
    timeout_ms = transaction_timeout_ms(settings)
    return {
        **config,
        "message.timeout.ms": str(min(int(config["message.timeout.ms"]), timeout_ms)),
        "transaction.timeout.ms": timeout_ms,
        "enable.idempotence": True,
    }
