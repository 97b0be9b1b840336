"""Fetch requests and responses as bytes, and a connection whose next request is in flight while a response is decoded.

Responses are parsed in place, so record sets are never copied. Version 11 is used: brokers from 2.3 to 4.x support it,
it names the preferred replica (KIP-392), and it is the last version before the flexible ones. Its fixed layout can be
encoded by hand in 10 µs; a general encoder takes hundreds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from kafka_source.kafka_client import BlockingConnection, RequestConnection
from kafka_source.kafka_client.framing import frame, string

API_KEY = 1
VERSION = 11
MAX_WAIT_MS = 500
"""Java's default of `fetch.max.wait.ms`."""

MIN_BYTES = 1
"""Java's default of `fetch.min.bytes`."""

_ASK = struct.Struct(">iiiibii")  # replica id, max wait, min bytes, max bytes, isolation level, session id, its epoch
_ASK_PARTITION = struct.Struct(">iiqqi")  # partition, leader epoch, fetch offset, log start offset, max bytes

_HEAD = struct.Struct(">iihii")  # correlation id, throttle time, error code, session id, number of topics
_COUNT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
# Partition, error code, high watermark, last stable offset, log start offset, number of aborted transactions.
_PARTITION = struct.Struct(">ihqqqi")
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_TAIL = struct.Struct(">ii")  # preferred replica, length of the record set
_NULL = -1  # the length of a null array and of null bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition in a request: the offset to start at, the expected leader epoch (-1: any), the maximum of bytes."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition of a response; its record set is `buffer[begin:end]`.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        error: Kafka's error code; 0: none.
        high_watermark: The high watermark; -1 with an error.
        last_stable: The last stable offset; -1 if the request was not read_committed.
        log_start: The log start offset.
        aborted: Producer id and first offset of each aborted transaction in the record set.
        preferred: The replica from which to fetch instead (KIP-392); -1: none.
        begin: The index of the first byte of the record set in the buffer.
        end: The index after its last byte.
    """

    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: tuple[tuple[int, int], ...]
    preferred: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Response:
    """A Fetch response: throttle time in ms, error code of the whole response, partitions, and size in bytes."""

    correlation_id: int
    throttle_ms: int
    error: int
    partitions: tuple[Fetched, ...]
    size: int = 0


def encode(
    client_id: str,
    correlation_id: int,
    wanted: Iterable[Wanted],
    *,
    max_bytes: int,
    read_committed: bool,
    rack: str,
    min_bytes: int = MIN_BYTES,
    max_wait_ms: int = MAX_WAIT_MS,
) -> bytes:
    """Return a request with its length prefix.

    It uses no fetch session. The broker responds as soon as it has `min_bytes` bytes, or after `max_wait_ms`.
    """
    topics: dict[str, list[Wanted]] = {}
    for each in wanted:
        topics.setdefault(each.topic, []).append(each)
    parts = [
        _ASK.pack(-1, max_wait_ms, min_bytes, max_bytes, read_committed, 0, -1),
        _COUNT.pack(len(topics)),
    ]
    for topic, asked in topics.items():
        parts += [string(topic), _COUNT.pack(len(asked))]
        parts += [_ASK_PARTITION.pack(w.partition, w.leader_epoch, w.offset, -1, w.max_bytes) for w in asked]
    parts += [_COUNT.pack(0), string(rack)]
    return frame(API_KEY, VERSION, client_id, correlation_id, parts)


def parse(buffer: bytearray, size: int) -> Response:
    """Return the response in `buffer[:size]`, without decoding its record sets.

    Raises:
        ValueError: The bytes are not a Fetch response of version 11.
    """
    # Limit the view to the response: the buffer is reused, and the end of a longer response may follow in it.
    with memoryview(buffer)[:size] as data:
        try:
            correlation_id, throttle_ms, error, _, topics = _HEAD.unpack_from(data, 0)
            partitions = tuple(_partitions(data, topics))
        except (struct.error, UnicodeDecodeError, IndexError) as problem:
            raise ValueError(f"a malformed fetch response: {problem}") from None
    return Response(correlation_id, throttle_ms, error, partitions, size)


def _partitions(data: memoryview, topics: int) -> Iterator[Fetched]:
    # Every iteration of every loop consumes bytes, so parsing terminates for any input.
    at, size = _HEAD.size, len(data)
    if topics < 0:
        raise _negative(topics, "topics")
    for _ in range(topics):
        (length,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        if length < 0:
            raise _negative(length, "a topic's name")
        topic = bytes(data[at : at + length]).decode()
        at += length
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        if count < 0:
            raise _negative(count, "partitions")
        for _ in range(count):
            number, error, high, stable, start, aborted_count = _PARTITION.unpack_from(data, at)
            at += _PARTITION.size
            if aborted_count < _NULL:
                raise _negative(aborted_count, "aborted transactions")
            aborted = []
            for _ in range(aborted_count):
                aborted.append(_ABORTED.unpack_from(data, at))
                at += _ABORTED.size
            preferred, length = _TAIL.unpack_from(data, at)
            at += _TAIL.size
            if length < _NULL:
                raise _negative(length, "a record set")
            end = at + max(0, length)
            if end > size:
                raise IndexError("a record set is longer than the response")
            yield Fetched(topic, number, error, high, stable, start, tuple(aborted), preferred, at, end)
            at = end


def _negative(announced: int, of: str) -> IndexError:
    """Return the error for a negative length or count, with which the parser would go back in the buffer."""
    return IndexError(f"the length of {of} is {announced}")


PATIENCE_MS = 5_000
"""The total time of throttled responses without records after which the pauses grow.

With a byte-rate quota, a shorter period without records is normal: other slots may have used the quota meanwhile.
"""

MAX_BATCH_BYTES = 1 << 30
"""The maximum size of a record batch."""

_MAX_PAUSE_MS = 30_000
# Room for the parts of a response besides its record batches.
_MAX_ENVELOPE_BYTES = 1 << 20


class FetchConnection(RequestConnection):
    """Sends fetch requests, one at a time, and reads each response into a buffer of the caller.

    Args:
        raw: An authenticated connection; this object takes ownership of it.
        rack: `client.rack`, to fetch from the closest replica (KIP-392); "": none.
        read_committed: The isolation level of all requests.
        timeout: See `RequestConnection`.
        min_bytes: How many bytes the broker waits for (`fetch.min.bytes`).
        max_wait_ms: How long it waits for them at most (`fetch.max.wait.ms`); at most half of the timeout is used.

    Raises:
        InvalidConfigurationError: The broker does not support the version of Fetch that is used here.
    """

    def __init__(
        self,
        raw: BlockingConnection,
        rack: str,
        *,
        read_committed: bool,
        timeout: float,
        min_bytes: int = MIN_BYTES,
        max_wait_ms: int = MAX_WAIT_MS,
    ) -> None:
        raw.versions.check(API_KEY, "FetchRequest", VERSION)
        super().__init__(raw, what="Fetching from", timeout=timeout, max_bytes=MAX_BATCH_BYTES + _MAX_ENVELOPE_BYTES)
        self._rack = rack
        self._read_committed = read_committed
        self._min_bytes = min_bytes
        self._max_wait_ms = min(max_wait_ms, int(timeout * 500))
        # The total pause of throttled responses since the last one with records.
        self._throttled_ms = 0

    def send(self, wanted: Iterable[Wanted], max_bytes: int, *, any_replica: bool) -> None:
        """Send a Fetch request; read its response with `receive`.

        Args:
            wanted: The partitions. The broker fills the response in this order.
            max_bytes: The maximum size of the response; the first record batch may exceed it.
            any_replica: Whether the leader may refer to another replica (KIP-392).

        Raises:
            ConnectionLost: The connection was lost.
        """
        self.send_request(
            partial(
                encode,
                wanted=wanted,
                max_bytes=max_bytes,
                read_committed=self._read_committed,
                rack=self._rack if any_replica else "",
                # A broker that waits for more than it may send would always wait to the end.
                min_bytes=min(self._min_bytes, max_bytes),
                max_wait_ms=self._max_wait_ms,
            )
        )

    def receive(self, buffer: bytearray) -> tuple[bytearray, Response]:
        """Return the buffer that contains the response to the last `send`, `buffer` or a larger one, and the response.

        The response's `throttle_ms` is the time without requests to this broker: the broker's value or longer.

        Raises:
            ConnectionLost: The connection was lost, or the response was not complete within the timeout.
        """
        buffer, size = self.receive_response(buffer)
        try:
            response = parse(buffer, size)
        except ValueError as problem:
            raise self.lost(str(problem)) from None
        pause = self._pause(response)
        self.throttle(pause)
        return buffer, replace(response, throttle_ms=pause)

    def _pause(self, response: Response) -> int:
        """Return the time in ms for which to send no request to the broker.

        A throttled response contains no records, but counts towards a quota of request time (KIP-124). With a small
        quota, a client that sends its next request as soon as the broker allows it would get throttled responses only.
        Therefore the pauses grow while no records arrive.
        """
        throttle_ms = response.throttle_ms
        if not throttle_ms or response.partitions:
            self._throttled_ms = 0
            return throttle_ms
        pause = max(throttle_ms, min(self._throttled_ms - PATIENCE_MS, _MAX_PAUSE_MS))
        self._throttled_ms += pause
        return pause
