"""Deliver the records of one task: the engines' interface, the choice of an engine, the check of the topic."""

import logging
from collections.abc import Iterable
from typing import Protocol

from kafka_source.client_config import Settings
from kafka_source.engine_selection import is_native
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import BootstrapError, OptionError, RetriableError, UnknownTopicError, error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.produce import librdkafka
from kafka_source.produce.records import Records
from kafka_source.produce.settings import check_idempotence, librdkafka_only
from kafka_source.transactions.open_transaction import OpenTransaction

log = logging.getLogger(__name__)

_TOPIC_SECONDS = 3.0
_REACH_SECONDS = 10.0


class RecordWriter(Protocol):
    """Sends a task's records."""

    def send(self, records: Records) -> None:
        """Send records; block while too many are unacknowledged.

        Raises:
            DeliveryError: One of these records, or an earlier record, was not delivered.
            AuthenticationError: The brokers refuse the credentials.
        """
        ...

    def flush(self) -> None:
        """Wait until all records are acknowledged; errors as in `send`."""
        ...


class Delivery(RecordWriter, Protocol):
    """Delivers records at least once."""

    def keep(self) -> None:
        """Keep the producer and its connections for the worker's next task; call `flush` first."""
        ...

    def drop(self) -> None:
        """Drop the unsent records, because the task fails and its next attempt writes all records again."""
        ...


class TransactionalDelivery(RecordWriter, Protocol):
    """Delivers records in a transaction that the driver ends."""

    @property
    def transaction(self) -> OpenTransaction | None:
        """The transaction that this delivery has initialised; None if the engine does not expose its producer epoch."""
        ...

    def abort(self) -> None:
        """Abort the transaction. If this fails, the next initialisation of its id aborts the transaction."""
        ...

    def release(self) -> None:
        """Leave the transaction open, and release the producer; call `flush` first."""
        ...


class ProduceEngine(Protocol):
    """The interface of an engine, which is a module: `produce.native` or `produce.librdkafka`."""

    def at_least_once(self, settings: Settings) -> Delivery:
        """Return the delivery of one task, which the task keeps for a later one or drops at its end."""
        ...

    def in_transaction(self, settings: Settings, transactional_id: str) -> TransactionalDelivery:
        """Return a delivery in a new transaction; see the function `in_transaction`."""
        ...


def deliver(settings: Settings, batches: Iterable[Records], engine: str = "auto") -> int:
    """Write records and wait until all of them are acknowledged.

    Returns:
        The number of records.

    Raises:
        DeliveryError: A record was not delivered. Later records may or may not have been delivered.
        AuthenticationError: The brokers refuse the credentials.
    """
    delivery = _engine(settings, engine).at_least_once(settings)
    count = 0
    try:
        for records in batches:
            delivery.send(records)
            count += len(records)
        delivery.flush()
    except BaseException:
        # The rest of this task's records must not be sent with the next task's records.
        delivery.drop()
        raise
    delivery.keep()
    return count


def in_transaction(settings: Settings, transactional_id: str, engine: str = "auto") -> TransactionalDelivery:
    """Return a delivery in a new transaction.

    Args:
        settings: Settings of the Kafka clients.
        transactional_id: The transactional id. Other processes with this id are fenced; their transaction is aborted.
        engine: The option `engine`.

    Raises:
        UnknownOutcomeError: The coordinator has not answered, and may still initialise the transactional id.
        KafkaGroupError: The transactional id could not be initialised.
    """
    return _engine(settings, engine).in_transaction(settings, transactional_id)


def writes_native(settings: Settings, engine: str) -> bool:
    """Return whether the native engine writes; a setting may need librdkafka.

    Raises:
        InvalidConfigurationError: The option `engine` is `native`, and this process cannot use the native engine.
    """
    return is_native(engine) and not librdkafka_only(settings)


def check_settings(settings: Settings, engine: str) -> None:
    """Check in the driver that the engine supports all settings.

    Raises:
        OptionError: `engine` is `native` and only librdkafka supports a setting, or two settings contradict each other.
    """
    check_idempotence(settings)
    if engine == "native" and (others := librdkafka_only(settings)):
        raise OptionError("engine", engine, f"auto or librdkafka with kafka.{others[0]}")


def check_topic(settings: Settings, topic: str) -> None:
    """Before records are written, check that their topic exists. The brokers may create the topic, as for a producer.

    If brokers that answered earlier do not answer now, the delivery raises the error.

    Raises:
        BootstrapError: No broker has ever answered this process.
        UnknownTopicError: The topic does not exist, and the brokers do not create it.
        AuthenticationError: This user may not write to the topic.
        InvalidConfigurationError: The brokers advertise addresses that cannot be reached.
    """
    client = cached_client(settings)
    try:
        client.run(client.reach_broker(Deadline(_REACH_SECONDS)))
        # Topics that the client knows, for example of a stream, are not looked up again.
        if topic not in client.known.topics:
            client.run(_find_topic(client, topic, Deadline(_TOPIC_SECONDS)))
        client.run(client.reach_broker(Deadline(_REACH_SECONDS)))
    except UnknownTopicError:
        raise
    except RetriableError as error:
        if isinstance(error, BootstrapError) and client.cluster_id is None:
            raise
        log.info("topic=%s: its brokers do not answer: %s", topic, error)


async def _find_topic(client: KafkaClient, topic: str, deadline: Deadline) -> None:
    async def look() -> None:
        seen = await client.metadata((topic,), deadline, create=True)
        if code := seen.refused.get(topic):
            raise error_for_code(code, f"Writing to topic {topic} failed")
        if topic not in seen.topics:
            raise UnknownTopicError(
                f"Topic {topic} does not exist, and the brokers do not create it. Create the topic, or correct the "
                "option topic.",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )

    await client.retrying(look, deadline)


def _engine(settings: Settings, engine: str) -> ProduceEngine:
    if writes_native(settings, engine):
        # Imported here, because the native engine is optional.
        from kafka_source.produce import native

        return native
    return librdkafka
