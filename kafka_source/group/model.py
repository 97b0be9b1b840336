"""The settings of a query's slots (`group_settings`): number, instance ids, timeouts; the slots' assignments."""

import socket
import uuid
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.identity import is_recreated
from kafka_source.model.stream_offset import Copies
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.runtime.spark_processes import driver_pid

CONSUMER = "consumer"
"""The protocol type of consumer groups."""


class TopicFilter(Protocol):
    """The subscription of all slots of a query: topics by name, or a pattern."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics; empty with a pattern."""
        ...

    @property
    def pattern(self) -> str | None:
        """The regular expression of `subscribePattern`, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Topics:
    """A `TopicFilter` of plain values; set either the topics or the pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as the leader sees it; `metadata` is its metadata for the protocol that the group uses."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings with which the slots of a query join their group.

    Attributes:
        group: `group.id`.
        instance_id_prefix: Slot k is the static member `{prefix}-{k}`; None: dynamic members.
        slots: The number of members.
        session_timeout_ms: The time without a heartbeat after which the coordinator removes a member.
        rebalance_timeout_ms: How long a rebalance waits for a member to rejoin.
        heartbeat_interval_ms: The time between heartbeats.
        coordinator_timeout_ms: The longest wait for a coordinator that is unreachable or is loading the group.
        rebalance_batch_ms: The time for which the leader collects topic changes before one rebalance.
        metadata_max_age_ms: The interval at which topics are checked for changes.
        client_id: The members' `client.id`, different from that of fetches, whose quota must not delay heartbeats.
        rack: `client.rack` of all slots.
        leave_on_close: Whether to leave the group on close. If false, static members stay until their sessions end, and
            a restart within that time continues as these members.
        driver: The prefix of this Spark driver's generated instance ids; None: unknown.
        is_asked_for: Whether the user has set `group.membership=true`, and so expects other members.
        rewinds: Whether the group may be rewound while the slots are members: only if slots rejoin between
            micro-batches and then fetch the group's offsets; see `strategies`.
        remote_assignor: `group.remote.assignor`, with the consumer protocol; None: the group's assignor.
    """

    group: str
    instance_id_prefix: str | None = None
    slots: int = 1
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    coordinator_timeout_ms: int = 300_000
    rebalance_batch_ms: int = 2_000
    metadata_max_age_ms: int = 10_000
    client_id: str = "kafkagroup-member"
    rack: str | None = None
    leave_on_close: bool = True
    driver: str | None = None
    is_asked_for: bool = False
    rewinds: bool = False
    remote_assignor: str | None = None

    def instance_id(self, slot: int) -> str | None:
        """Return the `group.instance.id` of a slot; None for dynamic members."""
        return None if self.instance_id_prefix is None else f"{self.instance_id_prefix}-{slot}"


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The assignment of one slot.

    Attributes:
        credentials: The credentials with which a task acts as the slot.
        partitions: All assigned partitions, including redundant copies.
        user_data: The assignor's user data for the slot.
        replicas: The replica number (1 or higher) of each partition that the slot reads as a redundant copy.
        held: Partitions of the slot's micro-batch that were revoked, and that no member has until the slot rejoins.
        topic_ids: The topic ids of the partitions, if the group assigns by id.
    """

    credentials: SlotCredentials
    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    replicas: Mapping[TopicPartition, int] = field(default_factory=dict)
    held: tuple[TopicPartition, ...] = ()
    topic_ids: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """The assignments of all slots of a query in one generation.

    Attributes:
        generation: The group's generation.
        assignor: The name of the assignor that the group uses.
        leading: Whether one of the slots is the group's leader.
        slots: The slots' assignments, ordered by slot number.
    """

    generation: int
    assignor: str
    leading: bool
    slots: tuple[SlotAssignment, ...]

    @property
    def held(self) -> dict[TopicPartition, int]:
        """The slot for which each partition is held; see `SlotAssignment.held`."""
        return {tp: slot.credentials.slot for slot in self.slots for tp in slot.held}


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """The partitions that a query may read in one generation of the group.

    Attributes:
        slots: The slot of each partition; -1 without a group.
        count: The number of slots; 0 without a group.
        generation: The group's generation; -1 without a group. The numbers begin again after the group was deleted.
        copies: With `redundant.emit=all` the (slot, replica) pairs that read each partition, else empty. Each query
            then keeps its own positions; the group's offsets, for lag monitors, are those of replica 0.
        joins: The number of the query's assignments so far; 0 without a group. Other members may have read the same
            partitions between two joins, even if the generation has the same number.
        topic_ids: The topic ids of the partitions, if the group assigns by id.
    """

    slots: Mapping[TopicPartition, int]
    count: int = 0
    generation: int = -1
    copies: Mapping[TopicPartition, Copies] = field(default_factory=dict)
    joins: int = 0
    topic_ids: Mapping[TopicPartition, str] = field(default_factory=dict)

    def slots_of(self, topics: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Return the slots of assigned partitions whose topics have these ids.

        A member learns later than the brokers that a topic was created again.
        """
        return {
            tp: slot
            for tp, slot in self.slots.items()
            if not is_recreated(self.topic_ids.get(tp), topics.get(tp.topic))
        }

    def commits(self, tp: TopicPartition) -> bool:
        """Return whether this query commits the group's offset of this partition."""
        return tp in self.slots and (tp not in self.copies or self.copies[tp][0][1] == 0)


class Right(Protocol):
    """The right to commit a batch; members that rejoin publish new credentials for it. See `commits.rights`."""

    @property
    def is_renewed(self) -> bool:
        """Whether new credentials are published."""
        ...

    @property
    def waits(self) -> bool:
        """Whether another read of the driver, if it waits in a join, has to wait until the batch is committed."""
        ...

    async def publish(
        self,
        client: KafkaClient,
        group: str,
        ends: Mapping[TopicPartition, int],
        owners: Mapping[TopicPartition, SlotCredentials],
        deadline: Deadline,
    ) -> None:
        """Publish which slots own the partitions of the batch now; a partition without a slot is lost."""
        ...

    async def is_renewal_asked(
        self, client: KafkaClient, group: str, partitions: Collection[TopicPartition], since: int, deadline: Deadline
    ) -> bool:
        """Return whether a task has requested newer credentials than those of this generation."""
        ...


@dataclass(frozen=True, slots=True)
class BatchInFlight:
    """A planned micro-batch that the query does not know to be finished.

    Attributes:
        ends: The next offset after the batch, for each partition that it reads.
        right: The right of its tasks or its sink to commit as the slots until a rejoin; None: only the driver commits.
    """

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    right: Right | None = None

    @property
    def renewed(self) -> Right | None:
        """The right for which lost slots join again immediately; None: lost slots join again when Spark calls."""
        return self.right if self.right is not None and self.right.is_renewed and self.ends else None


_MAX_DEFAULT_SLOTS = 8


def subscription_of(options: ReadOptions) -> TopicSelection:
    """Return the topics or partitions that the options select."""
    if options.assign is not None:
        named = options.assign.items()
        return TopicSelection(partitions=tuple(TopicPartition(topic, p) for topic, parts in named for p in parts))
    return TopicSelection(topics=options.subscribe or (), pattern=options.subscribe_pattern)


def group_settings(options: ReadOptions, *, partitions: int, stream: bool, static: bool = True) -> GroupSettings:
    """Return the settings with which the query's slots join the group.

    Args:
        options: The options of a query with `kafka.group.id`.
        partitions: The number of partitions that the query selects; it bounds the default number of slots.
        stream: Whether the driver keeps the slots alive. In a batch each slot waits for its task, so the defaults of
            the session and rebalance timeouts are longer.
        static: Whether slots have instance ids even without `group.instance.id`, so that tasks detect a replaced slot.
    """
    if options.group_id is None:
        raise ValueError("the query is in no group")
    given = options.group_instance_id
    driver = _instances_of(driver_pid()) if static else None
    generated = None if driver is None else driver + (uuid.uuid4().hex[:12] if stream else _of_batch(options))
    return GroupSettings(
        group=options.group_id,
        instance_id_prefix=given or generated,
        slots=options.group_members or max(1, min(partitions, _MAX_DEFAULT_SLOTS)),
        session_timeout_ms=options.session_timeout_ms or (45_000 if stream else 300_000),
        rebalance_timeout_ms=options.max_poll_interval_ms or (300_000 if stream else 1_800_000),
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        coordinator_timeout_ms=options.coordinator_timeout_ms,
        rebalance_batch_ms=options.rebalance_batch_ms,
        metadata_max_age_ms=options.metadata_max_age_ms,
        client_id=options.settings.client_id("member"),
        rack=options.settings.get("client.rack"),
        leave_on_close=given is None,
        driver=driver,
        is_asked_for=options.group_membership is True,
        # With redundant.emit=all each query has positions of its own, and a batch fetches the offsets only once.
        rewinds=stream and options.redundant_emit != "all",
        remote_assignor=options.group_remote_assignor,
    )


def _instances_of(driver: int) -> str:
    """Return the prefix of a driver's generated instance ids, given the id of its process."""
    return f"kafkagroup-{_checksum((socket.gethostname(), driver))}-"


def _of_batch(options: ReadOptions) -> str:
    # An action that does not read all slots (show, limit) leaves the rest in the group until their sessions end. The
    # next action of the same DataFrame uses these members; new members would have to share the partitions with these
    # members.
    return _checksum([repr((field.name, getattr(options, field.name))) for field in fields(options)])


def _checksum(value: object) -> str:
    return f"{zlib.crc32(repr(value).encode()):08x}"
