"""Commit markers that a broker has lost: find where they are missing, and write them.

A coordinator that is killed right after it has answered a commit may not write the markers after its restart (observed
with a single broker, Kafka 4.3.1). The transaction's state is `CompleteCommit` then, but the partition still holds the
transaction open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages.transaction import WriteTxnMarkersRequest
from kafka_source.sink.two_phase.open_transactions import COMMITTED, list_in_states
from kafka_source.sink.two_phase.visibility import open_producers
from kafka_source.transactions.open_transaction import OpenTransaction

_VERSION = 1
_NO_COORDINATOR = -1


@dataclass(frozen=True, slots=True)
class LostMarker:
    """A committed transaction, and a partition without its commit marker."""

    transaction: OpenTransaction
    partition: TopicPartition


async def lost_markers(
    client: KafkaClient, prefix: str, partitions: Iterable[TopicPartition], deadline: Deadline
) -> list[LostMarker]:
    """Return the missing commit markers of a sink's committed transactions in these partitions."""
    committed = await list_in_states(client, prefix, [COMMITTED], deadline)
    by_producer = {(one.transaction.producer_id, one.transaction.epoch): one.transaction for one in committed}
    still_open = await open_producers(client, partitions, deadline)
    return [
        LostMarker(by_producer[key], tp)
        for tp, keys in sorted(still_open.items())
        for key in sorted(keys)
        if key in by_producer
    ]


async def write_marker(client: KafkaClient, lost: LostMarker, deadline: Deadline) -> None:
    """Write a missing marker. This needs the right to alter the cluster.

    Raises:
        KafkaGroupError: The partition's leader refuses the marker.
    """
    tp, marker = lost.partition, WriteTxnMarkersRequest.WritableTxnMarker
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=lost.transaction.producer_id,
                producer_epoch=lost.transaction.epoch,
                transaction_result=True,
                topics=[marker.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                coordinator_epoch=_NO_COORDINATOR,
            )
        ]
    )
    snapshot = await client.metadata({tp.topic}, deadline)
    leader = snapshot.topics[tp.topic].partitions[tp.partition].leader
    answer = await client.send(leader, request, deadline, _VERSION)
    for written in answer.markers:
        for topic in written.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    where = f"{topic.name}-{partition.partition_index}"
                    raise error_for_code(partition.error_code, f"Writing the commit marker to {where} failed")
