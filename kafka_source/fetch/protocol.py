"""Fetch requests and responses as bytes, and a connection with one request in flight.

Responses are parsed in place, so record sets are never copied. Requests have version 13 or 11. Version 13 names topics
by id (KIP-516), so the broker refuses to send records of a topic that was created again. Version 11 names topics by
name, for brokers before 3.1 and topics without an id. Version 11 is the last version before the flexible versions, and
its responses name the preferred replica (KIP-392). Encoding by hand takes 10 µs, a general encoder hundreds of µs.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from kafka_source.kafka_client import BlockingConnection, RequestConnection
from kafka_source.kafka_client.framing import NO_TAGS, compact, frame, string

API_KEY = 1
BY_NAME, BY_ID = 11, 13
"""The versions."""

MAX_WAIT_MS = 500
"""Java's default of `fetch.max.wait.ms`."""

MIN_BYTES = 1
"""Java's default of `fetch.min.bytes`."""

_ASK = struct.Struct(">iiiibii")  # replica id, max wait, min bytes, max bytes, isolation level, session id, its epoch
_ASK_PARTITION = struct.Struct(">iiqqi")  # partition, leader epoch, fetch offset, log start offset, max bytes
# The same fields, with the epoch of the last fetch, which only replicas send, and the end of the tagged fields.
_ASK_PARTITION_BY_ID = struct.Struct(">iiqiqib")

_CORRELATION = struct.Struct(">i")
_HEAD = struct.Struct(">ihi")  # throttle time, error code, session id
_COUNT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PARTITION = struct.Struct(">ihqqq")  # partition, error code, high watermark, last stable offset, log start offset
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_PREFERRED = struct.Struct(">i")
_ID_BYTES = 16
_NULL = -1  # the length of a null array and of null bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition in a request.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        offset: The offset to start at.
        leader_epoch: The expected leader epoch; -1: any.
        max_bytes: The maximum number of bytes from this partition.
        topic_id: The topic's id; None: unknown.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition of a response; its record set is `buffer[begin:end]`.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        error: Kafka's error code; 0: none.
        high_watermark: The high watermark; -1 with an error.
        log_start: The log start offset.
        aborted: Producer id and first offset of each aborted transaction in the record set.
        preferred: The replica from which to fetch instead (KIP-392); -1: no replica.
        begin: The index of the first byte of the record set in the buffer.
        end: The index after the last byte of the record set.
    """

    topic: str
    partition: int
    error: int
    high_watermark: int
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
    wanted: Collection[Wanted],
    *,
    by_id: bool,
    max_bytes: int,
    read_committed: bool,
    rack: str,
    min_bytes: int = MIN_BYTES,
    max_wait_ms: int = MAX_WAIT_MS,
) -> bytes:
    """Return a request with its length prefix; `by_id` means version 13, for which all topics must have an id.

    The request has no fetch session. The broker responds when it has `min_bytes` bytes, or after `max_wait_ms`.
    """
    topics: dict[tuple[str, UUID | None], list[Wanted]] = {}
    for each in wanted:
        topics.setdefault((each.topic, each.topic_id), []).append(each)
    ask = _ASK.pack(-1, max_wait_ms, min_bytes, max_bytes, read_committed, 0, -1)
    if not by_id:
        parts = [ask, _COUNT.pack(len(topics))]
        for (topic, _), asked in topics.items():
            parts += [string(topic), _COUNT.pack(len(asked))]
            parts += [_ASK_PARTITION.pack(w.partition, w.leader_epoch, w.offset, -1, w.max_bytes) for w in asked]
        return frame(API_KEY, BY_NAME, client_id, correlation_id, [*parts, _COUNT.pack(0), string(rack)])
    # The first NO_TAGS ends the header.
    parts = [NO_TAGS, ask, compact(len(topics))]
    for (topic, topic_id), asked in topics.items():
        if topic_id is None:
            raise ValueError(f"topic {topic} has no id")
        parts += [topic_id.bytes, compact(len(asked))]
        parts += [
            _ASK_PARTITION_BY_ID.pack(w.partition, w.leader_epoch, w.offset, -1, -1, w.max_bytes, 0) for w in asked
        ]
        parts.append(NO_TAGS)
    name = rack.encode()
    parts += [compact(0), compact(len(name)), name, NO_TAGS]
    return frame(API_KEY, BY_ID, client_id, correlation_id, parts)


def parse(buffer: bytearray, size: int, names: Mapping[UUID, str] | None = None) -> Response:
    """Return the response in `buffer[:size]`, without decoding its record sets.

    Args:
        buffer: The buffer, which begins with the response.
        size: The size of the response.
        names: The topics' names by id in a request of version 13; None: version 11.

    Raises:
        ValueError: The bytes are not a Fetch response of this version, or have a topic that was not requested.
    """
    # Parse only the response, because the end of an earlier, longer response may follow in the buffer.
    with memoryview(buffer)[:size] as data:
        try:
            return _Cursor(data, names).response()
        except (struct.error, UnicodeDecodeError, IndexError) as problem:
            raise ValueError(f"a malformed fetch response: {problem}") from None


class _Cursor:
    """Walks through a response. Every turn of a loop consumes bytes, so parsing ends for any input."""

    def __init__(self, data: memoryview, names: Mapping[UUID, str] | None) -> None:
        self._data = data
        self._names = names
        self._at = 0

    def response(self) -> Response:
        (correlation_id,) = self._take(_CORRELATION)
        self._skip_tags()
        throttle_ms, error, _ = self._take(_HEAD)
        partitions = tuple(self._partitions())
        return Response(correlation_id, throttle_ms, error, partitions, len(self._data))

    def _partitions(self) -> Iterator[Fetched]:
        for _ in range(self._length("topics")):
            topic = self._topic()
            for _ in range(self._length("partitions")):
                number, error, high, _, start = self._take(_PARTITION)
                aborted = []
                for _ in range(self._length("aborted transactions", minimum=_NULL)):
                    producer_id, first = self._take(_ABORTED)
                    aborted.append((producer_id, first))
                    self._skip_tags()
                (preferred,) = self._take(_PREFERRED)
                length = max(0, self._length("a record set", minimum=_NULL))
                begin = self._at
                self._skip(length)
                self._skip_tags()
                end = begin + length
                yield Fetched(topic, number, error, high, start, tuple(aborted), preferred, begin, end)
            self._skip_tags()
        self._skip_tags()

    def _topic(self) -> str:
        begin = self._at
        if self._names is None:
            (length,) = self._take(_SHORT)
            if length < 0:
                raise _negative(length, "a topic's name")
            begin = self._at
            self._skip(length)
            return bytes(self._data[begin : self._at]).decode()
        self._skip(_ID_BYTES)
        topic_id = UUID(bytes=bytes(self._data[begin : self._at]))
        if topic_id not in self._names:
            raise IndexError(f"no topic with the id {topic_id} was asked for")
        return self._names[topic_id]

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def _skip(self, length: int) -> None:
        self._at += length
        if self._at > len(self._data):
            raise IndexError("it ends too early")

    def _length(self, of: str, minimum: int = 0) -> int:
        if self._names is None:
            (length,) = self._take(_COUNT)
        else:
            length = self._varint() - 1
        if length < minimum:
            raise _negative(length, of)
        return length

    def _varint(self) -> int:
        """Return the next unsigned number of flexible versions; it has at most five bytes."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise IndexError("a number has more than five bytes")

    def _skip_tags(self) -> None:
        if self._names is None:
            return
        for _ in range(self._varint()):
            self._varint()
            self._skip(self._varint())


def _negative(announced: int, of: str) -> IndexError:
    """Return the error for a negative length or count, which would move the parser back in the buffer."""
    return IndexError(f"the length of {of} is {announced}")


PATIENCE_MS = 5_000
"""After this time with only throttled responses, which have no records, the pauses grow.

With a byte-rate quota, a shorter period without records is normal, because other slots may have used the quota.
"""

MAX_BATCH_BYTES = 1 << 30
"""The maximum size of a record batch."""

_MAX_PAUSE_MS = 30_000
# Room for the parts of a response besides its record batches.
_MAX_ENVELOPE_BYTES = 1 << 20


class FetchConnection(RequestConnection):
    """Sends one fetch request at a time, and reads its response into a buffer of the caller.

    Args:
        raw: An authenticated connection; this object takes ownership of it.
        rack: `client.rack`, to fetch from the closest replica (KIP-392); "": no rack.
        read_committed: The isolation level of all requests.
        timeout: See `RequestConnection`.
        min_bytes: The bytes for which the broker waits (`fetch.min.bytes`).
        max_wait_ms: The broker's longest wait for `min_bytes` (`fetch.max.wait.ms`), at most half of the timeout.

    Attributes:
        knows_ids: Whether the broker knows topics by their ids.

    Raises:
        InvalidConfigurationError: The broker does not support the Fetch version that names topics.
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
        raw.versions.check(API_KEY, "FetchRequest", BY_NAME)
        super().__init__(raw, what="Fetching from", timeout=timeout, max_bytes=MAX_BATCH_BYTES + _MAX_ENVELOPE_BYTES)
        self._rack = rack
        self._read_committed = read_committed
        self._min_bytes = min_bytes
        self._max_wait_ms = min(max_wait_ms, int(timeout * 500))
        self.knows_ids = raw.versions.has(API_KEY, BY_ID)
        # The names of the last request's topics, by id; None: the request has names.
        self._names: dict[UUID, str] | None = None
        # The total pause of throttled responses since the last response with records.
        self._throttled_ms = 0

    def send(self, wanted: Collection[Wanted], max_bytes: int, *, any_replica: bool) -> None:
        """Send a Fetch request; read its response with `receive`.

        Args:
            wanted: The partitions, in the order in which the broker fills the response.
            max_bytes: The maximum size of the response; the first record batch may exceed it.
            any_replica: Whether the leader may refer to another replica (KIP-392).

        Raises:
            ConnectionLost: The connection was lost.
        """
        names = {each.topic_id: each.topic for each in wanted if each.topic_id is not None}
        by_id = self.knows_ids and all(each.topic_id is not None for each in wanted)
        self._names = names if by_id else None
        self.send_request(
            partial(
                encode,
                wanted=wanted,
                by_id=by_id,
                max_bytes=max_bytes,
                read_committed=self._read_committed,
                rack=self._rack if any_replica else "",
                # With a minimum above the maximum, a broker would always wait for `max_wait_ms`.
                min_bytes=min(self._min_bytes, max_bytes),
                max_wait_ms=self._max_wait_ms,
            )
        )

    def receive(self, buffer: bytearray) -> tuple[bytearray, Response]:
        """Return the buffer with the response to the last `send` (`buffer` or a larger one), and the response.

        Send this broker the next request after `throttle_ms` of the response, which is at least the broker's value.

        Raises:
            ConnectionLost: The connection was lost, or the response was not complete within the timeout.
        """
        buffer, size = self.receive_response(buffer)
        try:
            response = parse(buffer, size, self._names)
        except ValueError as problem:
            raise self.lost(str(problem)) from None
        pause = self._pause(response)
        self.throttle(pause)
        return buffer, replace(response, throttle_ms=pause)

    def _pause(self, response: Response) -> int:
        """Return the time in ms for which to send no request to the broker.

        A throttled response contains no records, but counts towards a quota of request time (KIP-124). With a small
        quota, a client that sends its next request as soon as allowed would only get throttled responses, so the pauses
        grow while no records arrive.
        """
        throttle_ms = response.throttle_ms
        if not throttle_ms or response.partitions:
            self._throttled_ms = 0
            return throttle_ms
        pause = max(throttle_ms, min(self._throttled_ms - PATIENCE_MS, _MAX_PAUSE_MS))
        self._throttled_ms += pause
        return pause
