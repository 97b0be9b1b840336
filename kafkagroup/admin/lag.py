"""Look up the lag of groups and the rates of members, and the offsets of a rewind's target."""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import UnknownGroupError, UnknownTopicError
from kafka_source.group.requests import fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.partition_runs import format_partitions
from kafka_source.model.rewind_target import Known, Move, Target, resolve, timestamps
from kafkagroup.admin.group_requests import describe_group
from kafkagroup.admin.rows import Group, MemberDescription, PartitionLag, Rows

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """A group and its committed offsets at one moment.

    Attributes:
        group: The group; None: the group does not exist.
        committed: The group's committed offsets, without offsets of transactions that are still open.
    """

    group: Group | None
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)

    def owners(self) -> dict[TopicPartition, str]:
        """Return the name of each partition's owner; if a partition has several (`redundant`), the last name."""
        if self.group is None:
            return {}
        return {tp: member.name for member in self.group.members for tp in member.partitions}


async def positions_of(client: KafkaClient, groups: Iterable[str], deadline: Deadline) -> dict[str, GroupPositions]:
    """Return groups and their committed offsets, fetched at the same time.

    Raises:
        KafkaGroupError: The brokers do not answer, or refuse a request.
    """

    async def positions(name: str) -> GroupPositions:
        try:
            group, committed = await asyncio.gather(
                describe_group(client, name, deadline), fetch_committed(client, name, None, deadline, stable=False)
            )
        except UnknownGroupError:
            return GroupPositions(None)
        return GroupPositions(group, {tp: offset for tp, offset in committed.items() if offset is not None})

    names = list(dict.fromkeys(groups))
    return dict(zip(names, await asyncio.gather(*map(positions, names)), strict=True))


def lag_of(
    cluster: Cluster, positions: Mapping[str, GroupPositions], partitions: Collection[TopicPartition] = ()
) -> dict[str, Rows[PartitionLag]]:
    """Return the lag of each group in its partitions with a committed offset or an owner.

    Partitions of deleted topics are left out, unless they are in `partitions`. The lag of a partition without a leader
    is unknown, and a warning names the partition.

    Args:
        cluster: The cluster; one lookup serves all groups.
        positions: The groups' positions.
        partitions: Further partitions to include for each group.

    Raises:
        UnknownTopicError: One of `partitions` does not exist.
        KafkaGroupError: The brokers do not answer, or refuse a request.
    """
    wanted = {name: {*of.committed, *of.owners(), *partitions} for name, of in positions.items()}
    every = set(partitions).union(*wanted.values())
    counts = {
        topic: 0 if found is None else found.partitions
        for topic, found in cluster.topics({tp.topic for tp in every}).items()
    }
    every = {tp for tp in every if tp.partition < counts[tp.topic]}
    if missing := sorted(set(partitions) - every):
        # A group may have offsets of deleted topics. A topic that the caller names must exist.
        if not counts[missing[0].topic]:
            raise cluster.unknown_topic(missing[0].topic)
        names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in missing)
        raise UnknownTopicError(
            f"Looking up the lag of {names} failed: the topic has no such partition. Create the partition, "
            "or correct its number.",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    leaderless = cluster.without_leader(every)
    if leaderless:
        names = format_partitions(sorted(leaderless))
        log.warning("no broker leads %s: their lag is unknown and not in the sums", names)
    starts, ends = cluster.bounds(every - leaderless, every - leaderless, read_committed=False)
    found = {}
    for name, of in positions.items():
        owners = of.owners()
        found[name] = Rows(
            PartitionLag,
            (
                PartitionLag(
                    tp.topic, tp.partition, of.committed.get(tp), ends.get(tp), owners.get(tp), starts.get(tp, 0)
                )
                for tp in sorted(wanted[name] & every)
            ),
        )
    return found


def rates_of(
    before: Iterable[MemberDescription],
    committed_before: Mapping[TopicPartition, int],
    now: Iterable[MemberDescription],
    committed: Mapping[TopicPartition, int],
    seconds: float,
) -> dict[str, float | None]:
    """Return each member's commit rate in offsets per second, by member id.

    A partition counts if the member owns it in both samples, and the first sample has a committed offset of the
    partition. A partition whose offset decreased, because the group was rewound, adds 0.

    Args:
        before: The members in the first sample.
        committed_before: The group's committed offsets in the first sample.
        now: The members in the second sample.
        committed: The group's committed offsets in the second sample.
        seconds: The time between the samples.

    Returns:
        None for a member that the first sample lacks, or whose partitions cannot be compared.
    """
    had = {member.member_id: set(member.partitions) for member in before}
    rates: dict[str, float | None] = {}
    for member in now:
        partitions = [tp for tp in member.partitions if tp in had.get(member.member_id, ()) and tp in committed_before]
        known = member.member_id in had and (partitions or not member.partitions)
        moved = sum(max(0, committed.get(tp, 0) - committed_before[tp]) for tp in partitions)
        rates[member.member_id] = moved / seconds if known and seconds > 0 else None
    return rates


def moves_now(
    cluster: Cluster,
    target: Target,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    other: Mapping[TopicPartition, int],
) -> tuple[Move, ...]:
    """Return the new positions of a group, sorted, without partitions that the target does not change.

    Args:
        cluster: Looks up the logs' bounds, and offsets by time.
        target: Where the group continues.
        partitions: The partitions to move.
        committed: The committed offsets of the group.
        other: The committed offsets of the target's `other_group`; empty if the target names no group.

    Raises:
        OptionError: The target shifts committed offsets, and a partition has none.
        UnknownTopicError: A partition does not exist.
        KafkaGroupError: The brokers do not answer, or refuse a request.
    """
    starts, ends = cluster.bounds(partitions, partitions, read_committed=False)
    times = timestamps(target, partitions, round(time.time() * 1000))
    found = cluster.at_times(times, read_committed=False)
    return resolve(target, partitions, Known(starts, ends, committed, found, other))
