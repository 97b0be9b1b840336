"""The bytes and versions of Produce requests, and a connection that sends them and receives the responses.

Version 13 names topics by id (KIP-516, Kafka 4.1), so the broker refuses records for a topic that was deleted and
created again. Version 8 names topics by name, for older brokers and topics without an id. From version 12 on, a request
adds its partitions to the transaction implicitly, which is KIP-890's second protocol (docs/design/transactions.md).
Without topic ids, a transaction of the second protocol uses version 12. A transaction of the first protocol always uses
version 8. Source: `ProduceRequest.json` and `ProduceResponse.json` of Apache Kafka.
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
    from kafka_source.transactions.open_transaction import OpenTransaction

API_KEY = 0
BY_NAME, SECOND_BY_NAME, BY_ID = 8, 12, 13
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
        error: Kafka's error code; 0: success.
        message: The broker's reason; may be empty.
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
    version: int,
    *,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topic_ids: Mapping[str, UUID],
) -> bytes:
    """Return the bytes of a request, with its length prefix.

    Args:
        client_id: `client.id`.
        correlation_id: Number of the request; the response repeats it.
        batches: One record batch for each partition.
        version: The version.
        transactional_id: The transaction's id; None if the records are in no transaction.
        acks: 1 or -1 (all). With acks=0 there would be no response.
        timeout_ms: Time that the broker may wait for the replicas, in milliseconds.
        topic_ids: The ids of all topics, for version 13.
    """
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for tp, batch in batches:
        topics.setdefault(tp.topic, []).append((tp.partition, batch))
    head = _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    if version == BY_NAME:
        parts = [string(transactional_id), head, _COUNT.pack(len(topics))]
        for topic, of_topic in topics.items():
            parts += [string(topic), _COUNT.pack(len(of_topic))]
            for number, batch in of_topic:
                parts += [_PARTITION.pack(number, len(batch)), batch]
        return frame(API_KEY, BY_NAME, client_id, correlation_id, parts)
    # The first NO_TAGS ends the header.
    parts = [NO_TAGS, _NULL if transactional_id is None else _compact(transactional_id), head, compact(len(topics))]
    for topic, of_topic in topics.items():
        parts += [topic_ids[topic].bytes if version == BY_ID else _compact(topic), compact(len(of_topic))]
        for number, batch in of_topic:
            parts += [_COUNT.pack(number), compact(len(batch)), batch, NO_TAGS]
        parts.append(NO_TAGS)
    return frame(API_KEY, version, client_id, correlation_id, [*parts, NO_TAGS])


def _compact(text: str) -> bytes:
    encoded = text.encode()
    return compact(len(encoded)) + encoded


def parse(buffer: bytearray, size: int, version: int, names: Mapping[UUID, str]) -> ProduceResponse:
    """Return the response in `buffer[:size]`.

    Args:
        buffer: The buffer, which begins with the response.
        size: The size of the response.
        version: The version.
        names: The topics' names by id, for version 13.

    Raises:
        ValueError: The bytes are not a Produce response of this version, or have a topic that was not requested.
    """
    reader = Reader(bytes(memoryview(buffer)[:size]), position=_COUNT.size)
    reader.flexible = version != BY_NAME
    found: list[PartitionResponse] = []

    def read_topic(reader: Reader) -> None:
        name = names[reader.unique_id()] if version == BY_ID else reader.string()
        found.extend(reader.array(partial(_partition, name)))
        _skip_tags(reader)

    try:
        _skip_tags(reader)
        reader.array(read_topic)
        return ProduceResponse(tuple(found), reader.int32())
    except (struct.error, LookupError, ValueError) as problem:
        raise ValueError(f"a malformed produce response: {problem}") from None


def _partition(topic: str, reader: Reader) -> PartitionResponse:
    number, error, _, _, _ = reader.numbers(_PARTITION_RESPONSE)
    reasons = reader.array(_refused_record)
    message = "; ".join(filter(None, (reader.nullable_string(), *reasons[:1])))
    _skip_tags(reader)
    return PartitionResponse(TopicPartition(topic, number), error, message)


def _refused_record(reader: Reader) -> str | None:
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
        raw: An authenticated connection; this object takes ownership of it.
        acks: 1 or -1 (all).
        timeout: Seconds without a byte of a response after which the connection counts as lost.

    Attributes:
        batches: The record batches of the last request.
        topic_ids: The topic ids of the last request; empty: the request had names.
        version: The version of the last request.

    Raises:
        InvalidConfigurationError: The broker does not support the oldest Produce version that is used here.
    """

    def __init__(self, raw: BlockingConnection, *, acks: int, timeout: float) -> None:
        raw.versions.check(API_KEY, "ProduceRequest", BY_NAME)
        super().__init__(raw, what="Writing to", timeout=timeout)
        self._acks, self._timeout_ms = acks, int(timeout * 1000)
        self._buffer = bytearray(4096)
        self.batches: Sequence[RecordBatch] = ()
        self._has = partial(raw.versions.has, API_KEY)
        self.topic_ids: Mapping[str, UUID] = {}
        self.version = BY_NAME

    def send(
        self, batches: Sequence[RecordBatch], transaction: OpenTransaction | None, topic_ids: Mapping[str, UUID]
    ) -> None:
        """Send record batches, one for each partition; `receive` returns the response.

        Args:
            batches: The record batches.
            transaction: The transaction that the records are in; None for no transaction.
            topic_ids: The known ids of the topics.

        Raises:
            ConnectionLost: The connection has ended, or its broker does not support the transaction's protocol.
        """
        self.batches = batches
        content = [(batch.tp, batch.data) for batch in batches]
        self.version = SECOND_BY_NAME if transaction is not None and transaction.second_protocol else BY_NAME
        may_be_by_id = transaction is None or transaction.second_protocol
        if may_be_by_id and self._has(BY_ID) and all(batch.tp.topic in topic_ids for batch in batches):
            self.version = BY_ID
        if not self._has(self.version):
            raise self.lost(
                f"it does not support version {self.version} of ProduceRequest, which the coordinator's transactions "
                "need: brokers are being replaced by older ones"
            )
        self.topic_ids = topic_ids if self.version == BY_ID else {}
        self.send_request(
            partial(
                encode,
                batches=content,
                version=self.version,
                transactional_id=None if transaction is None else transaction.transactional_id,
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                topic_ids=self.topic_ids,
            )
        )

    def receive(self) -> ProduceResponse:
        """Return the response to the last `send`.

        Raises:
            ConnectionLost: The connection has ended, or no byte came within the timeout.
        """
        self._buffer, size = self.receive_response(self._buffer)
        try:
            names = {one: name for name, one in self.topic_ids.items()}
            response = parse(self._buffer, size, self.version, names)
        except ValueError as problem:
            raise self.lost(str(problem)) from None
        self.throttle(response.throttle_ms)
        return response
