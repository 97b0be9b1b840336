"""What the administration of groups returns: groups, members, lag. Frozen dataclasses, one row each."""

from __future__ import annotations

from dataclasses import dataclass

from assignors.model import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in the list of a cluster's groups.

    Attributes:
        group: The group id.
        type: classic or consumer (KIP-848), share (KIP-932) or streams (KIP-1071); unknown before Kafka 3.7.
        protocol: The protocol type of a classic group: consumer, connect or an application's own; empty for a group
            that never had members.
        state: Kafka's group state, such as Stable or Empty.
        members: The number of members; None: not asked for, or of a group that is no consumer group.
        lag: The sum of the lag of its partitions; a partition without a committed offset counts with all its offsets.
            None: not asked for, or of a group that is no consumer group, or that rebalances and has committed nothing.
        uncommitted: How many of its partitions have no committed offset; None as `lag`.
    """

    group: str
    type: str
    protocol: str
    state: str
    members: int | None = None
    lag: int | None = None
    uncommitted: int | None = None


@dataclass(frozen=True, slots=True)
class UserData:
    """What a member told the leader's assignor, or the leader the member, beside topics and partitions.

    Attributes:
        size: The number of bytes.
        weight: The capacity of a member under `weighted`.
        generation: The generation of `partitions`; None: it is not part of the data.
        partitions: The partitions that the member had before, as it reports them.
        text: A text that the data are, such as the reason why the leader could not assign.
    """

    size: int
    weight: int | None = None
    generation: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    text: str | None = None

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        known = [("weight", self.weight), ("generation", self.generation), ("had", len(self.partitions) or None)]
        return " ".join(f"{name}={value}" for name, value in known if value is not None) or f"{self.size} bytes"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, as its coordinator describes it.

    Attributes:
        member_id: The member id that the coordinator assigned.
        instance_id: `group.instance.id`; None for a dynamic member.
        client_id: `client.id`.
        host: The address that it connects from.
        partitions: Its assignment, sorted.
        topics: The topics that it subscribes to, sorted; empty while a classic group rebalances.
        rack: `client.rack`; None if it has none or the group rebalances.
        user_data: What it told the assignor in its subscription; None if it told nothing.
        assigned_data: What the assignor told it with its assignment; None if that is nothing.
        epoch: The member epoch (KIP-848); None in a classic group, whose brokers do not tell the generation.
        rate: Offsets a second that it commits, between two looks; None: not asked for, or not known.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    topics: tuple[str, ...] = ()
    rack: str | None = None
    user_data: UserData | None = None
    assigned_data: UserData | None = None
    epoch: int | None = None
    rate: float | None = None

    @property
    def name(self) -> str:
        """Return the instance id, or the member id of a dynamic member."""
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True)
class Group:
    """A group, as its coordinator describes it.

    Attributes:
        group: The group id.
        state: Kafka's group state: Stable, Empty, PreparingRebalance, CompletingRebalance, or in the consumer protocol
            (KIP-848) Assigning, Reconciling.
        assignor: The name of the group's assignor; empty if the group has none.
        members: The members, sorted by name.
        coordinator: The coordinator's host:port.
        type: classic or consumer.
        epoch: The group epoch (KIP-848); None in a classic group.
    """

    group: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: str
    type: str = "classic"
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's lag in one partition.

    Attributes:
        topic: The topic.
        partition: The partition number.
        committed: The committed offset; None if the group has committed none.
        end: The end offset of the log (the high watermark).
        member: The name of the member that owns the partition; None if there is none.
        start: The first offset of the log.
    """

    topic: str
    partition: int
    committed: int | None
    end: int
    member: str | None
    start: int = 0

    @property
    def lag(self) -> int | None:
        """Return the number of offsets between the committed and the end offset; None without a committed offset."""
        return None if self.committed is None else max(0, self.end - self.committed)

    @property
    def behind(self) -> int:
        """Return the lag; without a committed offset the number of offsets in the log."""
        return max(0, self.end - (self.start if self.committed is None else self.committed))
