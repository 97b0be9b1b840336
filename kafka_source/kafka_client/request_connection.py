"""A connection that carries one request at a time, whose answer is read when its owner is ready for it."""

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
    """Sends requests, one at a time, and reads each response into a buffer of the caller's.

    Args:
        raw: Authenticated; this object's alone from here on.
        what: What it is for, as the beginning of a sentence: "Fetching from".
        timeout: Seconds without a byte of an answer after which the connection counts as lost.
        most_bytes: The longest response that is accepted.

    Attributes:
        waiting: Whether an answer is under way; such a connection is of no use to anybody else.
        ready_at: Before this time (`time.monotonic()`) the broker wants no request (KIP-219).
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
    def spent(self) -> bool:
        """Whether the broker ends the session soon (KIP-368): open a new one."""
        return self._renew_at is not None and time.monotonic() > self._renew_at

    @property
    def busy(self) -> bool:
        """Whether an answer is under way, or the broker wants no request now, not on another connection either."""
        return self.waiting or time.monotonic() < self.ready_at

    @property
    def overdue_at(self) -> float:
        """When (`time.monotonic()`) the answer that is under way counts as lost."""
        return self._sent_at + self._timeout

    def fileno(self) -> int:
        """The socket's, to wait for the answer's first byte."""
        return self._raw.socket.fileno()

    def post(self, encode: Callable[[str, int], bytes]) -> None:
        """Send a request; the response comes by `take`.

        Args:
            encode: Makes the request, its length in front, from the client's and a correlation id.

        Raises:
            ConnectionLost: The connection has ended.
        """
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        request = encode(self._raw.client_id, self._correlation)
        # Before it is sent: a connection with a part of a request on it is of no use to anybody else either.
        self.waiting = True
        try:
            self._raw.socket.sendall(request)
        except OSError as problem:
            raise self.lost(str(problem)) from None
        self._sent_at = time.monotonic()

    def take(self, buffer: bytearray) -> tuple[bytearray, int]:
        """The response to the last `post`: the buffer that holds it, `buffer` or a larger one, and its size.

        Raises:
            ConnectionLost: The connection has ended, or nothing came for too long.
        """
        try:
            size = read_frame_size(self._raw.socket, self._most_bytes)
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
        """The broker wants no request for so long (KIP-219)."""
        self.ready_at = time.monotonic() + throttle_ms / 1000

    def lost(self, problem: str) -> ConnectionLost:
        """The error of a connection that is of no more use."""
        return ConnectionLost(f"{self._what} {self._raw.endpoint} failed: {problem}.")

    def close(self) -> None:
        """End the connection."""
        self._raw.close()
