"""Settings of producers: defaults (`acks`, largest record, `linger.ms`, time-outs), refused combinations."""

from collections.abc import Callable
from dataclasses import dataclass

from kafka_source.client_config import Settings
from kafka_source.client_config.java_settings import FOLLOWED_BY_NATIVE, is_known
from kafka_source.client_config.librdkafka import is_librdkafkas
from kafka_source.errors import OptionError
from kafka_source.kafka_client.settings import retry_policy
from kafka_source.runtime.retry import RetryPolicy

DELIVERY_TIMEOUT_MS = 120_000
"""Java's default of `delivery.timeout.ms`."""

REQUEST_BYTES = 1_048_576
"""Java's default of `max.request.size`."""

LINGER_MS = 50
"""kafkagroup's default of `linger.ms`.

Full batches cost half as much as small batches. A record waits at most this long; the flush at a task's end
sends every batch.
"""

# Long enough for a batch and a restart of the driver. Brokers allow 15 minutes by default (transaction.max.timeout.ms).
_TRANSACTION_TIMEOUT_MS = 600_000

_ACKS = {"all": -1, "-1": -1, "1": 1}
# librdkafka's default. With Java's 16 KiB the broker would get 60 times as many requests.
_BATCH_BYTES = 1_000_000
# The largest size that the encoder takes.
_MOST_BYTES = 1 << 30
_METADATA_MS = 300_000
# Short: brokers know a new topic within this time, and a wrong name should be reported within ten seconds.
UNKNOWN_TOPIC_MS = 5_000


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of a native producer. Times are in seconds, sizes in bytes.

    Attributes:
        acks: -1 (all) or 1.
        idempotent: Whether the producer is idempotent (KIP-98): brokers drop duplicates.
        compression: The codec's name.
        level: The codec's level; None: its default.
        batch_bytes: Size at which a record batch is full, before compression.
        record_bytes: Maximum size of a record.
        linger: Maximum time that a record batch waits for more records.
        delivery_timeout: Time within which a record batch has to be acknowledged.
        request_timeout: Time to wait for a broker's response.
        retry: Pauses between tries.
        metadata_age: Age at which a topic's metadata are fetched again.
        unknown_topic_timeout: Time to wait for a topic that does not exist.
    """

    acks: int
    idempotent: bool
    compression: str
    level: int | None
    batch_bytes: int
    record_bytes: int
    linger: float
    delivery_timeout: float
    request_timeout: float
    retry: RetryPolicy
    metadata_age: float
    unknown_topic_timeout: float

    @classmethod
    def of(cls, settings: Settings, *, transactional: bool = False) -> "ProducerSettings":
        """Return the settings of the native producer; `librdkafka_only(settings)` must be empty.

        Raises:
            OptionError: A value is no number, or with `transactional` a setting contradicts transactions.
        """
        delivery_timeout = settings.seconds("delivery.timeout.ms", DELIVERY_TIMEOUT_MS)
        if transactional:
            check_transactional(settings)
            delivery_timeout = min(delivery_timeout, transaction_timeout_ms(settings) / 1000)
        compression = settings.get("compression.type", "none").lower()
        record_bytes, batch_bytes = settings.integer("max.request.size"), settings.integer("batch.size")
        record_bytes = REQUEST_BYTES if record_bytes is None else max(1, min(record_bytes, _MOST_BYTES))
        batch_bytes = _BATCH_BYTES if batch_bytes is None else batch_bytes
        unknown_topic_ms = settings.integer("max.block.ms")
        return cls(
            acks=_ACKS[settings.get("acks", "all").lower()],
            idempotent=transactional or is_idempotent(settings),
            compression=compression,
            level=settings.integer(f"compression.{compression}.level"),
            batch_bytes=max(1, min(batch_bytes, record_bytes)),
            record_bytes=record_bytes,
            linger=settings.seconds("linger.ms", LINGER_MS),
            delivery_timeout=delivery_timeout,
            request_timeout=settings.seconds("request.timeout.ms", 30_000),
            retry=retry_policy(settings),
            metadata_age=settings.seconds("metadata.max.age.ms", _METADATA_MS),
            unknown_topic_timeout=settings.seconds(
                "topic.metadata.propagation.max.ms", UNKNOWN_TOPIC_MS if unknown_topic_ms is None else unknown_topic_ms
            ),
        )


def librdkafka_only(settings: Settings) -> list[str]:
    """Return the names of the given settings that only librdkafka supports."""
    own = (name for name in settings if not is_known(name) and name not in FOLLOWED_BY_NATIVE)
    found = sorted(name for name in own if is_librdkafkas(name))
    if settings.get("acks", "all").lower() not in _ACKS:
        found.append("acks")
    if settings.integer("retries") == 0:
        found.append("retries")
    return found


def transaction_timeout_ms(settings: Settings) -> int:
    """Return the timeout of the tasks' transactions in milliseconds: the user's setting, else 10 minutes."""
    return int(settings.get("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS))


@dataclass(frozen=True, slots=True)
class _Demand:
    """A requirement on a setting.

    Attributes:
        names: The setting's names in Java and librdkafka.
        takes: The allowed values, for the error text.
        is_met: Returns whether the user's value is allowed, given settings and name.
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
    """Return whether an at-least-once producer is idempotent: as set, or if no setting contradicts it (Java's rule)."""
    given = settings.get("enable.idempotence")
    return not _contradicting(settings, _IDEMPOTENCE) if given is None else given.lower() in ("true", "t", "1")


def check_idempotence(settings: Settings) -> None:
    """Check that no setting contradicts `enable.idempotence=true`, as Java's producer does.

    Raises:
        OptionError: A setting contradicts idempotence.
    """
    if "enable.idempotence" in settings and is_idempotent(settings):
        for name, demand in _contradicting(settings, _IDEMPOTENCE):
            takes = f"{demand.takes} with kafka.enable.idempotence=true"
            raise OptionError(f"kafka.{name}", settings.shown(name), takes)


def check_transactional(settings: Settings) -> None:
    """Check that no setting contradicts transactions.

    Raises:
        OptionError: A setting contradicts transactions.
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


def _contradicting(settings: Settings, demands: tuple[_Demand, ...]) -> list[tuple[str, _Demand]]:
    return [
        (name, demand)
        for demand in demands
        for name in demand.names
        if name in settings and not demand.is_met(settings, name)
    ]
