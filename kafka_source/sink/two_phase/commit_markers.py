"""Commit markers that a broker has lost: find where they are missing, and write them.

A coordinator that was killed right after it answered a commit may forget to write the markers (seen with a single
broker, Kafka 4.3.1). Its log says `CompleteCommit` then, while the partition still holds the transaction open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages import WriteTxnMarkersRequest
from kafka_source.sink.two_phase.open_transactions import COMMITTED, in_state
from kafka_source.sink.two_phase.visibility import open_producers
from kafka_source.transactions.open_transaction import OpenTransaction

_VERSION = 1
_NO_COORDINATOR = -1


@dataclass(frozen=True, slots=True)
class LostMarker:
    """A transaction that is committed, and a partition that does not know it."""

    transaction: OpenTransaction
    place: TopicPartition


async def lost_markers(
    client: KafkaClient, prefix: str, partitions: Iterable[TopicPartition], deadline: Deadline
) -> list[LostMarker]:
    """Where markers of a sink's committed transactions are missing; looked for in these partitions."""
    committed = await in_state(client, prefix, COMMITTED, deadline)
    by_producer = {(one.transaction.producer_id, one.transaction.epoch): one.transaction for one in committed}
    still_open = await open_producers(client, partitions, deadline)
    return [
        LostMarker(by_producer[key], tp)
        for tp, keys in sorted(still_open.items())
        for key in sorted(keys)
        if key in by_producer
    ]


async def write_marker(client: KafkaClient, lost: LostMarker, deadline: Deadline) -> None:
    """Write the marker that is missing; takes the right to alter the cluster.

    Raises:
        KafkaGroupError: The partition's leader refuses.
    """
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=lost.transaction.producer_id,
                producer_epoch=lost.transaction.epoch,
                transaction_result=True,
                topics=[marker.WritableTxnMarkerTopic(name=lost.place.topic, partition_indexes=[lost.place.partition])],
                coordinator_epoch=_NO_COORDINATOR,
            )
        ]
    )
    snapshot = await client.metadata({lost.place.topic}, deadline)
    leader = snapshot.topics[lost.place.topic].partitions[lost.place.partition].leader
    answer = await client.send(leader, request, deadline, _VERSION)
    for written in answer.markers:
        for topic in written.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    where = f"{topic.name}-{partition.partition_index}"
                    raise error_for_code(partition.error_code, f"Writing the commit marker to {where} failed")
