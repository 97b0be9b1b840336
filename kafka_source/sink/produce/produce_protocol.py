"""Produce requests and responses as bytes: version 8, the last of a fixed layout; brokers from 2.4 to 4.x speak it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.kafka_client.request_frame import frame, string

API_KEY = 0
VERSION = 8

_HOW = struct.Struct(">hi")  # acks, timeout
_COUNT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PARTITION = struct.Struct(">ii")  # number, length of the record batch
_ANSWER = struct.Struct(">ihqqq")  # number, error, base offset, append time, log start


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker says of one partition's record batch: Kafka's error code, 0 being none, and perhaps why."""

    tp: TopicPartition
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """A Produce response: what became of each batch, and for how long the broker wants no request (ms)."""

    answers: tuple[Answer, ...]
    throttle_ms: int


def encode(
    client_id: str,
    correlation_id: int,
    batches: Sequence[tuple[TopicPartition, bytes]],
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> bytes:
    """A request, its length in front.

    Args:
        client_id: The client's.
        correlation_id: Of the request.
        batches: A record batch for each partition.
        transactional_id: Of the transaction that they are in; None: none.
        acks: 1 or -1 (all); with 0 there would be no response.
        timeout_ms: How long the broker may wait for the replicas.
    """
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for tp, batch in batches:
        topics.setdefault(tp.topic, []).append((tp.partition, batch))
    parts = [string(transactional_id), _HOW.pack(acks, timeout_ms), _COUNT.pack(len(topics))]
    for topic, of_topic in topics.items():
        parts += [string(topic), _COUNT.pack(len(of_topic))]
        for partition, batch in of_topic:
            parts += [_PARTITION.pack(partition, len(batch)), batch]
    return frame(API_KEY, VERSION, client_id, correlation_id, parts)


def parse(buffer: bytearray, size: int) -> Response:
    """Read the response in `buffer[:size]`.

    Raises:
        ValueError: The bytes are not a Produce response of version 8.
    """
    try:
        return _Reader(bytes(buffer[:size])).response()
    except (struct.error, UnicodeDecodeError) as problem:
        raise ValueError(f"a malformed produce response: {problem}") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = _COUNT.size  # after the correlation id

    def response(self) -> Response:
        answers = []
        for _ in range(self._count("topics")):
            topic = self._text()
            for _ in range(self._count("partitions")):
                number, error, _, _, _ = self._take(_ANSWER)
                reasons = []
                for _ in range(self._count("refused records")):
                    self._take(_COUNT)
                    reasons.append(self._text(nullable=True))
                message = "; ".join(filter(None, (self._text(nullable=True), *reasons[:1])))
                answers.append(Answer(TopicPartition(topic, number), error, message))
        return Response(tuple(answers), *self._take(_COUNT))

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def _count(self, of: str) -> int:
        (count,) = self._take(_COUNT)
        if count < 0:
            raise struct.error(f"the count of {of} is {count}")
        return count

    def _text(self, *, nullable: bool = False) -> str:
        """Return the next string; null is empty."""
        (length,) = self._take(_SHORT)
        if nullable and length == -1:
            return ""
        if length < 0:
            raise struct.error(f"the length of a string is {length}")
        text = struct.unpack_from(f"{length}s", self._data, self._at)[0]
        self._at += length
        return str(text.decode())
