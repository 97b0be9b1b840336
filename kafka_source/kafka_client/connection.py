"""A connection on the event loop: requests, time-outs, throttling (KIP-219), expiring sessions, errors."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import re
import socket
import ssl
import time
from typing import TypeVar, cast

from kafka_source.client_config.servers import Endpoint
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, KafkaGroupError, RefreshRetriableError, RetriableError
from kafka_source.kafka_client import addresses
from kafka_source.kafka_client.framing import HANDSHAKE_BYTES, RESPONSE_BYTES, FrameBuffer, FrameError, StreamEnded
from kafka_source.kafka_client.handshake import Call, Identity, Session, advance, handshake
from kafka_source.kafka_client.messages import ApiVersions, Request, decode_response, encode_request
from kafka_source.kafka_client.settings import ConnectionSettings
from kafka_source.runtime.event_loop import answer_within

_R = TypeVar("_R")

# The part of a session's lifetime after which the connection is replaced; Java's client uses 0.85 to 0.95.
_REAUTHENTICATE_AT = 0.85

# The part of a request's time limit that a pause may take. The rest is for the response: if the response came too late,
# the connection would be closed, and a new login would load the throttling broker even more.
_MAX_PAUSE_SHARE = 0.5
# Seconds from which a pause is a warning.
_LONG_PAUSE = 1.0

log = logging.getLogger(__name__)

# The TLS alerts of a broker that gets no client certificate or does not trust it.
_ABOUT_CERTIFICATE = re.compile("ALERT_.*(CERTIFICATE|UNKNOWN_CA)|ALERT_ACCESS_DENIED")
# Python's errors for a peer that has closed the connection without an alert; Java raises EOFException.
_TLS_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


class ConnectionLost(RefreshRetriableError):  # noqa: N818 - what happened, not a kind of error
    """A connection could not be opened, was lost, or gave no response in time."""


class HandshakeEnded(ConnectionLost):
    """The peer ended the connection before a client was logged in.

    Args:
        message: The event, as a sentence.
        advice: The advice for a client that has never logged in with its settings.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class UnexpectedAnswer(ConnectionLost):
    """The peer is not a Kafka broker, or its response is damaged, as the message states."""


class BrokerThrottles(RetriableError):  # noqa: N818 - what happens, not a kind of error
    """A quota throttles this client beyond the request's deadline (KIP-219); the connection stays open."""


class Connection:
    """A connection that belongs to the event loop on which `open` was called."""

    def __init__(self, endpoint: Endpoint, client_id: str, wire: _Wire) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._wire = wire
        self._session = Session(ApiVersions({}))
        self._opened_at = time.monotonic()
        self._correlation_id = 0
        # The earliest time at which the next request may be sent (KIP-219).
        self._ready_at = 0.0

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        settings: ConnectionSettings,
        timeout: float | None = None,
        expected: Identity | None = None,
    ) -> Connection:
        """Connect to the first address of the host that answers, and authenticate; `expected` as in `handshake`.

        Raises:
            ConnectionLost: No broker, or another broker, answers at the endpoint; the message gives the reason.
            AuthenticationError: TLS or SASL fails.
        """
        seconds = settings.connect_timeout if timeout is None else min(timeout, settings.connect_timeout)
        try:
            return await asyncio.wait_for(cls._open(endpoint, settings, expected), seconds)
        except asyncio.TimeoutError:
            raise ConnectionLost(f"The broker {endpoint} did not answer within {seconds:g} s.") from None
        except (OSError, RetriableError) as problem:
            raise explain_failure(endpoint, problem, tls=settings.tls is not None) from None

    @classmethod
    async def _open(cls, endpoint: Endpoint, settings: ConnectionSettings, expected: Identity | None) -> Connection:
        connection = cls(endpoint, settings.client_id, await _connect(endpoint, settings))
        try:
            connection._session = await connection._shake_hands(settings, expected)
            connection._wire.accept(RESPONSE_BYTES)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def versions(self) -> ApiVersions:
        """The API versions and features that the broker supports."""
        return self._session.versions

    @property
    def checks_identity(self) -> bool:
        """Whether the broker refuses clients that name another broker (KIP-1242)."""
        return self._session.checks_identity

    @property
    def usable(self) -> bool:
        """Whether requests can be sent: the connection is open and its session does not expire soon (KIP-368)."""
        expires = self._session.expires_at
        if expires is not None:
            soon = self._opened_at + _REAUTHENTICATE_AT * (expires - self._opened_at)
            if time.monotonic() >= soon:
                return False
        return not self._wire.closed

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._wire.closed

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer yet."""
        return self._wire.waiting

    async def send(self, request: Request[_R], timeout: float, max_version: int | None = None) -> _R:
        """Send a request and return its response; the caller checks the error codes in it.

        Raises:
            ConnectionLost: The connection was lost, or no response arrived within `timeout` seconds. After a timeout
                the connection is closed, because brokers respond in order, so later responses would wait too.
            BrokerThrottles: The broker demands a pause that would leave too little of `timeout`.
        """
        end = time.monotonic() + timeout
        while (pause := self._ready_at - time.monotonic()) > 0 and not self.closed:
            if pause > _MAX_PAUSE_SHARE * timeout:
                raise BrokerThrottles(
                    f"{self.endpoint} throttles this client by a quota for another {pause:.1f} s (KIP-219). Check the "
                    "quotas of this client's user and client.id."
                )
            await asyncio.sleep(pause)
        timeout = max(0.001, end - time.monotonic())
        return await self._send(request, self.versions.version_for(request, max_version), timeout)

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._wire.close("it was closed here")

    def retire(self) -> None:
        """Close the connection when no request is in flight; the caller sends no more requests over it."""
        self._wire.retire("another connection has replaced it")

    async def _send(self, request: Request[_R], version: int, timeout: float) -> _R:
        correlation_id = self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        data = encode_request(request, correlation_id, self._client_id, version)
        answer = self._wire.exchange(data)
        try:
            payload = await answer_within(answer, timeout)
            response = decode_response(request, version, correlation_id, payload)
            self._obey(getattr(response, "throttle_time_ms", 0), request.name)
            return response
        except asyncio.TimeoutError:
            self._wire.close("a request was not answered")
            raise ConnectionLost(f"{request.name} got no answer from {self.endpoint} within {timeout:g} s.") from None
        except FrameError as problem:
            raise UnexpectedAnswer(f"The connection to {self.endpoint} was closed: {problem}.") from None
        except ssl.SSLError as alert:
            raise explain_failure(self.endpoint, alert, tls=True) from None
        except _WireError as closed:
            raise ConnectionLost(f"The connection to {self.endpoint} was lost: {closed}.") from None
        except ValueError as error:
            self._wire.close("a response was malformed")
            raise UnexpectedAnswer(f"{self.endpoint} sent a malformed answer to {request.name}: {error}.") from error

    def _obey(self, throttle_ms: int, name: str) -> None:
        """Send nothing for this time, because the broker does not read from a throttled connection."""
        if throttle_ms <= 0:
            return
        pause = throttle_ms / 1000
        self._ready_at = max(self._ready_at, time.monotonic() + pause)
        level = logging.WARNING if pause >= _LONG_PAUSE else logging.DEBUG
        log.log(level, "throttle broker=%s request=%s pause_s=%.2f", self.endpoint, name, pause)

    async def _shake_hands(self, settings: ConnectionSettings, expected: Identity | None) -> Session:
        talk = handshake(self.endpoint, settings.sasl, expected)
        step: Call | Session = next(talk)
        while isinstance(step, Call):
            # `open` limits the time of the whole handshake, so this timeout never expires first.
            response = await self._send(step.request, step.version, settings.connect_timeout)
            # Run in another thread, because the event loop must send heartbeats while hashes or a token are made.
            step = await asyncio.get_running_loop().run_in_executor(None, advance, talk, response)
        return step


def explain_failure(endpoint: Endpoint, problem: Exception, *, tls: bool) -> KafkaGroupError:
    """Return the error to raise when connecting to `endpoint` failed with `problem`."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return AuthenticationError(
            f"The TLS certificate of {endpoint} is not trusted: {problem.verify_message}. "
            "Check kafka.ssl.truststore.location and kafka.ssl.endpoint.identification.algorithm."
        )
    if isinstance(problem, _TLS_ENDED) or (tls and isinstance(problem, ConnectionResetError)):
        return HandshakeEnded(
            f"The broker {endpoint} ended the connection during the TLS handshake.",
            "The broker is shutting down, or its listener has no TLS: check kafka.security.protocol.",
        )
    if isinstance(problem, ssl.SSLError) and _ABOUT_CERTIFICATE.search(problem.reason or ""):
        return AuthenticationError(
            f"The broker {endpoint} refuses this client's certificate, or requires one: {problem.reason}. Set "
            "kafka.ssl.keystore.location, or kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key, to a "
            "certificate that the broker trusts, with its intermediate certificates."
        )
    if isinstance(problem, ssl.SSLError):
        return AuthenticationError(
            f"The TLS handshake with {endpoint} failed: {problem.reason or problem}. "
            "Check kafka.security.protocol and the kafka.ssl.* options."
        )
    if isinstance(problem, socket.gaierror):
        return ConnectionLost(f"The host name {endpoint.host} cannot be resolved: {problem.strerror}.")
    if isinstance(problem, UnexpectedAnswer | HandshakeEnded):
        return problem
    if isinstance(problem, FrameError):
        return UnexpectedAnswer(f"The connection to {endpoint} was closed: {problem}.")
    # A peer that closes a connection before it has read all bytes resets the connection.
    if isinstance(problem, ConnectionLost | StreamEnded | ConnectionResetError | BrokenPipeError):
        return HandshakeEnded(
            f"The broker {endpoint} ended the connection during the handshake.",
            "Perhaps the listener requires SASL, or a client certificate: check kafka.security.protocol and "
            "kafka.ssl.keystore.location."
            if tls
            else "Perhaps the listener requires TLS or SASL: check kafka.security.protocol.",
        )
    if isinstance(problem, RetriableError) and problem.code == ErrorCode.REBOOTSTRAP_REQUIRED:
        return ConnectionLost(str(problem), code=problem.code)
    if isinstance(problem, RetriableError):
        return ConnectionLost(f"Logging in to the broker {endpoint} failed: {problem}")
    reason = (problem.strerror if isinstance(problem, OSError) else None) or str(problem) or type(problem).__name__
    return ConnectionLost(f"The broker {endpoint} cannot be reached: {reason}.")


class _WireError(Exception):
    pass


class _Wire(asyncio.Protocol):
    """Writes requests and matches responses to them; a broker sends responses in the order of the requests."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._frames = FrameBuffer(HANDSHAKE_BYTES)
        self._answers: collections.deque[asyncio.Future[bytes]] = collections.deque()
        self._reason: str | FrameError | ssl.SSLError = "it is not open"
        self._retired: str | None = None
        self.closed = True

    @property
    def waiting(self) -> int:
        return len(self._answers)

    def accept(self, max_bytes: int) -> None:
        """Set the maximum size of a response."""
        self._frames.max_bytes = max_bytes

    def set_buffers(self, settings: ConnectionSettings) -> None:
        """Set the sizes of the socket's buffers."""
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        if raw is not None:
            settings.set_buffers(raw)

    def exchange(self, data: bytes) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.closed or self._transport is None:
            answer.set_exception(self._error())
            return answer
        self._answers.append(answer)
        self._transport.write(data)
        return answer

    def close(self, reason: str | FrameError | ssl.SSLError) -> None:
        if self.closed:
            return
        self.closed, self._reason = True, reason
        if self._transport is not None:
            # Do not call close(), which waits until the peer has read the buffered data. A frozen peer never reads.
            self._transport.abort()
        while self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_exception(self._error())

    def retire(self, reason: str) -> None:
        self._retired = reason
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._retired is not None and not self._answers:
            self.close(self._retired)

    def _error(self) -> Exception:
        return _WireError(self._reason) if isinstance(self._reason, str) else self._reason

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # `create_connection` always passes an asyncio.Transport; the protocol's signature is wider.
        self._transport, self.closed = cast(asyncio.Transport, transport), False
        raw = transport.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        # With TLS 1.3 the broker refuses a client's certificate after the handshake.
        if isinstance(exc, ssl.SSLError) and _ABOUT_CERTIFICATE.search(exc.reason or ""):
            self.close(exc)
        else:
            self.close("the broker closed it" if exc is None else str(exc))

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                if not self._answers:
                    self.close("the broker sent a response without a request")
                    return
                answer = self._answers.popleft()
                if not answer.done():
                    answer.set_result(frame)
            self._close_if_retired()
        except FrameError as problem:
            self.close(problem)


async def _connect(endpoint: Endpoint, settings: ConnectionSettings) -> _Wire:
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(
        _Wire,
        endpoint.host,
        endpoint.port,
        ssl=settings.tls,
        server_hostname=endpoint.host if settings.tls is not None else None,
        # Do not race if there is only one address: asyncio loses a socket if a race is cancelled just as it ends.
        happy_eyeballs_delay=None if addresses.is_address(endpoint.host) else addresses.DELAY_SECONDS,
    )
    wire.set_buffers(settings)
    return wire
