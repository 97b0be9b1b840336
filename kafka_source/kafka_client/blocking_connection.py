"""An authenticated connection on a blocking socket, for engines that read responses into their own buffers."""

from __future__ import annotations

import math
import socket
import struct
import time
from types import TracebackType
from typing import Any

from kafka_source.errors import RetriableError
from kafka_source.kafka_client.connection import ConnectionLost, explain_failure
from kafka_source.kafka_client.framing import HANDSHAKE_BYTES, RESPONSE_BYTES, FrameError, read_frame
from kafka_source.kafka_client.handshake import Call, Session, advance, handshake
from kafka_source.kafka_client.messages import ApiVersions, decode_response, encode_request
from kafka_source.kafka_client.settings import ConnectionSettings, Endpoint


class BlockingConnection:
    """A blocking socket after the TLS and SASL handshakes; use it from one thread at a time.

    Attributes:
        socket: Ready for requests; `recv_into` works with and without TLS.
        versions: The API versions and features that the broker supports.
        expires_at: The time at which the broker ends the session (KIP-368), in `time.monotonic()` seconds; None: never.
            Open a new connection before then.
        client_id: The client id in the header of each request.
        round_trip: The seconds from the fastest request to its response: at first one of the handshake, later also one
            of the owner's.
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
    def open(cls, endpoint: Endpoint, settings: ConnectionSettings) -> BlockingConnection:
        """Connect and authenticate within `settings.connect_timeout`; afterwards the socket has no timeout.

        Raises:
            ConnectionLost: No broker answers at the endpoint.
            AuthenticationError: TLS or SASL fails.
        """
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection((endpoint.host, endpoint.port), settings.connect_timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            settings.set_buffers(sock)
            if settings.tls is not None:
                sock = settings.tls.wrap_socket(sock, server_hostname=endpoint.host)
            session, round_trip = _shake_hands(sock, endpoint, settings)
            sock.settimeout(None)
            return cls(sock, session, settings.client_id, endpoint, round_trip)
        except BaseException as problem:
            if sock is not None:
                sock.close()
            if isinstance(problem, OSError | RetriableError | FrameError):
                raise explain_failure(endpoint, problem, tls=settings.tls is not None) from None
            raise

    def encode(self, request: Any, correlation_id: int, max_version: int | None = None) -> bytes:
        """Return a request as bytes with its length prefix, in the newest version that both sides support."""
        return encode_request(request, correlation_id, self.client_id, self.versions.version_for(request, max_version))

    def decode(self, request: Any, payload: bytes | memoryview) -> Any:
        """Return the response to a request that `encode` encoded; `payload` has no length prefix."""
        return decode_response(request, payload)

    def exchange(self, request: Any, timeout: float, max_version: int | None = None) -> Any:
        """Send one request and return its response.

        Raises:
            ConnectionLost: The connection was lost, or no response arrived within `timeout` seconds. It is closed.
        """
        try:
            self.socket.settimeout(timeout)
            self.socket.sendall(self.encode(request, time.monotonic_ns() & 0x7FFFFFFF, max_version))
            response = decode_response(request, read_frame(self.socket, RESPONSE_BYTES))
            self.socket.settimeout(None)
            return response
        except (OSError, ValueError, IndexError, struct.error) as problem:
            self.close()
            raise ConnectionLost(f"{request.name} to {self.endpoint} failed: {problem}.") from None

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _shake_hands(sock: socket.socket, endpoint: Endpoint, settings: ConnectionSettings) -> tuple[Session, float]:
    """Return the session, and the seconds of the fastest request."""
    fastest = math.inf
    talk = handshake(endpoint, settings.sasl)
    step: Call | Session = next(talk)
    correlation_id = 0
    while isinstance(step, Call):
        correlation_id += 1
        sent_at = time.monotonic()
        sock.sendall(encode_request(step.request, correlation_id, settings.client_id, step.version))
        frame = read_frame(sock, HANDSHAKE_BYTES)
        fastest = min(fastest, time.monotonic() - sent_at)
        try:
            response = decode_response(step.request, frame)
        except (ValueError, IndexError, struct.error) as problem:
            raise FrameError(f"it sent a malformed answer to {step.request.name}: {problem}") from None
        step = advance(talk, response)
    return step, fastest
