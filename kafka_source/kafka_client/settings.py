"""What a connection needs to know, from the client's settings."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import security_protocol
from kafka_source.client_config.tls import ssl_context, tls_of
from kafka_source.errors import OptionError
from kafka_source.kafka_client.sasl_arguments import sasl_arguments
from kafka_source.model.cluster_identity import MOVED_FROM
from kafka_source.runtime.retry import RetryPolicy

_DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to connect.

    Attributes:
        bootstrap: The servers of `bootstrap.servers`.
        client_id: The name under which the brokers know us.
        tls: The context for TLS, or None.
        sasl: kafka-python's arguments for its SASL mechanism, or None. Holds secrets, so it is in no repr.
        connect_timeout: Seconds for TCP, TLS and SASL together.
        request_timeout: Seconds for a request's answer.
        retry: The pauses between attempts.
        rebootstrap_after: Seconds without metadata until the client starts over (KIP-1102); None: never.
        moved_from: The id of a cluster that was left for another on purpose.
    """

    bootstrap: tuple[Endpoint, ...]
    client_id: str
    tls: ssl.SSLContext | None
    sasl: Mapping[str, object] | None = field(repr=False)
    connect_timeout: float
    request_timeout: float
    retry: RetryPolicy
    rebootstrap_after: float | None
    moved_from: str | None = None

    @property
    def bootstrap_names(self) -> str:
        """`bootstrap.servers` as the user wrote them."""
        return ",".join(map(str, self.bootstrap))

    @classmethod
    def of(cls, settings: Settings, client_id: str | None = None) -> ConnectionSettings:
        """From the Kafka clients' settings under their Java names.

        Raises:
            OptionError: A value is not taken, or a file of TLS cannot be read.
        """
        return cls(
            bootstrap=parse_servers(settings.get("bootstrap.servers", "")),
            client_id=client_id or settings.client_id(),
            tls=ssl_context(tls_of(settings)) if security_protocol(settings).endswith("SSL") else None,
            sasl=sasl_arguments(settings),
            connect_timeout=settings.seconds("socket.connection.setup.timeout.ms", 10_000),
            request_timeout=settings.seconds("request.timeout.ms", 30_000),
            retry=retry_policy(settings),
            rebootstrap_after=rebootstrap_after(settings),
            moved_from=settings.get(MOVED_FROM),
        )


def retry_policy(settings: Settings) -> RetryPolicy:
    """Return the pauses that `retry.backoff.ms` and `retry.backoff.max.ms` ask for; the defaults are Java's."""
    return RetryPolicy(settings.seconds("retry.backoff.ms", 100), settings.seconds("retry.backoff.max.ms", 1_000))


def rebootstrap_after(settings: Settings) -> float | None:
    """Seconds without metadata until a client starts over (KIP-1102); None: it never does."""
    if settings.get("metadata.recovery.strategy", "rebootstrap").lower() == "none":
        return None
    return settings.seconds("metadata.recovery.rebootstrap.trigger.ms", 300_000)


def parse_servers(servers: str) -> tuple[Endpoint, ...]:
    """`host:port,[v6::address]:port` as endpoints.

    Raises:
        OptionError: There is none, or one is malformed.
    """
    found = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host, colon, port = server.rpartition(":")
        if not colon or server.endswith("]"):
            host, port = server, str(_DEFAULT_PORT)
        if not port.isdecimal() or not host.strip("[]"):
            raise OptionError("kafka.bootstrap.servers", servers, "host:port, several separated by commas")
        found.append(Endpoint(host.strip("[]"), int(port)))
    if not found:
        raise OptionError("kafka.bootstrap.servers", servers or None, "host:port, several separated by commas")
    return tuple(found)
