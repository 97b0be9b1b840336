"""A task's connections: blocking sockets with login, one request in flight, time-outs, throttling, a pool.

`BlockingConnection` is one socket after its handshakes. `RequestConnection` has one request in flight over this socket.
`IdleConnections` keeps `RequestConnection` objects for the next task of a worker process.
"""

import math
import select
import socket
import struct
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from kafka_source.client_config.servers import Endpoint
from kafka_source.errors import RetriableError
from kafka_source.kafka_client.addresses import connect_first
from kafka_source.kafka_client.connection import ConnectionLost, explain_failure
from kafka_source.kafka_client.framing import (
    HANDSHAKE_BYTES,
    RESPONSE_BYTES,
    FrameError,
    read_frame,
    read_frame_size,
    read_into,
)
from kafka_source.kafka_client.handshake import Call, Identity, Session, advance, handshake
from kafka_source.kafka_client.messages import ApiVersions, decode_response, encode_request
from kafka_source.kafka_client.settings import ConnectionSettings


class BlockingConnection:
    """A blocking socket after the TLS and SASL handshakes; use it from one thread at a time.

    Attributes:
        socket: The socket, ready for requests; `recv_into` works with and without TLS.
        versions: The API versions and features that the broker supports.
        expires_at: The time at which the broker ends the session (KIP-368), in `time.monotonic()` seconds; None: never.
            Open a new connection before this time.
        client_id: The client id in the header of each request.
        round_trip: The seconds of the fastest request, including the handshake's requests.
    """

    def __init__(
        self, sock: socket.socket, session: Session, client_id: str, endpoint: Endpoint, round_trip: float
    ) -> None:
        self.socket = sock
        self.versions: ApiVersions = session.versions
        self.expires_at = session.expires_at
        self.client_id = client_id
        self.endpoint = endpoint
        self.round_trip = round_trip

    @classmethod
    def open(
        cls, endpoint: Endpoint, settings: ConnectionSettings, expected: Identity | None = None
    ) -> "BlockingConnection":
        """Connect and authenticate within `settings.connect_timeout`; the returned connection has no timeout.

        `expected` is as in `handshake`.

        Raises:
            ConnectionLost: No broker, or another broker, answers at the endpoint.
            AuthenticationError: TLS or SASL fails.
        """
        sock: socket.socket | None = None
        until = time.monotonic() + settings.connect_timeout
        try:
            sock = connect_first(endpoint.host, endpoint.port, settings.connect_timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            settings.set_buffers(sock)
            if settings.tls is not None:
                sock = settings.tls.wrap_socket(sock, server_hostname=endpoint.host)
            session, round_trip = _shake_hands(sock, endpoint, settings, expected, until)
            sock.settimeout(None)
            return cls(sock, session, settings.client_id, endpoint, round_trip)
        except BaseException as problem:
            if sock is not None:
                sock.close()
            if isinstance(problem, OSError | RetriableError | FrameError):
                raise explain_failure(endpoint, problem, tls=settings.tls is not None) from None
            raise

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def _shake_hands(
    sock: socket.socket, endpoint: Endpoint, settings: ConnectionSettings, expected: Identity | None, until: float
) -> tuple[Session, float]:
    """Return the session, and the seconds of the fastest request; end at `until`."""
    fastest = math.inf
    talk = handshake(endpoint, settings.sasl, expected)
    step: Call | Session = next(talk)
    correlation_id = 0
    while isinstance(step, Call):
        correlation_id += 1
        sent_at = time.monotonic()
        sock.sendall(encode_request(step.request, correlation_id, settings.client_id, step.version))
        frame = read_frame(sock, HANDSHAKE_BYTES, until=until)
        fastest = min(fastest, time.monotonic() - sent_at)
        try:
            response = decode_response(step.request, step.version, correlation_id, frame)
        except ValueError as problem:
            raise FrameError(f"it sent a malformed answer to {step.request.name}: {problem}") from None
        step = advance(talk, response)
    return step, fastest


_CORRELATION = struct.Struct(">i")
_RENEW_SECONDS, _RENEW_SHARE = 10.0, 0.15


class RequestConnection:
    """Sends one request at a time, and reads its response into a buffer of the caller.

    Args:
        raw: An authenticated connection; this object takes ownership of it.
        what: The purpose of the connection as the beginning of a sentence in errors: "Fetching from".
        timeout: The time limit in seconds for a response's first byte, and again from the first byte to the last byte.
            After this time the connection counts as lost.
        max_bytes: The maximum size of a response.

    Attributes:
        waiting: Whether a response is outstanding, so that another owner cannot use the connection.
        ready_at: The earliest time (`time.monotonic()`) for the next request, because of throttling (KIP-219).
    """

    def __init__(self, raw: BlockingConnection, *, what: str, timeout: float, max_bytes: int = RESPONSE_BYTES) -> None:
        raw.socket.settimeout(timeout)
        self._raw = raw
        self._what = what
        self._timeout = timeout
        self._max_bytes = max_bytes
        expires, now = raw.expires_at, time.monotonic()
        self._renew_at = None if expires is None else expires - min(_RENEW_SECONDS, _RENEW_SHARE * (expires - now))
        self._correlation = 0
        self._sent_at = 0.0
        self.waiting = False
        self.ready_at = 0.0

    @property
    def round_trip(self) -> float:
        """The shortest time on this connection from a request to the first byte of its response, in seconds."""
        return self._raw.round_trip

    @property
    def expiring(self) -> bool:
        """Whether the session expires soon (KIP-368), so that the owner should open a new connection.

        A connection that is busy is not replaced: a new one would have to wait for the end of a pause, too.
        """
        return self._renew_at is not None and time.monotonic() > self._renew_at and not self.busy

    @property
    def busy(self) -> bool:
        """Whether a response is outstanding, or the broker throttles this client on every connection."""
        return self.waiting or time.monotonic() < self.ready_at

    @property
    def overdue_at(self) -> float:
        """The time (`time.monotonic()`) from which the outstanding response counts as lost."""
        return self._sent_at + self._timeout

    def fileno(self) -> int:
        """Return the socket's file descriptor, to wait for the first byte of a response."""
        return self._raw.socket.fileno()

    def send_request(self, encode: Callable[[str, int], bytes]) -> None:
        """Send a request; read its response with `receive_response`.

        Args:
            encode: Returns the request with its length prefix, given the client id and a correlation id.

        Raises:
            ConnectionLost: The connection was lost.
        """
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        request = encode(self._raw.client_id, self._correlation)
        # Set first, because a connection on which sending has failed halfway must not be used again.
        self.waiting = True
        try:
            self._raw.socket.sendall(request)
        except OSError as problem:
            raise self.lost(str(problem)) from None
        self._sent_at = time.monotonic()

    def receive_response(self, buffer: bytearray) -> tuple[bytearray, int]:
        """Return the response to the last `send_request`, as a buffer and a size; `buffer` if it is large enough.

        Raises:
            ConnectionLost: The connection was lost, or the response was not complete within the timeout.
        """
        # The timeout starts here: while the connection's owner worked, the response may have been in the buffer.
        until = time.monotonic() + self._timeout
        try:
            size = read_frame_size(self._raw.socket, self._max_bytes, until=until)
            self._raw.round_trip = min(self._raw.round_trip, time.monotonic() - self._sent_at)
            if len(buffer) < size:
                buffer = bytearray(size)
            read_into(self._raw.socket, memoryview(buffer)[:size], until=until)
            self._raw.socket.settimeout(self._timeout)
        except (OSError, FrameError) as problem:
            raise self.lost(str(problem)) from None
        if _CORRELATION.unpack_from(buffer)[0] != self._correlation:
            raise self.lost("it answered another request")
        self.waiting = False
        return buffer, size

    def throttle(self, throttle_ms: int) -> None:
        """Send no request for `throttle_ms`, as the broker demands (KIP-219)."""
        self.ready_at = time.monotonic() + throttle_ms / 1000

    def lost(self, problem: str) -> ConnectionLost:
        """Return the error to raise when the connection can no longer be used."""
        return ConnectionLost(f"{self._what} {self._raw.endpoint} failed: {problem}.")

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()


_Key = TypeVar("_Key", bound=Hashable)
_Connection = TypeVar("_Connection", bound=RequestConnection)


class IdleConnections(Generic[_Key, _Connection]):
    """A pool of at most one idle connection for each key; a caller that takes one has exclusive use of it."""

    def __init__(self) -> None:
        self._idle: dict[_Key, _Connection] = {}
        self._closed = False

    def take(self, key: _Key) -> _Connection | None:
        """Return the idle connection, or None; close a connection that is expiring."""
        kept = self._idle.pop(key, None)
        if kept is not None and kept.expiring:
            kept.close()
            return None
        return kept

    def keep(self, key: _Key, connection: _Connection) -> None:
        """Put a connection back; close it if a response is still outstanding, or after `close`."""
        if self._closed or connection.waiting or key in self._idle:
            connection.close()
        else:
            self._idle[key] = connection

    def close(self) -> None:
        """Close all idle connections, and each connection that is put back later."""
        self._closed = True
        while self._idle:
            self._idle.popitem()[1].close()


def poll_readable(connections: Iterable[RequestConnection], until: float) -> set[int]:
    """Wait until a response starts to arrive.

    Args:
        connections: The connections to watch. The wait also ends when a pause (KIP-219) ends or a response is overdue.
        until: The latest end of the wait (`time.monotonic()`); a time in the past means no wait.

    Returns:
        The file descriptors of the connections on which a response has started to arrive.
    """
    now = time.monotonic()
    poll = select.poll()
    for connection in connections:
        if connection.waiting:
            poll.register(connection, select.POLLIN)
            until = min(until, connection.overdue_at)
        elif connection.ready_at > now:
            until = min(until, connection.ready_at)
    return {descriptor for descriptor, _ in poll.poll(max(0.0, until - now) * 1000)}
