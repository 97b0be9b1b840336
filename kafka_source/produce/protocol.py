"""Produce requests: their bytes, and a connection that sends them to one broker and takes the responses.

The version is 8, the last one without tagged fields. Brokers from 2.4 to 4.x support it. Source: `ProduceRequest.json`
and `ProduceResponse.json` of Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from assignors.model import TopicPartition
from kafka_source.kafka_client import BlockingConnection, RequestConnection
from kafka_source.kafka_client.framing import frame, string
from kafka_source.produce.accumulator import RecordBatch

API_KEY = 0
VERSION = 8

_ACKS_AND_TIMEOUT = struct.Struct(">hi")  # acks, timeout (ms)
_COUNT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PARTITION = struct.Struct(">ii")  # number, length of the record batch
_PARTITION_RESPONSE = struct.Struct(">ihqqq")  # number, error, base offset, append time, log start


@dataclass(frozen=True, slots=True)
class PartitionResponse:
    """A broker's result for one partition's record batch.

    Attributes:
        tp: The partition.
        error: Kafka's error code; 0 for success.
        message: The broker's reason; empty if it gives none.
    """

    tp: TopicPartition
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    """A Produce response.

    Attributes:
        partitions: The result for each record batch of the request.
        throttle_ms: Time in which the broker accepts no request (KIP-219), in milliseconds.
    """

    partitions: tuple[PartitionResponse, ...]
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
    """Return the bytes of a request, with its length first.

    Args:
        client_id: `client.id`.
        correlation_id: Number of the request; the response repeats it.
        batches: One record batch for each partition.
        transactional_id: The transaction's id; None if the records are in no transaction.
        acks: 1 or -1 (all). With 0 there would be no response.
        timeout_ms: Time that the broker may wait for the replicas, in milliseconds.
    """
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for tp, batch in batches:
        topics.setdefault(tp.topic, []).append((tp.partition, batch))
    parts = [string(transactional_id), _ACKS_AND_TIMEOUT.pack(acks, timeout_ms), _COUNT.pack(len(topics))]
    for topic, of_topic in topics.items():
        parts += [string(topic), _COUNT.pack(len(of_topic))]
        for partition, batch in of_topic:
            parts += [_PARTITION.pack(partition, len(batch)), batch]
    return frame(API_KEY, VERSION, client_id, correlation_id, parts)


def parse(buffer: bytearray, size: int) -> ProduceResponse:
    """Return the response in `buffer[:size]`.

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

    def response(self) -> ProduceResponse:
        partitions = []
        for _ in range(self._count("topics")):
            topic = self._text()
            for _ in range(self._count("partitions")):
                number, error, _, _, _ = self._take(_PARTITION_RESPONSE)
                reasons = []
                for _ in range(self._count("refused records")):
                    self._take(_COUNT)
                    reasons.append(self._text(nullable=True))
                message = "; ".join(filter(None, (self._text(nullable=True), *reasons[:1])))
                partitions.append(PartitionResponse(TopicPartition(topic, number), error, message))
        return ProduceResponse(tuple(partitions), *self._take(_COUNT))

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def _count(self, what: str) -> int:
        (count,) = self._take(_COUNT)
        if count < 0:
            raise struct.error(f"the count of {what} is {count}")
        return count

    def _text(self, *, nullable: bool = False) -> str:
        """Return the next string; an empty string for null."""
        (length,) = self._take(_SHORT)
        if nullable and length == -1:
            return ""
        if length < 0:
            raise struct.error(f"the length of a string is {length}")
        text = struct.unpack_from(f"{length}s", self._data, self._at)[0]
        self._at += length
        return str(text.decode())


class ProduceConnection(RequestConnection):
    """Sends Produce requests, one at a time.

    Args:
        raw: An authenticated connection, which this object owns from here on.
        acks: 1 or -1 (all).
        timeout: Seconds without a byte of a response after which the connection counts as lost.

    Attributes:
        batches: The record batches of the last request.

    Raises:
        InvalidConfigurationError: The broker does not speak this version of Produce.
    """

    def __init__(self, raw: BlockingConnection, *, acks: int, timeout: float) -> None:
        raw.versions.check(API_KEY, "ProduceRequest", VERSION)
        super().__init__(raw, what="Writing to", timeout=timeout)
        self._acks, self._timeout_ms = acks, int(timeout * 1000)
        self._buffer = bytearray(4096)
        self.batches: Sequence[RecordBatch] = ()

    def send(self, batches: Sequence[RecordBatch], transactional_id: str | None) -> None:
        """Send record batches, one for each partition; `receive` returns the response.

        Raises:
            ConnectionLost: The connection has ended.
        """
        self.batches = batches
        content = [(batch.tp, batch.data) for batch in batches]
        self.send_request(
            partial(
                encode,
                batches=content,
                transactional_id=transactional_id,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
            )
        )

    def receive(self) -> ProduceResponse:
        """Return the response to the last `send`.

        Raises:
            ConnectionLost: The connection has ended, or no byte came within the timeout.
        """
        self._buffer, size = self.receive_response(self._buffer)
        try:
            response = parse(self._buffer, size)
        except ValueError as problem:
            raise self.lost(str(problem)) from None
        self.throttle(response.throttle_ms)
        return response
