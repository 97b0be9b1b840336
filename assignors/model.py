"""What an assignor sees and says: cluster, subscriptions, assignments. Plain, frozen data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, overload

NO_GENERATION = -1
"""The generation of a member that reports none (`ConsumerPartitionAssignor.Subscription` in Java: `Optional.empty`)."""


class TopicPartition(NamedTuple):
    """One partition of one topic; orders by topic, then by partition number."""

    topic: str
    partition: int


# NamedTuple's own constructor is a Python function; a group of a million partitions feels it.
_make: Callable[[tuple[str, int]], TopicPartition] = partial(tuple.__new__, TopicPartition)


class TopicPartitions(Sequence[TopicPartition]):
    """Many partitions as two columns, topics and numbers: reads like a tuple of TopicPartition, holds no object each.

    Equal to any sequence of the same partitions in the same order. Do not change the columns.
    """

    __slots__ = ("numbers", "topics")

    def __init__(self, topics: list[str], numbers: list[int]) -> None:
        self.topics = topics
        self.numbers = numbers

    @classmethod
    def of(cls, partitions: Iterable[TopicPartition]) -> TopicPartitions:
        """The columns of any partitions; those of a TopicPartitions are shared, not copied."""
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
class ClusterMetadata:
    """What the leader knows of the cluster.

    Attributes:
        partitions: The number of partitions of each topic. A topic that is absent, or has 0, is not assigned.
        racks: For each topic, for each partition number, the racks of its replicas (offline ones too, KIP-881).
            A topic may be absent and a list may be short or empty: those racks are unknown.
    """

    partitions: Mapping[str, int]
    racks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member said when it joined (`ConsumerProtocolSubscription` v0 to v3).

    Attributes:
        topics: The topics it wants.
        user_data: Bytes for the leader's assignor; their form is the assignor's own.
        owned: The partitions it still holds (v1 and later, KIP-429).
        generation: The generation in which it got `owned` (v2 and later, KIP-792); -1: not said.
        rack: `client.rack` (v3, KIP-881); None or "": none.
        instance_id: `group.instance.id` (KIP-345); not in the bytes, JoinGroup carries it beside them.
    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets (`ConsumerProtocolAssignment`).

    Attributes:
        partitions: The partitions it gets; the order has no meaning.
        user_data: Bytes for the member's assignor; their form is the assignor's own.
    """

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


GroupSubscription = Mapping[str, Subscription]
"""The subscriptions of a group's members, by member id."""
