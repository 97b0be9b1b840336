"""A connection with one request in flight at a time, whose response is read when the owner is ready for it."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from kafka_source.kafka_client.blocking_connection import BlockingConnection
from kafka_source.kafka_client.connection import ConnectionLost
from kafka_source.kafka_client.framing import RESPONSE_BYTES, FrameError, read_frame_size, read_into

_CORRELATION = struct.Struct(">i")
_RENEW_SECONDS, _RENEW_SHARE = 10.0, 0.15


class RequestConnection:
    """Sends requests, one at a time, and reads each response into a buffer of the caller.

    Args:
        raw: An authenticated connection; this object takes ownership of it.
        what: The purpose of the connection as the beginning of a sentence in errors: "Fetching from".
        timeout: Seconds without a byte of an outstanding response after which the connection counts as lost.
        most_bytes: The maximum size of a response.

    Attributes:
        waiting: Whether a response is outstanding; another owner cannot use the connection then.
        ready_at: The earliest time at which the next request may be sent (KIP-219 throttling), `time.monotonic()`.
    """

    def __init__(self, raw: BlockingConnection, *, what: str, timeout: float, most_bytes: int = RESPONSE_BYTES) -> None:
        raw.socket.settimeout(timeout)
        self._raw = raw
        self._what = what
        self._timeout = timeout
        self._most_bytes = most_bytes
        expires, now = raw.expires_at, time.monotonic()
        self._renew_at = None if expires is None else expires - min(_RENEW_SECONDS, _RENEW_SHARE * (expires - now))
        self._correlation = 0
        self._sent_at = 0.0
        self.waiting = False
        self.ready_at = 0.0

    @property
    def round_trip(self) -> float:
        """The seconds from the fastest request on this connection to the first byte of its response."""
        return self._raw.round_trip

    @property
    def spent(self) -> bool:
        """Whether the session expires soon (KIP-368), so that the owner should open a new connection."""
        return self._renew_at is not None and time.monotonic() > self._renew_at

    @property
    def busy(self) -> bool:
        """Whether a response is outstanding, or the broker throttles this client, on every connection."""
        return self.waiting or time.monotonic() < self.ready_at

    @property
    def overdue_at(self) -> float:
        """The time (`time.monotonic()`) from which the outstanding response counts as lost."""
        return self._sent_at + self._timeout

    def fileno(self) -> int:
        """Return the socket's file descriptor, to wait for the first byte of a response."""
        return self._raw.socket.fileno()

    def post(self, encode: Callable[[str, int], bytes]) -> None:
        """Send a request; read its response with `take`.

        Args:
            encode: Returns the request with its length prefix, given the client id and a correlation id.

        Raises:
            ConnectionLost: The connection was lost.
        """
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        request = encode(self._raw.client_id, self._correlation)
        # Set before the request is sent: if sending fails halfway, the connection must not be used again.
        self.waiting = True
        try:
            self._raw.socket.sendall(request)
        except OSError as problem:
            raise self.lost(str(problem)) from None
        self._sent_at = time.monotonic()

    def take(self, buffer: bytearray) -> tuple[bytearray, int]:
        """Return the response to the last `post`: the buffer that contains it, `buffer` or a larger one, and its size.

        Raises:
            ConnectionLost: The connection was lost, or no byte arrived within the timeout.
        """
        try:
            size = read_frame_size(self._raw.socket, self._most_bytes)
            self._raw.round_trip = min(self._raw.round_trip, time.monotonic() - self._sent_at)
            if len(buffer) < size:
                buffer = bytearray(size)
            read_into(self._raw.socket, memoryview(buffer)[:size])
        except (OSError, FrameError) as problem:
            raise self.lost(str(problem)) from None
        if _CORRELATION.unpack_from(buffer)[0] != self._correlation:
            raise self.lost("it answered another request")
        self.waiting = False
        return buffer, size

    def hold(self, throttle_ms: int) -> None:
        """Send no request for `throttle_ms`, as the broker demands (KIP-219)."""
        self.ready_at = time.monotonic() + throttle_ms / 1000

    def lost(self, problem: str) -> ConnectionLost:
        """Return the error to raise when the connection can no longer be used."""
        return ConnectionLost(f"{self._what} {self._raw.endpoint} failed: {problem}.")

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()
