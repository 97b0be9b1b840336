"""Records to brokers: what an engine's producer does for a task, and which engine's it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kafka_source.client_config import Settings
from kafka_source.engine_selection import is_native
from kafka_source.errors import OptionError
from kafka_source.sink.produce import librdkafka
from kafka_source.sink.produce.producer_settings import foreign
from kafka_source.sink.records import Records


class RecordWriter(Protocol):
    """Sends a task's records."""

    def send(self, records: Records) -> None:
        """Take records on; waits while too many are on their way.

        Raises:
            DeliveryError: These or earlier ones were not delivered.
            AuthenticationError: The brokers refuse the credentials.
        """
        ...

    def flush(self) -> None:
        """Wait until every record is acknowledged; errors as of `send`."""
        ...


class Delivery(RecordWriter, Protocol):
    """At least once."""

    def keep(self) -> None:
        """All is acknowledged: what is open is for the worker's next task."""
        ...

    def drop(self) -> None:
        """Give up what is not sent yet: the task fails, and its next try writes all of it again."""
        ...


class TransactionalDelivery(RecordWriter, Protocol):
    """In a transaction that somebody else ends."""

    def abort(self) -> None:
        """Give up, and the transaction with it; what cannot be aborted now the id's next initialisation aborts."""
        ...

    def release(self) -> None:
        """Leave the transaction open."""
        ...


class ProduceEngine(Protocol):
    """What the modules of both engines have."""

    def at_least_once(self, settings: Settings) -> Delivery:
        """A delivery that is nobody else's until it is kept or dropped."""
        ...

    def in_transaction(self, settings: Settings, transactional_id: str) -> TransactionalDelivery:
        """See the function of this name."""
        ...


def deliver(settings: Settings, batches: Iterable[Records], engine: str = "auto") -> int:
    """Write records and wait until all of them are acknowledged.

    Args:
        settings: Of the Kafka clients.
        batches: The records.
        engine: The option.

    Returns:
        How many.

    Raises:
        DeliveryError: One was not delivered; nothing is known of those after it.
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
        # What it holds of this task must not go out with the next one's.
        delivery.drop()
        raise
    delivery.keep()
    return count


def in_transaction(settings: Settings, transactional_id: str, engine: str = "auto") -> TransactionalDelivery:
    """A delivery in a transaction of its own.

    Args:
        settings: Of the Kafka clients.
        transactional_id: Whoever used it before is fenced, and what that left open is aborted.
        engine: The option.

    Raises:
        KafkaGroupError: The transactional id could not be initialised.
    """
    return _engine(settings, engine).in_transaction(settings, transactional_id)


def writes_native(settings: Settings, engine: str) -> bool:
    """Whether the native engine writes; librdkafka does where a setting asks for that.

    Raises:
        InvalidConfigurationError: `native` is asked for and not installed.
    """
    return is_native(engine) and not foreign(settings)


def check_settings(settings: Settings, engine: str) -> None:
    """Where the query is planned, see that its engine follows all settings.

    Raises:
        OptionError: `native` is asked for, and a setting that only librdkafka follows.
    """
    if engine == "native" and (others := foreign(settings)):
        raise OptionError("engine", engine, f"auto or librdkafka with kafka.{others[0]}")


def _engine(settings: Settings, engine: str) -> ProduceEngine:
    if writes_native(settings, engine):
        from kafka_source.sink.produce import native

        return native
    return librdkafka
