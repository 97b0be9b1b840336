"""Logs of partitions with record batches: Produce as KIP-98 and KIP-890 describe it, by name and by topic id.

Only records of our sinks are kept as record batches. For topics that queries read, the number of records is enough.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_source.error_codes import ErrorCode as E
from kafka_source.kafka_client.messages.transaction import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support.record_messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Broker, Cluster, Reply

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"

# Producer id, producer epoch, first sequence number and number of records, in the header of a record batch (magic 2).
_IDENTITY, _IDENTITY_AT, _HEADER_BYTES = struct.Struct(">qhii"), 43, 61
# The byte of the attributes with the flag of transactional records.
_ATTRIBUTES_AT, _TRANSACTIONAL = 22, 0x10
# The producer ids of producers without transactions begin here.
_FIRST_IDEMPOTENT = 1_000_000
# The values are JSON lists, and nothing is compressed.
_VALUE = re.compile(rb'\["[^\]]*\]')
# The number of a producer's batches that a broker recognizes when they are repeated.
_REMEMBERED = 5


@dataclass
class Appended:
    """A record batch in a log.

    Attributes:
        state: The state of its transaction; committed without a transaction.
        transactional_id: The transactional id of its producer; empty: no transactional id.
    """

    producer_id: int
    values: list[bytes]
    transactional_id: str = ""
    state: str = OPEN


@dataclass
class _Producer:
    """The state of a producer in a log."""

    epoch: int
    next_sequence: int = 0
    recent: list[int] = field(default_factory=list)


class Log:
    """The record batches of a partition, and their producers.

    Attributes:
        batches: The record batches, in the order of the log.
    """

    def __init__(self) -> None:
        self.batches: list[Appended] = []
        self._producers: dict[int, _Producer] = {}

    def append(self, data: bytes, name: str, verify: Callable[[int, int], int]) -> int:
        """Append a record batch; return the error code.

        Args:
            data: The record batch.
            name: The transactional id of the producer; empty: no transactional id.
            verify: Asks the coordinator, by producer id and epoch, whether the partition is in the transaction; in the
                second protocol the coordinator adds the partition.
        """
        producer_id, epoch, sequence, count = _IDENTITY.unpack_from(data, _IDENTITY_AT)
        transactional = bool(data[_ATTRIBUTES_AT] & _TRANSACTIONAL)
        is_open = self.open().get(producer_id) == epoch
        if transactional and not is_open and (refused := verify(producer_id, epoch)):
            return refused
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return int(E.INVALID_PRODUCER_EPOCH)
        if known is None or epoch > known.epoch:
            known = _Producer(epoch)
        if sequence in known.recent:
            return 0
        if sequence != known.next_sequence:
            return int(E.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._producers[producer_id] = known
        known.next_sequence += count
        known.recent = [*known.recent, sequence][-_REMEMBERED:]
        state = OPEN if transactional else COMMITTED
        self.batches.append(Appended(producer_id, _VALUE.findall(data, _HEADER_BYTES), name, state))
        return 0

    def open_batches(self, producer_id: int) -> list[Appended]:
        """Return the record batches of a producer's open transaction."""
        return [one for one in self.batches if one.producer_id == producer_id and one.state == OPEN]

    def open(self) -> dict[int, int]:
        """Return the producer ids of open transactions, with their epochs."""
        found = {one.producer_id for one in self.batches if one.state == OPEN}
        return {producer_id: self._producers[producer_id].epoch for producer_id in sorted(found)}

    def mark(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Write the marker that ends a transaction."""
        known = self._producers.setdefault(producer_id, _Producer(epoch))
        if epoch > known.epoch:
            self._producers[producer_id] = _Producer(epoch)
        for one in self.open_batches(producer_id):
            one.state = COMMITTED if commit else ABORTED


class Logs:
    """The answers of partition leaders about their logs.

    Attributes:
        verify: Asks the coordinator of a transactional id whether a partition is in the id's transaction (KIP-890), or
            lets the coordinator add the partition, depending on the request's version. Arguments: id, producer id,
            epoch, topic, partition. Returns the error code.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.verify: Callable[[str, int, int, tuple[str, int]], int] = lambda *_: 0
        cluster.handlers[ProduceRequest] = self._produce
        cluster.handlers[DescribeProducersRequest] = self._describe
        self._init_transactional = cluster.handlers[InitProducerIdRequest]
        cluster.handlers[InitProducerIdRequest] = self._init
        self._idempotent = 0

    def _init(self, broker: Broker, request: InitProducerIdRequest, reply: Reply) -> None:
        """Answer a producer without transactions, as any broker does; other producers ask their coordinators."""
        if request.transactional_id is not None:
            self._init_transactional(broker, request, reply)
            return
        self._idempotent += 1
        reply(InitProducerIdResponse(error_code=0, producer_id=_FIRST_IDEMPOTENT + self._idempotent, producer_epoch=0))

    def _led(self, broker: Broker, name: str, index: int) -> Log | None:
        partition = self._cluster.topics[name].partitions[index]
        return partition.log if partition.leader == broker.node else None

    def _produce(self, broker: Broker, request: ProduceRequest, reply: Reply) -> None:
        topic_type = ProduceResponse.TopicProduceResponse
        names = {topic.id: name for name, topic in self._cluster.topics.items()}

        def append(name: str | None, index: int, records: bytes) -> int:
            if name is None:
                return int(E.UNKNOWN_TOPIC_ID)
            log = self._led(broker, name, index)
            if log is None:
                return int(E.NOT_LEADER_OR_FOLLOWER)
            name_of_producer = request.transactional_id or ""
            code = log.append(
                records,
                name_of_producer,
                lambda producer_id, epoch: self.verify(name_of_producer, producer_id, epoch, (name, index)),
            )
            if code:
                self._cluster.errors["Produce", code] += 1
            return code

        reply(
            ProduceResponse(
                [
                    topic_type(
                        topic.name,
                        topic.topic_id,
                        partition_responses=[
                            topic_type.PartitionProduceResponse(
                                index=one.index,
                                error_code=append(
                                    topic.name or names.get(topic.topic_id), one.index, one.records or b""
                                ),
                            )
                            for one in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
            )
        )

    def _describe(self, broker: Broker, request: DescribeProducersRequest, reply: Reply) -> None:
        topic_type = DescribeProducersResponse.TopicResponse
        partition_type = topic_type.PartitionResponse

        def describe(name: str, index: int) -> Any:
            log = self._led(broker, name, index)
            return partition_type(
                partition_index=index,
                error_code=int(E.NOT_LEADER_OR_FOLLOWER) if log is None else 0,
                active_producers=[
                    partition_type.ProducerState(
                        producer_id=producer_id, producer_epoch=epoch, current_txn_start_offset=0
                    )
                    for producer_id, epoch in (log.open() if log is not None else {}).items()
                ],
            )

        reply(
            DescribeProducersResponse(
                topics=[
                    topic_type(
                        name=topic.name, partitions=[describe(topic.name, index) for index in topic.partition_indexes]
                    )
                    for topic in request.topics
                ]
            )
        )
