"""The ends of partitions, looked up once on the event loop of the caller, from the brokers that answer in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import LATEST, list_offsets
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, KafkaClient

log = logging.getLogger(__name__)


async def end_offsets(
    client: KafkaClient, partitions: Iterable[TopicPartition], deadline: Deadline, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the end of each partition whose leader answers; the others are left out.

    Args:
        client: The cluster's client.
        partitions: The partitions.
        deadline: The time limit.
        read_committed: Whether the end is the last stable offset instead of the high watermark.

    Raises:
        KafkaGroupError: No broker describes the topics in time.
    """
    wanted = set(partitions)
    seen = await client.metadata({tp.topic for tp in wanted}, deadline)
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp in sorted(wanted):
        topic = seen.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        if partition is not None and partition.leader >= 0:
            by_leader.setdefault(partition.leader, {})[tp] = LATEST

    async def ask(leader: int, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        try:
            return await list_offsets(client, leader, times, deadline, read_committed=read_committed)
        except KafkaGroupError as error:
            log.info("ends of partitions at broker=%d unknown: %s", leader, error)
            return {}

    answers = await asyncio.gather(*(ask(leader, times) for leader, times in by_leader.items()))
    return {tp: end for answer in answers for tp, end in answer.items() if end >= 0}
