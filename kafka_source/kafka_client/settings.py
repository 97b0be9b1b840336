"""Read the settings of connections: time-outs, back-offs, buffers, TLS and the login."""

import contextlib
import socket
import ssl
from dataclasses import dataclass, field

from kafka_source.client_config import Settings
from kafka_source.client_config.sasl import security_protocol
from kafka_source.client_config.servers import Endpoint, parse_servers
from kafka_source.client_config.tls import ssl_context, tls_of
from kafka_source.kafka_client.sasl import Login
from kafka_source.model.identity import MOVED_FROM
from kafka_source.runtime.retry import RetryPolicy

# Less than Java's five minutes, because a client of a broker that is cut off may miss new records for this time.
_METADATA_AGE_MS = 10_000


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The settings of a client's connections.

    Attributes:
        bootstrap: The endpoints of `bootstrap.servers`.
        client_id: The client id in every request's header.
        tls: The TLS context, or None without TLS.
        sasl: The login, or None without SASL. The login contains secrets, so `repr` leaves it out.
        connect_timeout: Seconds for the whole opening of a connection: all addresses of a name, TLS and SASL.
        request_timeout: Seconds to wait for a response.
        retry: The pauses between attempts.
        reconnect: The pauses before the next connection to a broker that could not be reached.
        rebootstrap_after: Seconds without metadata until the client rebootstraps (KIP-1102); None: never.
        receive_buffer: The size of the socket's receive buffer (`receive.buffer.bytes`); None: the system's size.
        send_buffer: The size of the socket's send buffer (`send.buffer.bytes`); None: the system's size.
        metadata_age: Seconds after which metadata are requested from another broker (`metadata.max.age.ms`).
        moved_from: The id of the topics' previous cluster (`cluster.moved.from`), or None.
    """

    bootstrap: tuple[Endpoint, ...]
    client_id: str
    tls: ssl.SSLContext | None
    sasl: Login | None = field(repr=False)
    connect_timeout: float
    request_timeout: float
    retry: RetryPolicy
    reconnect: RetryPolicy
    rebootstrap_after: float | None
    metadata_age: float
    moved_from: str | None = None
    receive_buffer: int | None = None
    send_buffer: int | None = None

    def set_buffers(self, sock: socket.socket) -> None:
        """Set the sizes of a socket's buffers, if the operating system allows them."""
        for option, size in ((socket.SO_RCVBUF, self.receive_buffer), (socket.SO_SNDBUF, self.send_buffer)):
            if size is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, option, size)

    @property
    def bootstrap_names(self) -> str:
        """The endpoints of `bootstrap.servers`, separated by commas."""
        return ",".join(map(str, self.bootstrap))

    @classmethod
    def of(cls, settings: Settings, client_id: str | None = None) -> "ConnectionSettings":
        """Return the connection settings for Kafka client settings under their Java names.

        Raises:
            OptionError: A value is invalid, or a TLS file cannot be read.
        """
        first_pause, longest_pause = settings.reconnect_backoff_ms()
        return cls(
            bootstrap=parse_servers(settings.get("bootstrap.servers", "")),
            client_id=client_id or settings.client_id(),
            tls=ssl_context(tls_of(settings)) if security_protocol(settings).endswith("SSL") else None,
            sasl=Login.of(settings),
            connect_timeout=settings.seconds("socket.connection.setup.timeout.ms", 10_000),
            request_timeout=settings.seconds("request.timeout.ms", 30_000),
            retry=retry_policy(settings),
            reconnect=RetryPolicy(first_pause / 1000, longest_pause / 1000),
            rebootstrap_after=rebootstrap_after(settings),
            metadata_age=settings.seconds("metadata.max.age.ms", _METADATA_AGE_MS),
            moved_from=settings.get(MOVED_FROM),
            receive_buffer=_buffer_size(settings, "receive.buffer.bytes"),
            send_buffer=_buffer_size(settings, "send.buffer.bytes"),
        )


def _buffer_size(settings: Settings, name: str) -> int | None:
    size = settings.integer(name)
    # -1 is Java's value for the operating system's size.
    return None if size is None or size < 0 else size


def retry_policy(settings: Settings) -> RetryPolicy:
    """Return the policy that `retry.backoff.ms` and `retry.backoff.max.ms` define; the defaults are Java's."""
    return RetryPolicy(settings.seconds("retry.backoff.ms", 100), settings.seconds("retry.backoff.max.ms", 1_000))


def rebootstrap_after(settings: Settings) -> float | None:
    """Return the seconds without metadata until a client rebootstraps (KIP-1102); None: never."""
    if settings.get("metadata.recovery.strategy", "rebootstrap").lower() == "none":
        return None
    return settings.seconds("metadata.recovery.rebootstrap.trigger.ms", 300_000)
