"""A Fetch response without its records: parsed in place, so that record sets are never copied.

Version 11 is asked for: brokers from 2.3 to 4.x speak it, it names the replica to read from (KIP-392), and it is the
last whose envelope has a fixed layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

VERSION = 11

_HEAD = struct.Struct(">iihii")  # correlation id, throttle, error, session, topics
_COUNT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PARTITION = struct.Struct(">ihqqqi")  # number, error, high watermark, last stable, log start, aborted
_ABORTED = struct.Struct(">qq")
_TAIL = struct.Struct(">ii")  # preferred replica, length of the record set
_BATCH = struct.Struct(">qi")  # base offset, length
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_BATCH_OVERHEAD = 12


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a response says of one partition; the records are `buffer[begin:end]`.

    Attributes:
        topic: The topic.
        partition: The partition.
        error: Kafka's error code; 0: none.
        high_watermark: The end of what is replicated; -1 with an error.
        last_stable: The end of what is decided, -1 unless asked for.
        log_start: The first offset that exists.
        aborted: Producer id and first offset of each aborted transaction in the records.
        preferred: The replica to read from instead of this one; -1: none.
        begin: Where the record set begins in the buffer.
        end: Where it ends.
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
    """A Fetch response: for how long the broker wants no request (ms), an error of the whole, and the partitions."""

    correlation_id: int
    throttle_ms: int
    error: int
    partitions: tuple[Fetched, ...]


def parse(buffer: bytearray, size: int) -> Response:
    """Read the envelope of the response in `buffer[:size]`.

    Raises:
        ValueError: The bytes are not a Fetch response of version 11.
    """
    try:
        correlation_id, throttle_ms, error, _, topics = _HEAD.unpack_from(buffer, 0)
        partitions = tuple(_partitions(buffer, size, topics))
    except (struct.error, UnicodeDecodeError, IndexError) as problem:
        raise ValueError(f"a malformed fetch response: {problem}") from None
    return Response(correlation_id, throttle_ms, error, partitions)


def _partitions(buffer: bytearray, size: int, topics: int) -> Iterator[Fetched]:
    at = _HEAD.size
    for _ in range(topics):
        (length,) = _SHORT.unpack_from(buffer, at)
        at += _SHORT.size
        topic = bytes(buffer[at : at + length]).decode()
        at += length
        (count,) = _COUNT.unpack_from(buffer, at)
        at += _COUNT.size
        for _ in range(count):
            number, error, high, stable, start, aborted_count = _PARTITION.unpack_from(buffer, at)
            at += _PARTITION.size
            aborted = []
            for _ in range(max(0, aborted_count)):
                aborted.append(_ABORTED.unpack_from(buffer, at))
                at += _ABORTED.size
            preferred, length = _TAIL.unpack_from(buffer, at)
            at += _TAIL.size
            end = at + max(0, length)
            if end > size:
                raise IndexError("a record set is longer than the response")
            yield Fetched(topic, number, error, high, stable, start, tuple(aborted), preferred, at, end)
            at = end


def next_offset(buffer: bytearray, begin: int, end: int, position: int) -> int:
    """The offset after the last whole batch of a record set: what the next request asks for.

    Only the batches' heads are read, so it is known before the records are decoded.
    """
    while end - begin >= _BATCH_OVERHEAD:
        base, length = _BATCH.unpack_from(buffer, begin)
        if length <= 0 or begin + _BATCH_OVERHEAD + length > end:
            break
        if length > _LAST_OFFSET_DELTA_AT:
            position = max(
                position, base + _LAST_OFFSET_DELTA.unpack_from(buffer, begin + _LAST_OFFSET_DELTA_AT)[0] + 1
            )
        begin += _BATCH_OVERHEAD + length
    return position
