"""Produce requests: their bytes and versions, and a connection that sends them and takes the responses.

Two versions are used. Version 13 names topics by their ids (KIP-516, Kafka 4.0): a topic that was created again has
another id, so the broker refuses records for the one before. Version 8 names them by name, for brokers before, topics
without an id, and in transactions: from version 12 on a request opens its transaction by itself, which needs KIP-890's
second protocol (docs/design/transactions.md). Source: `ProduceRequest.json` and `ProduceResponse.json` of Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from assignors.model import TopicPartition
from kafka_source.kafka_client import BlockingConnection, RequestConnection
from kafka_source.kafka_client.framing import NO_TAGS, compact, frame, string
from kafka_source.kafka_client.messages.codec import Reader

if TYPE_CHECKING:
    from kafka_source.produce.accumulator import RecordBatch

API_KEY = 0
BY_NAME, BY_ID = 8, 13
"""The versions."""

_ACKS_AND_TIMEOUT = struct.Struct(">hi")  # acks, timeout (ms)
_COUNT = struct.Struct(">i")
_PARTITION = struct.Struct(">ii")  # number, length of the record batch
_PARTITION_RESPONSE = struct.Struct(">ihqqq")  # number, error, base offset, append time, log start
_NULL = b"\0"


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
    topic_ids: Mapping[str, UUID] | None = None,
) -> bytes:
    """Return the bytes of a request, with its length first.

    Args:
        client_id: `client.id`.
        correlation_id: Number of the request; the response repeats it.
        batches: One record batch for each partition.
        transactional_id: The transaction's id; None if the records are in no transaction.
        acks: 1 or -1 (all). With 0 there would be no response.
        timeout_ms: Time that the broker may wait for the replicas, in milliseconds.
        topic_ids: The ids of all topics, for version 13, which is for records in no transaction; None: version 8.
    """
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for tp, batch in batches:
        topics.setdefault(tp.topic, []).append((tp.partition, batch))
    head = _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    if topic_ids is None:
        parts = [string(transactional_id), head, _COUNT.pack(len(topics))]
        for topic, of_topic in topics.items():
            parts += [string(topic), _COUNT.pack(len(of_topic))]
            for number, batch in of_topic:
                parts += [_PARTITION.pack(number, len(batch)), batch]
        return frame(API_KEY, BY_NAME, client_id, correlation_id, parts)
    # The first one ends the header.
    parts = [NO_TAGS, _NULL, head, compact(len(topics))]
    for topic, of_topic in topics.items():
        parts += [topic_ids[topic].bytes, compact(len(of_topic))]
        for number, batch in of_topic:
            parts += [_COUNT.pack(number), compact(len(batch)), batch, NO_TAGS]
        parts.append(NO_TAGS)
    return frame(API_KEY, BY_ID, client_id, correlation_id, [*parts, NO_TAGS])


def parse(buffer: bytearray, size: int, names: Mapping[UUID, str] | None = None) -> ProduceResponse:
    """Return the response in `buffer[:size]`.

    Args:
        buffer: Begins with the response.
        size: The size of the response.
        names: The names of the topics of a request of version 13 by their ids; None: the version is 8.

    Raises:
        ValueError: The bytes are not a Produce response of this version, or have a topic that was not asked for.
    """
    reader = Reader(bytes(memoryview(buffer)[:size]), position=_COUNT.size)
    reader.flexible = names is not None
    found: list[PartitionResponse] = []

    def read_topic(_: Reader, version: int) -> None:
        name = reader.string() if names is None else names[reader.unique_id()]
        found.extend(reader.array(partial(_partition, name), version))
        _skip_tags(reader)

    try:
        _skip_tags(reader)
        reader.array(read_topic, BY_NAME if names is None else BY_ID)
        return ProduceResponse(tuple(found), reader.int32())
    except (struct.error, LookupError, ValueError) as problem:
        raise ValueError(f"a malformed produce response: {problem}") from None


def _partition(topic: str, reader: Reader, version: int) -> PartitionResponse:
    number, error, _, _, _ = reader.numbers(_PARTITION_RESPONSE)
    reasons = reader.array(_refused_record, version)
    message = "; ".join(filter(None, (reader.nullable_string(), *reasons[:1])))
    _skip_tags(reader)
    return PartitionResponse(TopicPartition(topic, number), error, message)


def _refused_record(reader: Reader, _: int) -> str | None:
    reader.int32()
    reason = reader.nullable_string()
    _skip_tags(reader)
    return reason


def _skip_tags(reader: Reader) -> None:
    if reader.flexible:
        reader.skip_tags()


class ProduceConnection(RequestConnection):
    """Sends Produce requests, one at a time.

    Args:
        raw: An authenticated connection, which this object owns from here on.
        acks: 1 or -1 (all).
        timeout: Seconds without a byte of a response after which the connection counts as lost.

    Attributes:
        batches: The record batches of the last request.
        topic_ids: The ids by which it named their topics; empty: it had names.

    Raises:
        InvalidConfigurationError: The broker does not speak the version of Produce that every request can have.
    """

    def __init__(self, raw: BlockingConnection, *, acks: int, timeout: float) -> None:
        raw.versions.check(API_KEY, "ProduceRequest", BY_NAME)
        super().__init__(raw, what="Writing to", timeout=timeout)
        self._acks, self._timeout_ms = acks, int(timeout * 1000)
        self._buffer = bytearray(4096)
        self.batches: Sequence[RecordBatch] = ()
        self._knows_ids = raw.versions.has(API_KEY, BY_ID)
        self.topic_ids: Mapping[str, UUID] = {}

    def send(self, batches: Sequence[RecordBatch], transactional_id: str | None, topic_ids: Mapping[str, UUID]) -> None:
        """Send record batches, one for each partition; `receive` returns the response.

        Args:
            batches: The record batches.
            transactional_id: The transaction's id; None if the records are in no transaction.
            topic_ids: The ids of the topics, as far as they are known.

        Raises:
            ConnectionLost: The connection has ended.
        """
        self.batches = batches
        content = [(batch.tp, batch.data) for batch in batches]
        by_id = self._knows_ids and transactional_id is None and all(batch.tp.topic in topic_ids for batch in batches)
        self.topic_ids = topic_ids if by_id else {}
        self.send_request(
            partial(
                encode,
                batches=content,
                transactional_id=transactional_id,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                topic_ids=self.topic_ids or None,
            )
        )

    def receive(self) -> ProduceResponse:
        """Return the response to the last `send`.

        Raises:
            ConnectionLost: The connection has ended, or no byte came within the timeout.
        """
        self._buffer, size = self.receive_response(self._buffer)
        try:
            response = parse(self._buffer, size, {one: name for name, one in self.topic_ids.items()} or None)
        except ValueError as problem:
            raise self.lost(str(problem)) from None
        self.throttle(response.throttle_ms)
        return response
