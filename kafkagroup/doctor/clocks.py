"""The brokers' clocks beside the clock of this machine.

No request asks a broker for its time. But the coordinators of groups write their own time into the records of
`__consumer_offsets`, and ListOffsets tells the newest timestamp of a partition (KIP-734, Kafka 3.0). So a broker's
clock was at this time when a group last committed, joined or left.
"""

from __future__ import annotations

import asyncio

from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages import ListOffsetsRequest
from kafkagroup.doctor.finding import Finding

_NAME = "clocks"
_TOPIC = "__consumer_offsets"
_MAX_TIMESTAMP = -3
_FIRST_VERSION, _VERSION = 7, 7
_TOLERANCE_SECONDS = 5.0
_RECENT_SECONDS = 60.0


def clock_finding(newest_ms: int | None, now: float) -> Finding:
    """Return how the brokers' clocks compare to ours.

    Args:
        newest_ms: The newest timestamp that a broker has written, in ms since 1970; None: unknown.
        now: Our time in seconds since 1970.
    """
    if newest_ms is None or newest_ms <= 0:
        return Finding(_NAME, "skipped", "Unknown: no broker tells its time to this user.")
    ahead = newest_ms / 1000 - now
    if ahead > _TOLERANCE_SECONDS:
        return Finding(
            _NAME,
            "warn",
            f"A broker's clock is at least {ahead:.0f} s ahead of this machine's.",
            "Synchronise the clocks (NTP): starting timestamps, token lifetimes and certificates depend on them.",
        )
    if -ahead > _RECENT_SECONDS:
        return Finding(_NAME, "skipped", f"Unknown: no group has written an offset for {-ahead:.0f} s.")
    return Finding(
        _NAME,
        "ok",
        f"The brokers' clocks are not ahead of this machine's, and at most {max(0.0, -ahead):.0f} s behind.",
    )


async def newest_timestamp(client: KafkaClient, deadline: Deadline) -> int | None:
    """Return the newest timestamp in `__consumer_offsets` in ms since 1970; None if no broker tells."""
    try:
        snapshot = await client.metadata({_TOPIC}, deadline)
        topic = snapshot.topics.get(_TOPIC)
        by_leader: dict[int, list[int]] = {}
        for number, partition in ({} if topic is None else topic.partitions).items():
            by_leader.setdefault(partition.leader, []).append(number)
        asked = (_of_leader(client, node, numbers, deadline) for node, numbers in by_leader.items() if node >= 0)
        return max([0, *await asyncio.gather(*asked)]) or None
    except KafkaGroupError:
        return None


async def _of_leader(client: KafkaClient, node: int, numbers: list[int], deadline: Deadline) -> int:
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    partitions = [
        topic_type.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=_MAX_TIMESTAMP)
        for number in numbers
    ]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[topic_type(name=_TOPIC, partitions=partitions)]
    )
    connection = await client.connection(await client.broker(node, deadline), deadline)
    if connection.versions.version_for(request, _VERSION) < _FIRST_VERSION:
        return 0
    answer = await connection.send(request, max(0.001, deadline.left), _VERSION)
    return max((p.timestamp for topic in answer.topics for p in topic.partitions if p.error_code == 0), default=0)
