"""The settings of the native engine's producers, and the settings that only librdkafka supports."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_source.client_config import Settings, java_names
from kafka_source.kafka_client.settings import retry_policy
from kafka_source.runtime.retry import RetryPolicy
from kafka_source.sink.produce.producer_config import producer_config, transactional_config

_ACKS = {"all": -1, "-1": -1, "1": 1}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# librdkafka's default. Java's 16 KiB would mean 60 times as many requests for the broker.
_BATCH_BYTES = 1_000_000
_METADATA_MS = 300_000
_UNKNOWN_TOPIC_MS = 30_000

_SUPPORTED = frozenset(
    {
        "acks",
        "batch.size",
        "bootstrap.servers",
        "buffer.memory",
        "client.id",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.ms",
        "topic.metadata.propagation.max.ms",
        "transaction.timeout.ms",
    }
)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of a native producer. Times are in seconds, sizes in bytes.

    Attributes:
        acks: -1 (all) or 1.
        idempotent: Whether the producer is idempotent (KIP-98): brokers drop duplicates.
        compression: The codec's name.
        level: The codec's level; None for its default.
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
    def of(cls, settings: Settings, *, transactional: bool = False) -> ProducerSettings:
        """Return the settings of the native producer; `librdkafka_only` must be empty for `settings`.

        Raises:
            OptionError: As `producer_config` and `transactional_config`.
        """
        config = transactional_config(settings) if transactional else producer_config(settings)
        compression = settings.get("compression.type", "none").lower()
        return cls(
            acks=_ACKS[settings.get("acks", "all").lower()],
            idempotent=str(config["enable.idempotence"]).lower() in ("true", "t", "1"),
            compression=compression,
            level=settings.integer(f"compression.{compression}.level"),
            batch_bytes=max(1, min(settings.integer("batch.size") or _BATCH_BYTES, int(config["message.max.bytes"]))),
            record_bytes=int(config["message.max.bytes"]),
            linger=float(config["linger.ms"]) / 1000,
            delivery_timeout=int(config["message.timeout.ms"]) / 1000,
            request_timeout=settings.seconds("request.timeout.ms", 30_000),
            retry=retry_policy(settings),
            metadata_age=settings.seconds("metadata.max.age.ms", _METADATA_MS),
            unknown_topic_timeout=settings.seconds("topic.metadata.propagation.max.ms", _UNKNOWN_TOPIC_MS),
        )


def librdkafka_only(settings: Settings) -> list[str]:
    """Return the names of the given settings that only librdkafka supports."""
    known = _SUPPORTED | java_names.GROUP | java_names.SECURITY | java_names.IGNORED
    found = sorted(name for name in settings if name not in known)
    if settings.get("acks", "all").lower() not in _ACKS:
        found.append("acks")
    if settings.get("compression.type", "none").lower() not in _CODECS:
        found.append("compression.type")
    if settings.integer("retries") == 0:
        found.append("retries")
    return found
