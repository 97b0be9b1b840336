"""The configuration of the sink's producers: the user's settings over Java's defaults, and what transactions ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_source.client_config import DEFAULT_CLIENT_ID, Settings, librdkafka_config
from kafka_source.errors import OptionError
from kafka_source.sink.produce.partitioner import JAVA_COMPATIBLE
from kafka_source.sink.two_phase.timeout import transaction_timeout_ms

# Java's defaults, where librdkafka has others.
_DEFAULTS = {
    "client.id": DEFAULT_CLIENT_ID,
    "partitioner": JAVA_COMPATIBLE,
    "message.timeout.ms": "120000",
    "message.max.bytes": "1048576",
    # Full batches cost half of what small ones do, and nobody waits longer: the flush of a task lets nothing linger.
    "linger.ms": "50",
    # Of records that wait to be sent: a worker's memory is not the executor's to grow.
    "queue.buffering.max.kbytes": "65536",
}

_ALIASES = {"delivery.timeout.ms": "message.timeout.ms"}


@dataclass(frozen=True, slots=True)
class _Demand:
    """What is asked of a setting that has one of these names."""

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


def producer_config(settings: Settings) -> dict[str, Any]:
    """librdkafka's configuration for the sink.

    Raises:
        OptionError: A setting is refused or unknown, or its value is not taken.
    """
    given = librdkafka_config(settings)
    given = {_ALIASES.get(name, name): value for name, value in given.items()}
    config: dict[str, Any] = {**_DEFAULTS, **given}
    # Java's rule: idempotent by default, unless another setting speaks against it.
    config.setdefault("enable.idempotence", not any(_against(settings, _IDEMPOTENCE)))
    return config


def transactional_config(settings: Settings) -> dict[str, Any]:
    """The same for the exactly-once sink, without a transactional id.

    Raises:
        OptionError: As `producer_config`, or a setting speaks against transactions.
    """
    config = producer_config(settings)
    timeout_ms = transaction_timeout_ms(settings)
    # librdkafka makes no producer whose records or requests may outlive its transaction.
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
    for name, demand in _against(settings, demands):
        raise OptionError(f"kafka.{name}", settings[name], f"{demand.takes} with transactional=true")
    return {
        **config,
        "message.timeout.ms": str(min(int(config["message.timeout.ms"]), timeout_ms)),
        "transaction.timeout.ms": timeout_ms,
        "enable.idempotence": True,
    }


def _against(settings: Settings, demands: tuple[_Demand, ...]) -> list[tuple[str, _Demand]]:
    return [
        (name, demand)
        for demand in demands
        for name in demand.names
        if name in settings and not demand.is_met(settings, name)
    ]
