"""One broker's connection for fetching: a request is on its way while the response before it is decoded."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_source.fetch import wire
from kafka_source.kafka_client import ConnectionLost, RawConnection
from kafka_source.kafka_client.messages import FetchRequest

MAX_WAIT_MS = 500
_LENGTH = struct.Struct(">i")
_ANSWER_SECONDS = 30.0
_RENEW_SECONDS = 10.0
_LARGEST_RESPONSE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition to ask for: from which offset on, in which leader epoch, and at most how many bytes."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    max_bytes: int


class FetchConnection:
    """Sends fetch requests one at a time and reads the responses into two buffers, used in turn.

    Args:
        raw: Authenticated; this object's alone from here on.
        rack: `client.rack`, for KIP-392; "": none.
        read_committed: The isolation level of all requests.
    """

    def __init__(self, raw: RawConnection, rack: str, *, read_committed: bool) -> None:
        self._raw = raw
        self._rack = rack
        self._read_committed = read_committed
        self._buffers = [bytearray(), bytearray()]
        self._correlation = 0
        self._not_before = 0.0
        self.waiting = False
        self.throttled_ms = 0

    @property
    def spent(self) -> bool:
        """Whether the broker ends the session soon (KIP-368): open a new one."""
        expires = self._raw.expires_at
        return expires is not None and time.monotonic() > expires - _RENEW_SECONDS

    def send(self, partitions: Iterable[Wanted], max_bytes: int) -> None:
        """Ask for records; the response comes by `receive`. Waits first for as long as the broker asked (KIP-219).

        Raises:
            ConnectionLost: The connection has ended.
        """
        topics: dict[str, list[Wanted]] = {}
        for wanted in partitions:
            topics.setdefault(wanted.topic, []).append(wanted)
        topic_type = FetchRequest.FetchTopic
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(self._read_committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                topic_type(
                    topic=topic,
                    partitions=[
                        topic_type.FetchPartition(
                            partition=w.partition,
                            current_leader_epoch=w.leader_epoch,
                            fetch_offset=w.offset,
                            log_start_offset=-1,
                            partition_max_bytes=w.max_bytes,
                        )
                        for w in asked
                    ],
                )
                for topic, asked in topics.items()
            ],
            forgotten_topics_data=[],
            rack_id=self._rack,
        )
        pause = self._not_before - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        self._correlation += 1
        try:
            self._raw.socket.settimeout(_ANSWER_SECONDS)
            self._raw.socket.sendall(self._raw.encode(request, self._correlation, wire.VERSION))
        except OSError as problem:
            raise ConnectionLost(f"fetching from {self._raw.endpoint} failed: {problem}.") from None
        self.waiting = True

    def receive(self) -> tuple[bytearray, wire.Response]:
        """The response to the last `send`, and the buffer that holds its records until the next but one.

        Raises:
            ConnectionLost: The connection has ended, or no answer came within 30 s.
        """
        try:
            (size,) = _LENGTH.unpack(self._read(bytearray(_LENGTH.size), _LENGTH.size))
            if not 0 < size <= _LARGEST_RESPONSE:
                raise ConnectionLost(f"{self._raw.endpoint} announced a response of {size} bytes.")
            buffer = self._buffer(size)
            self._read(buffer, size)
            response = wire.parse(buffer, size)
        except (OSError, ValueError) as problem:
            raise ConnectionLost(f"fetching from {self._raw.endpoint} failed: {problem}.") from None
        if response.correlation_id != self._correlation:
            raise ConnectionLost(f"{self._raw.endpoint} answered another request.")
        self.waiting = False
        if response.throttle_ms:
            self.throttled_ms += response.throttle_ms
            self._not_before = time.monotonic() + response.throttle_ms / 1000
        return buffer, response

    def close(self) -> None:
        """End the connection."""
        self._raw.close()

    def _buffer(self, size: int) -> bytearray:
        self._buffers.reverse()
        buffer = self._buffers[0]
        if len(buffer) < size:
            # A new one, not a longer one: the records of an earlier response may still be read from the old.
            buffer = self._buffers[0] = bytearray(size)
        return buffer

    def _read(self, buffer: bytearray, size: int) -> bytearray:
        view = memoryview(buffer)[:size]
        socket = self._raw.socket
        while view:
            count = socket.recv_into(view)
            if not count:
                raise ConnectionLost(f"{self._raw.endpoint} closed the connection.")
            view = view[count:]
        return buffer
