"""What an assignor sees and says: cluster, subscriptions, assignments. Plain, frozen data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NO_GENERATION = -1
"""The generation of a member that reports none (`ConsumerPartitionAssignor.Subscription` in Java: `Optional.empty`)."""


class TopicPartition(NamedTuple):
    """One partition of one topic; orders by topic, then by partition number."""

    topic: str
    partition: int


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
