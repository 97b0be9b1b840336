"""What people ask about groups: who is a member, with which partitions, how far behind; and rewinding a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Position

from assignors.model import TopicPartition
from kafka_source.brokers import Brokers
from kafka_source.client_config import Settings
from kafka_source.cluster import Cluster
from kafka_source.errors import from_confluent

_T = TypeVar("_T")
_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group as its coordinator sees it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]

    @property
    def name(self) -> str:
        """What people know it by: its instance id if it has one."""
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True)
class Group:
    """A group as its coordinator sees it; `state` is Stable, Empty, Dead, PreparingRebalance or CompletingRebalance."""

    group: str
    state: str
    assignor: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition; `committed` is None where it has committed nothing."""

    topic: str
    partition: int
    committed: int | None
    end: int
    member: str | None

    @property
    def lag(self) -> int | None:
        """Offsets between the committed one and the end of the log."""
        return None if self.committed is None else max(0, self.end - self.committed)


class Groups:
    """Asks a cluster about its consumer groups.

    Args:
        settings: Of the Kafka clients.
    """

    def __init__(self, settings: Settings) -> None:
        self._cluster = Cluster(settings)
        self._brokers = Brokers(settings, timeout=_TIMEOUT)

    def describe(self, group: str) -> Group:
        """The group's members and their partitions.

        Raises:
            KafkaGroupError: The brokers do not answer, or refuse.
        """
        found = self._ask(
            group,
            f"Describing group {group}",
            lambda: self._brokers.admin.describe_consumer_groups([group], request_timeout=_TIMEOUT),
        )
        members = (
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.host,
                tuple(sorted(TopicPartition(p.topic, p.partition) for p in member.assignment.topic_partitions)),
            )
            for member in found.members
        )
        return Group(
            group,
            _STATE_NAMES.get(found.state, "Unknown"),
            found.partition_assignor,
            tuple(sorted(members, key=lambda m: m.name)),
        )

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The group's committed offsets."""
        request = ConsumerGroupTopicPartitions(group)
        found = self._ask(
            group,
            f"Asking for the offsets of group {group}",
            lambda: self._brokers.admin.list_consumer_group_offsets([request], request_timeout=_TIMEOUT),
        )
        return {TopicPartition(p.topic, p.partition): p.offset for p in found.topic_partitions or [] if p.offset >= 0}

    def lag(self, group: str, partitions: tuple[TopicPartition, ...] = ()) -> list[PartitionLag]:
        """How far the group is behind, in each partition that it has committed or owns.

        Args:
            group: The group.
            partitions: Further partitions to show, e.g. those of a topic that nobody has read yet.
        """
        committed = self.committed(group)
        owners = {tp: member.name for member in self.describe(group).members for tp in member.partitions}
        shown = sorted({*committed, *owners, *partitions})
        ends = self._cluster.latest(shown, read_committed=False)
        return [PartitionLag(tp.topic, tp.partition, committed.get(tp), ends[tp], owners.get(tp)) for tp in shown]

    def rewind(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set a group's committed offsets; the group must have no members.

        Raises:
            KafkaGroupError: The group has members, or the user may not.
        """
        positions = [Position(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(group, positions)
        done = self._ask(
            group,
            f"Rewinding group {group}",
            lambda: self._brokers.admin.alter_consumer_group_offsets([request], request_timeout=_TIMEOUT),
        )
        for position in done.topic_partitions or []:
            if position.error is not None:
                raise from_confluent(
                    position.error, f"Rewinding group {group} in {position.topic}-{position.partition} failed"
                )

    def _ask(self, group: str, what: str, question: Callable[[], Mapping[str, Future[_T]]]) -> _T:
        return self._brokers.ask(what, lambda: self._brokers.answer(question()[group]))


_STATE_NAMES = {
    ConsumerGroupState.UNKNOWN: "Unknown",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
