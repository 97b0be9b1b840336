"""Where a partition begins and ends, and where a time is in it: one leader's answer (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages import ListOffsetsRequest

EARLIEST, LATEST = -2, -1
"""In place of a time: the first offset, and the one after the last."""

# Later versions know more special times; this one has all that is needed.
_VERSION = 6


async def list_offsets(
    client: KafkaClient,
    leader: int,
    times: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, int]:
    """The offsets of times in partitions that a broker leads; no retries.

    Args:
        client: Of the cluster.
        leader: The broker's node id.
        times: EARLIEST, LATEST, or ms since 1970, for the first record of then or later.
        deadline: For the answer.
        read_committed: Whether LATEST is the last stable offset.

    Returns:
        An offset for each partition, -1 where it has no record of that time or later.

    Raises:
        ConnectionLost: The broker does not answer.
        KafkaGroupError: It does not say, for instance because another broker leads by now.
    """
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in sorted(times):
        by_topic.setdefault(tp.topic, []).append(tp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            topic_type(
                name=topic,
                partitions=[
                    topic_type.ListOffsetsPartition(
                        partition_index=tp.partition, current_leader_epoch=-1, timestamp=times[tp]
                    )
                    for tp in partitions
                ],
            )
            for topic, partitions in by_topic.items()
        ],
    )
    answer = await client.send(leader, request, deadline, _VERSION)
    found = {}
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                name = f"{topic.name}-{p.partition_index}"
                raise error_for_code(p.error_code, f"Asking for the offsets of {name} failed")
            found[TopicPartition(topic.name, p.partition_index)] = p.offset
    return found
