"""OffsetForLeaderEpoch: where a leader epoch ends in the log of a partition's current leader (KIP-320)."""

from collections.abc import Mapping
from typing import NamedTuple

from assignors.model import TopicPartition
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages.cluster import OffsetForLeaderEpochRequest
from kafka_source.model.partition_runs import numbers_by_topic


class AskedEpoch(NamedTuple):
    """A leader epoch whose end is requested.

    Attributes:
        epoch: The epoch. If the log has no records of this epoch, the previous epoch counts.
        current: The epoch in which the broker must lead; -1: any epoch.
    """

    epoch: int
    current: int = -1


async def epoch_ends(
    client: KafkaClient, leader: int, asked: Mapping[TopicPartition, AskedEpoch], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return the end offset of an epoch in each partition that a broker leads; -1: unknown. No retries.

    If records of the epoch were read beyond this end, they came from a log that differs from the leader's log.

    Args:
        client: The cluster's client.
        leader: The node id of the partitions' leader.
        asked: The epoch of each partition.
        deadline: The time limit for the response.

    Raises:
        KafkaGroupError: The broker cannot be reached, or responds with an error.
    """
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    request = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            topic_type(
                topic=topic,
                partitions=[
                    topic_type.OffsetForLeaderPartition(
                        partition=number,
                        current_leader_epoch=asked[TopicPartition(topic, number)].current,
                        leader_epoch=asked[TopicPartition(topic, number)].epoch,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in numbers_by_topic(sorted(asked)).items()
        ],
    )
    answer = await client.send(leader, request, deadline)
    found = {}
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                name = f"{topic.topic}-{p.partition}"
                raise error_for_code(p.error_code, f"Asking for the leader epochs of {name} failed")
            found[TopicPartition(topic.topic, p.partition)] = p.end_offset
    return found
