"""Records to brokers: a producer that fails loudly, and waits until every record is acknowledged."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_source.client_config import Settings
from kafka_source.deadline import Deadline, call_within
from kafka_source.errors import AuthenticationError, DeliveryError, from_confluent
from kafka_source.sink.producer_config import producer_config
from kafka_source.sink.records import Records
from kafka_source.transaction_error import cause_of

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_KEPT = 4
_ABORT_SECONDS = 5.0

_ADVICE = {
    10: "Raise the topic's max.message.bytes and the option kafka.max.request.size, or write smaller records",
    3: "Create the topic, or give this user the right to create or describe it",
    -188: "Create the topic, or give this user the right to create or describe it",
    -190: "The topic has fewer partitions than the column partition says",
    -192: "The brokers did not take it within kafka.delivery.timeout.ms",
    17: "The topic's name is not allowed",
    29: "Give this user WRITE on the topic",
}


class Delivery:
    """A producer for one writer at a time.

    Args:
        config: librdkafka's.
        make: Makes the producer from its configuration.
    """

    def __init__(self, config: Mapping[str, Any], make: Callable[[dict[str, Any]], Producer] | None = None) -> None:
        self._failed: tuple[KafkaError, str, int | None] | None = None
        self._problem: KafkaError | None = None
        config = {
            **config,
            # Reports of success would cost more than the records themselves.
            "delivery.report.only.error": True,
            "on_delivery": self._reported,
            "error_cb": self._on_problem,
        }
        try:
            self._producer = Producer(config, logger=log) if make is None else make(config)
        except KafkaException as error:
            raise from_confluent(error, "Making a producer failed") from error

    def send(self, records: Records) -> None:
        """Hand records to the producer; waits while its queue is full.

        Raises:
            DeliveryError: This or an earlier record was not delivered.
            AuthenticationError: The brokers refuse the credentials.
        """
        produce, count = self._producer.produce, len(records.values)
        topics: Iterable[str] = repeat(records.topics, count) if isinstance(records.topics, str) else records.topics
        keys: Iterable[Any] = repeat(None, count) if records.keys is None else records.keys
        if records.partitions is None and records.headers is None:
            for topic, value, key in zip(topics, records.values, keys, strict=True):
                try:
                    produce(topic, value, key)
                except (BufferError, KafkaException) as error:
                    self._again(error, topic, value, key, -1)
        else:
            partitions: Iterable[int] = repeat(-1, count) if records.partitions is None else records.partitions
            headers: Iterable[Any] = repeat(None, count) if records.headers is None else records.headers
            for topic, value, key, partition, of_one in zip(
                topics, records.values, keys, partitions, headers, strict=True
            ):
                arguments = {} if of_one is None else {"headers": of_one}
                try:
                    produce(topic, value, key, partition, **arguments)
                except (BufferError, KafkaException) as error:
                    self._again(error, topic, value, key, partition, **arguments)
        self._serve(0)

    def flush(self) -> None:
        """Wait until every record is acknowledged.

        Raises:
            DeliveryError: One was not.
            AuthenticationError: The brokers refuse the credentials.
        """
        while self._ask(lambda: self._producer.flush(_POLL_SECONDS)) > 0:
            self._raise_failure()
        self._raise_failure()

    def drop(self) -> None:
        """Give up what is not sent yet: the task fails, and its next try writes all of it again."""
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.flush(_POLL_SECONDS)

    def abort(self) -> None:
        """Give up, and the open transaction with it; what cannot be aborted now the next initialisation aborts."""
        self.drop()
        with contextlib.suppress(KafkaException, TimeoutError):
            deadline = Deadline(_ABORT_SECONDS)
            call_within(deadline, lambda: self._producer.abort_transaction(deadline.left))

    def release(self) -> None:
        """Let go of the producer as it is, its transaction still open."""
        del self._producer

    def _again(self, error: Exception, topic: str, value: Any, key: Any, partition: int, **headers: Any) -> None:
        while isinstance(error, BufferError):
            self._serve(_POLL_SECONDS)
            try:
                self._producer.produce(topic, value, key, partition, **headers)
                return
            except (BufferError, KafkaException) as next_error:
                error = next_error
        if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
            raise self._error(error.args[0], topic, partition) from error
        raise error

    def _serve(self, seconds: float) -> None:
        self._ask(lambda: self._producer.poll(seconds))
        self._raise_failure()

    def _ask(self, call: Callable[[], int]) -> int:
        try:
            return call()
        except KafkaException as error:
            # So a fatal error is told; a record's own failure says more, if there is one.
            failure = from_confluent(error, "Writing failed") if self._failed is None else self._error(*self._failed)
            raise failure from error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._error(*self._failed)
        if self._problem is not None:
            problem = from_confluent(self._problem, "Writing failed")
            if isinstance(problem, AuthenticationError):
                raise problem

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error, message.topic() or "", message.partition()

    def _error(self, error: KafkaError, topic: str, partition: int | None) -> DeliveryError:
        error = cause_of(error, self._producer)
        reason = error.str()
        if self._problem is not None and error.code() == KafkaError._MSG_TIMED_OUT:
            reason += f" ({self._problem.str()})"
        return DeliveryError(
            topic=topic, partition=partition, reason=reason, advice=_ADVICE.get(error.code(), ""), code=error.code()
        )

    def _on_problem(self, error: KafkaError) -> None:
        # Passing trouble with a connection is told as well; what counts is whether records get through.
        self._problem = error


class _Kept:
    """Producers that wait for this worker's next task: a new one would cost it connections and metadata."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Settings, Delivery]] = []

    def take(self, settings: Settings) -> Delivery:
        with self._lock:
            for i, (of, delivery) in enumerate(self._idle):
                if of == settings:
                    del self._idle[i]
                    return delivery
        return Delivery(producer_config(settings))

    def give_back(self, settings: Settings, delivery: Delivery) -> None:
        with self._lock:
            self._idle.append((settings, delivery))
            del self._idle[:-_KEPT]


_kept = _Kept()


def deliver(settings: Settings, batches: Iterable[Records]) -> int:
    """Write records and wait until all of them are acknowledged.

    Returns:
        How many.

    Raises:
        DeliveryError: One was not delivered; nothing is known of those after it.
        AuthenticationError: The brokers refuse the credentials.
    """
    delivery = _kept.take(settings)
    count = 0
    try:
        for records in batches:
            delivery.send(records)
            count += len(records.values)
        delivery.flush()
    except BaseException:
        # Its queue may hold records of this task: the next one gets a producer of its own.
        delivery.drop()
        raise
    _kept.give_back(settings, delivery)
    return count
