"""The settings of the native engine's producers, from the user's; and which of them it leaves to librdkafka."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_source.client_config import Settings, java_names
from kafka_source.kafka_client.settings import retry_policy
from kafka_source.runtime.retry import RetryPolicy
from kafka_source.sink.produce.producer_config import producer_config, transactional_config

_ACKS = {"all": -1, "-1": -1, "1": 1}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# librdkafka's: a broker that is asked for less has more to do.
_BATCH_BYTES = 1_000_000
_METADATA_MS = 300_000
_UNKNOWN_TOPIC_MS = 30_000

_UNDERSTOOD = frozenset(
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
    """How records are sent.

    Attributes:
        acks: -1 (all) or 1.
        idempotent: Whether brokers leave out what is sent to them twice.
        compression: The codec's name.
        level: Of the codec; None: its default.
        batch_bytes: A record batch is full with so many bytes, before compression.
        record_bytes: No record may be larger.
        linger: Seconds after which a record batch goes out that is not full, if records still come.
        delivery_timeout: Seconds in which a record batch has to be acknowledged.
        request_timeout: Seconds for a broker's answer.
        retry: The pauses between attempts.
        metadata_age: Seconds after which the leaders are asked for anew.
        unknown_topic_timeout: Seconds for which a topic may be not there.
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
        """From the user's settings, of which none is `foreign`.

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


def foreign(settings: Settings) -> list[str]:
    """The settings that only librdkafka follows."""
    known = _UNDERSTOOD | java_names.GROUP | java_names.SECURITY | java_names.IGNORED
    found = sorted(name for name in settings if name not in known)
    if settings.get("acks", "all").lower() not in _ACKS:
        found.append("acks")
    if settings.get("compression.type", "none").lower() not in _CODECS:
        found.append("compression.type")
    if settings.integer("retries") == 0:
        found.append("retries")
    return found
