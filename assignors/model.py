"""The input and output of an assignor: cluster metadata, subscriptions, assignments. Plain, frozen data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, overload

NO_GENERATION = -1
"""The generation of a member that reports none (`ConsumerPartitionAssignor.Subscription`: `Optional.empty`)."""


class TopicPartition(NamedTuple):
    """One partition of one topic; orders by topic, then by partition number."""

    topic: str
    partition: int


# NamedTuple's own constructor is a Python function, whose cost is measurable for a million partitions.
_make: Callable[[tuple[str, int]], TopicPartition] = partial(tuple.__new__, TopicPartition)


class TopicPartitions(Sequence[TopicPartition]):
    """A sequence of TopicPartition stored as two columns, topics and numbers, without one object per partition.

    A TopicPartition is created when an item is read. The sequence equals any sequence of the same partitions in the
    same order. Do not change the columns.
    """

    __slots__ = ("numbers", "topics")

    def __init__(self, topics: list[str], numbers: list[int]) -> None:
        self.topics = topics
        self.numbers = numbers

    @classmethod
    def from_pairs(cls, partitions: Iterable[TopicPartition]) -> TopicPartitions:
        """Build the columns from partitions. A TopicPartitions is returned itself, not a copy."""
        if isinstance(partitions, TopicPartitions):
            return partitions
        pairs = partitions if isinstance(partitions, (tuple, list)) else list(partitions)
        return cls([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(_make, zip(self.topics, self.numbers, strict=True))

    @overload
    def __getitem__(self, index: int) -> TopicPartition: ...
    @overload
    def __getitem__(self, index: slice) -> TopicPartitions: ...
    def __getitem__(self, index: int | slice) -> TopicPartition | TopicPartitions:
        if isinstance(index, slice):
            return TopicPartitions(self.topics[index], self.numbers[index])
        return TopicPartition(self.topics[index], self.numbers[index])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TopicPartitions):
            return self.topics == other.topics and self.numbers == other.numbers
        if isinstance(other, Sequence):
            return len(self) == len(other) and all(map(tuple.__eq__, self, other))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """The records to read in one partition, as the leader knows them.

    Attributes:
        lag: The number of records between the group's committed offset and the end of the partition; None: unknown.
        rate: The number of records that are written to the partition per second; None: unknown.
    """

    lag: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of a member.

    Attributes:
        speed: The number of records that the member processes per second while more records are waiting; None: unknown.
        rates: The number of records that are written per second to each of the member's partitions.
    """

    speed: float | None = None
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The part of the cluster's metadata that an assignment depends on.

    Attributes:
        partitions: The number of partitions of each topic. A topic that is absent or has 0 partitions is not assigned.
        racks: The racks of all replicas, offline replicas too (KIP-881), for each partition of each topic. Racks are
            unknown for an absent topic, and for partitions beyond the end of a list.
        work: The lag and the rate of each partition, for strategies that balance work (`Assignor.rebalance_interval`).
            The work of an absent partition is unknown.
    """

    partitions: Mapping[str, int]
    racks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    work: Mapping[TopicPartition, PartitionWork] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription that one member sends in JoinGroup (`ConsumerProtocolSubscription` v0 to v3).

    Attributes:
        topics: The topics that the member subscribes to.
        user_data: Bytes for the leader's assignor, in a format that the assignor defines.
        owned: The partitions that the member still owns (v1 and later, KIP-429).
        generation: The generation in which `owned` was assigned (v2 and later, KIP-792); -1 if unknown.
        rack: `client.rack` (v3, KIP-881); None or "" if the member has no rack.
        instance_id: `group.instance.id` (KIP-345), which is a field of JoinGroup, not of the encoded subscription.
    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of one member (`ConsumerProtocolAssignment`).

    Attributes:
        partitions: The assigned partitions; the order has no meaning.
        user_data: Bytes for the member's assignor, in a format that the assignor defines.
    """

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


GroupSubscription = Mapping[str, Subscription]
"""The subscriptions of a group's members, by member id."""
