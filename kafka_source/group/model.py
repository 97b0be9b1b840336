"""What the group layer takes and gives: settings and assignments. Plain, frozen, picklable data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.model.credentials import SlotCredentials

CONSUMER = "consumer"
"""The protocol type of consumer groups."""


class TopicFilter(Protocol):
    """What all slots of a query want: topics by name, or all that a pattern means."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Names; empty with a pattern."""
        ...

    @property
    def pattern(self) -> str | None:
        """A regular expression, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Topics:
    """A `TopicFilter`; exactly one of the two is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a query's slots are members.

    Attributes:
        group: `group.id`.
        instance_id_prefix: Slot k is the static member `{prefix}-{k}`; None: dynamic members.
        slots: How many members.
        session_timeout_ms: The group gives a member up that is silent for so long.
        rebalance_timeout_ms: A rebalance waits for a member for so long.
        heartbeat_interval_ms: Time between heartbeats.
        rebalance_batch_ms: The leader collects changes of topics for so long before it asks for one rebalance.
        metadata_max_age_ms: How often topics are looked at for changes.
        client_id: The members' `client.id`, apart from the fetchers' so that quotas of these do not slow heartbeats.
        rack: `client.rack` of all slots.
        leave_on_close: Leave the group at the end; else static members wait for a restart until their session ends.
    """

    group: str
    instance_id_prefix: str | None = None
    slots: int = 1
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    rebalance_batch_ms: int = 2_000
    metadata_max_age_ms: int = 10_000
    client_id: str = "kafkagroup-member"
    rack: str | None = None
    leave_on_close: bool = True

    def instance_id(self, slot: int) -> str | None:
        """`group.instance.id` of a slot."""
        return None if self.instance_id_prefix is None else f"{self.instance_id_prefix}-{slot}"


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """What one slot got.

    Attributes:
        credentials: The slot's.
        partitions: All of them, copies too.
        user_data: For the slot's assignor.
        replicas: The numbers, from 1, of copies that are not the first one of their partition.
    """

    credentials: SlotCredentials
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    replicas: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """What all slots of a query got in one generation.

    Attributes:
        generation: The group's.
        assignor: The strategy that the group uses.
        leading: Whether one of our slots leads the group.
        slots: In the order of their numbers.
    """

    generation: int
    assignor: str
    leading: bool
    slots: tuple[SlotAssignment, ...]
