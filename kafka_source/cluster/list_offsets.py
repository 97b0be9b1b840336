"""ListOffsets: request first and latest offsets, or offsets of timestamps, from a leader; `lookup` has the retries."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from assignors.model import TopicPartition
from kafka_source.errors import KafkaGroupError, error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages.cluster import ListOffsetsRequest
from kafka_source.model.partition_runs import numbers_by_topic

EARLIEST, LATEST = -2, -1
"""Special timestamps: the first offset, and the offset after the last record."""


class ListedOffset(NamedTuple):
    """An offset as a leader returned it; a tuple, because it is faster than a dataclass (see `Range`).

    Attributes:
        offset: The offset; -1 if the partition has no record at or after the timestamp.
        leader_epoch: For LATEST the leader's epoch, for a timestamp the record's epoch; -1: unknown (Kafka 2.0).
        timestamp: The record's timestamp, in ms since 1970; -1: no record, or a special timestamp was requested.
    """

    offset: int
    leader_epoch: int = -1
    timestamp: int = -1


# Later versions add special timestamps that this project does not use.
_VERSION = 6


async def list_offsets(
    client: KafkaClient,
    leader: int,
    times: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, ListedOffset]:
    """Return the offset of each partition's timestamp, from the partitions' leader; no retries.

    Args:
        client: The cluster's client.
        leader: The node id of the partitions' leader.
        times: EARLIEST, LATEST, or a timestamp in ms since 1970 (the first record at or after this time), by partition.
        deadline: The time limit for the response.
        read_committed: Whether LATEST means the last stable offset instead of the high watermark. The record of a
            timestamp is always below LATEST.

    Raises:
        ConnectionLost: The broker does not answer.
        KafkaGroupError: The broker responds with an error, for example because it is no longer the leader.
    """
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            topic_type(
                name=topic,
                partitions=[
                    topic_type.ListOffsetsPartition(
                        partition_index=number, current_leader_epoch=-1, timestamp=times[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in numbers_by_topic(sorted(times)).items()
        ],
    )
    answer = await client.send(leader, request, deadline, _VERSION)
    found = {}
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                name = f"{topic.name}-{p.partition_index}"
                raise error_for_code(p.error_code, f"Asking for the offsets of {name} failed")
            found[TopicPartition(topic.name, p.partition_index)] = ListedOffset(p.offset, p.leader_epoch, p.timestamp)
    return found


log = logging.getLogger(__name__)


async def end_offsets(
    client: KafkaClient, partitions: Iterable[TopicPartition], deadline: Deadline, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the end of each partition whose leader answers; other partitions are left out.

    Args:
        client: The cluster's client.
        partitions: The partitions.
        deadline: The time limit.
        read_committed: Whether the end is the last stable offset instead of the high watermark.

    Raises:
        KafkaGroupError: No broker describes the topics in time.
    """
    ends = await _ends(client, partitions, deadline, read_committed=read_committed)
    return {tp: end.offset for tp, end in ends.items()}


async def leader_epochs(
    client: KafkaClient, offsets: Mapping[TopicPartition, int], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return the epoch to commit with each offset, by which a later reader detects a truncation (KIP-320).

    An offset after the end of its log has none, nor has an offset of a partition whose leader does not answer.

    Raises:
        KafkaGroupError: No broker describes the topics in time.
    """
    ends = await _ends(client, offsets, deadline, read_committed=False)
    return {tp: end.leader_epoch for tp, end in ends.items() if offsets[tp] <= end.offset}


async def _ends(
    client: KafkaClient, partitions: Iterable[TopicPartition], deadline: Deadline, *, read_committed: bool
) -> dict[TopicPartition, ListedOffset]:
    wanted = set(partitions)
    seen = await client.metadata({tp.topic for tp in wanted}, deadline)
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp in sorted(wanted):
        topic = seen.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is not None and partition.leader >= 0:
            by_leader.setdefault(partition.leader, {})[tp] = LATEST

    async def ask(leader: int, times: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        try:
            return await list_offsets(client, leader, times, deadline, read_committed=read_committed)
        except KafkaGroupError as error:
            log.info("looking up end offsets at broker=%d failed: %s", leader, error)
            return {}

    answers = await asyncio.gather(*(ask(leader, times) for leader, times in by_leader.items()))
    return {tp: end for answer in answers for tp, end in answer.items() if end.offset >= 0}
