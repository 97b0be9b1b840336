"""One broker's connection for fetching: a request is on its way while the response before it is decoded."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable

from kafka_source.fetch import wire
from kafka_source.kafka_client import ConnectionLost, RawConnection
from kafka_source.kafka_client.messages import FetchRequest

_LENGTH = struct.Struct(">i")
_RENEW_SECONDS, _RENEW_SHARE = 10.0, 0.15


class FetchConnection:
    """Sends fetch requests, one at a time, and reads each response into a buffer of the caller's.

    Args:
        raw: Authenticated; this object's alone from here on.
        rack: `client.rack`, for KIP-392; "": none.
        read_committed: The isolation level of all requests.
        timeout: Seconds without a byte of an answer after which the connection counts as lost.

    Attributes:
        waiting: Whether an answer is under way; such a connection is of no use to anybody else.
        ready_at: Before this time (`time.monotonic()`) the broker wants no request (KIP-219).

    Raises:
        InvalidConfigurationError: The broker does not speak this version of Fetch.
    """

    def __init__(self, raw: RawConnection, rack: str, *, read_committed: bool, timeout: float) -> None:
        raw.versions.version_for(FetchRequest, wire.VERSION)
        raw.socket.settimeout(timeout)
        self._raw = raw
        self._rack = rack
        self._read_committed = read_committed
        self._timeout = timeout
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

    def send(self, wanted: Iterable[wire.Wanted], max_bytes: int, *, any_replica: bool) -> None:
        """Ask for records; the response comes by `receive`.

        Args:
            wanted: Partitions, the first of which get their bytes first.
            max_bytes: Of the whole response, unless the first batch is larger.
            any_replica: Whether the leader may name another replica (KIP-392).

        Raises:
            ConnectionLost: The connection has ended.
        """
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        request = wire.encode(
            self._raw.client_id,
            self._correlation,
            wanted,
            max_bytes=max_bytes,
            read_committed=self._read_committed,
            rack=self._rack if any_replica else "",
        )
        try:
            self._raw.socket.sendall(request)
        except OSError as problem:
            raise self._lost(str(problem)) from None
        self._sent_at = time.monotonic()
        self.waiting = True

    def receive(self, buffer: bytearray) -> tuple[bytearray, wire.Response]:
        """The response to the last `send`, and the buffer that holds its records: `buffer`, or a larger one.

        Raises:
            ConnectionLost: The connection has ended, or nothing came for too long.
        """
        try:
            (size,) = _LENGTH.unpack(self._read(bytearray(_LENGTH.size), _LENGTH.size))
            if size <= 0:
                raise self._lost(f"it announced a response of {size} bytes")
            if len(buffer) < size:
                buffer = bytearray(size)
            self._read(buffer, size)
            response = wire.parse(buffer, size)
        except (OSError, ValueError) as problem:
            raise self._lost(str(problem)) from None
        if response.correlation_id != self._correlation:
            raise self._lost("it answered another request")
        self.waiting = False
        self.ready_at = time.monotonic() + response.throttle_ms / 1000
        return buffer, response

    def close(self) -> None:
        """End the connection."""
        self._raw.close()

    def _read(self, buffer: bytearray, size: int) -> bytearray:
        view = memoryview(buffer)[:size]
        socket = self._raw.socket
        while view:
            count = socket.recv_into(view)
            if not count:
                raise self._lost("it closed the connection")
            view = view[count:]
        return buffer

    def _lost(self, problem: str) -> ConnectionLost:
        return ConnectionLost(f"Fetching from {self._raw.endpoint} failed: {problem}.")
