"""The configuration of the sink's producers: Java's defaults, the user's settings, and what transactions require."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_source.client_config import DEFAULT_CLIENT_ID, Settings, librdkafka_config
from kafka_source.client_config.java_settings import Role
from kafka_source.errors import OptionError
from kafka_source.sink.produce.partitioner import JAVA_COMPATIBLE

DELIVERY_TIMEOUT_MS = 120_000
"""Java's default of `delivery.timeout.ms`."""

REQUEST_BYTES = 1_048_576
"""Java's default of `max.request.size`."""

LINGER_MS = 50
"""Our default of `linger.ms`.

Full batches cost half as much as small ones. No record waits longer for it: the flush at the end of a task sends every
batch at once.
"""

# Java's defaults where librdkafka's differ; the last two are our own.
_DEFAULTS = {
    "client.id": DEFAULT_CLIENT_ID,
    "partitioner": JAVA_COMPATIBLE,
    "message.timeout.ms": str(DELIVERY_TIMEOUT_MS),
    "message.max.bytes": str(REQUEST_BYTES),
    "linger.ms": str(LINGER_MS),
    # Memory for records that wait to be sent. A Python worker's memory is outside of the executor's heap, so keep it
    # small.
    "queue.buffering.max.kbytes": "65536",
}

_ALIASES = {"delivery.timeout.ms": "message.timeout.ms"}

# Brokers allow 15 minutes by default (transaction.max.timeout.ms). A batch and a restart of the driver have to fit in.
_TRANSACTION_TIMEOUT_MS = 600_000


def transaction_timeout_ms(settings: Settings) -> int:
    """Return the timeout of the tasks' transactions in milliseconds: the user's setting, else 10 minutes."""
    return int(settings.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))


@dataclass(frozen=True, slots=True)
class _Demand:
    """A requirement on a setting.

    Attributes:
        names: The setting's names in Java and librdkafka.
        takes: The allowed values, for the error text.
        is_met: Whether the user's value is allowed, by settings and name.
    """

    names: tuple[str, ...]
    takes: str
    is_met: Callable[[Settings, str], bool]


def _at_most(limit: int) -> Callable[[Settings, str], bool]:
    return lambda settings, name: (settings.integer(name) or 0) <= limit


_IDEMPOTENCE = (
    _Demand(("acks", "request.required.acks"), "all", lambda settings, name: settings[name].lower() in ("all", "-1")),
    _Demand(("max.in.flight.requests.per.connection", "max.in.flight"), "at most 5", _at_most(5)),
    _Demand(("retries", "message.send.max.retries"), "at least 1", lambda settings, name: settings.integer(name) != 0),
)


def is_idempotent(settings: Settings) -> bool:
    """Return whether an at-least-once producer is idempotent: by Java's rule, unless another setting contradicts it."""
    given = settings.get("enable.idempotence")
    return not _contradicting(settings, _IDEMPOTENCE) if given is None else given.lower() in ("true", "t", "1")


def check_transactional(settings: Settings) -> None:
    """Check that no setting contradicts transactions.

    Raises:
        OptionError: One does.
    """
    timeout_ms = transaction_timeout_ms(settings)
    # librdkafka refuses a producer whose delivery or request timeout exceeds its transaction timeout.
    demands = (
        *_IDEMPOTENCE,
        _Demand(
            ("enable.idempotence",), "true", lambda settings, name: settings[name].lower() not in ("false", "f", "0")
        ),
        _Demand(
            ("delivery.timeout.ms", "message.timeout.ms", "request.timeout.ms", "socket.timeout.ms"),
            f"at most kafka.transaction.timeout.ms ({timeout_ms})",
            _at_most(timeout_ms),
        ),
    )
    for name, demand in _contradicting(settings, demands):
        raise OptionError(f"kafka.{name}", settings.shown(name), f"{demand.takes} with transactional=true")


def producer_config(settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration for an at-least-once sink.

    Raises:
        OptionError: A setting is unknown or not allowed, or its value is wrong.
    """
    given = librdkafka_config(settings, Role.PRODUCER)
    given = {_ALIASES.get(name, name): value for name, value in given.items()}
    config: dict[str, Any] = {**_DEFAULTS, **given}
    config.setdefault("enable.idempotence", is_idempotent(settings))
    return config


def transactional_config(settings: Settings) -> dict[str, Any]:
    """Return librdkafka's configuration for an exactly-once sink, without `transactional.id`.

    Raises:
        OptionError: As `producer_config`, or a setting contradicts transactions.
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


def _contradicting(settings: Settings, demands: tuple[_Demand, ...]) -> list[tuple[str, _Demand]]:
    return [
        (name, demand)
        for demand in demands
        for name in demand.names
        if name in settings and not demand.is_met(settings, name)
    ]
