"""The state and the members of a group, as its coordinator describes them, in both of Kafka's group protocols."""

from __future__ import annotations

from dataclasses import dataclass

from assignors import (
    Assignment,
    TopicPartition,
    WireFormatError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AuthenticationError, InvalidConfigurationError
from kafka_source.group.model import CONSUMER, GroupMember
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient, check_coordinator, to_coordinator
from kafka_source.kafka_client.messages.group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
)

DEAD = "Dead"
STABLE = "Stable"
PREPARING_REBALANCE = "PreparingRebalance"
REBALANCING = frozenset({PREPARING_REBALANCE, "CompletingRebalance"})
"""The states in which a classic group's description has no assignments."""

_VERSION = 5


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member and the assignment that the leader gave it (`state`).

    While the group rebalances, both the member's metadata and its state are empty.

    Attributes:
        topics: The topics to which it subscribes; None: unknown, for example while the group rebalances.
    """

    member: GroupMember
    state: bytes
    client_id: str
    host: str
    topics: frozenset[str] | None = None

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that the member was assigned; empty if its assignment is in another format than Kafka's."""
        try:
            return frozenset(TopicPartition(*tp) for tp in decode_assignment(self.state).partitions)
        except WireFormatError:
            return frozenset()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes:
        state: Kafka's name of its state, for example "Stable".
        protocol_type: Its protocol type: "consumer" for consumers.
        protocol: The assignor that it uses.
        members: Its members.
        settled: Where the brokers assign, the ids of the members that have all that is meant for them in the group's
            present epoch; else empty.
    """

    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    settled: frozenset[str] = frozenset()

    def member_id_of(self, instance_id: str | None) -> str | None:
        """Return the current member id of a static member; None if the group has no such member."""
        return next((d.member.member_id for d in self.members if d.member.instance_id == instance_id), None)


async def describe(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription:
    """Return the coordinator's description of a classic group; any other group is `DEAD` and has no members.

    Raises:
        AuthenticationError: This user is not authorized to describe the group.
        RetriableError: The coordinator cannot be reached before the deadline.
    """
    what = f"Describing group {group} failed"

    async def ask() -> GroupDescription:
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
        answer = await to_coordinator(client, GROUP, group, request, deadline, _VERSION)
        (found,) = answer.groups
        check_coordinator(client, GROUP, group, found.error_code, what)
        return GroupDescription(
            found.group_state,
            found.protocol_type,
            found.protocol_data,
            tuple(
                DescribedMember(
                    GroupMember(m.member_id, m.group_instance_id, bytes(m.member_metadata)),
                    bytes(m.member_assignment),
                    m.client_id,
                    m.client_host,
                    _topics(bytes(m.member_metadata)) if found.protocol_type == CONSUMER else None,
                )
                for m in found.members
            ),
        )

    return await client.retrying(ask, deadline)


async def describe_either(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription:
    """Return the description of a classic group or, where the brokers assign (`broker_side`), of a consumer group.

    Raises:
        AuthenticationError: This user is not authorized to describe the group.
        RetriableError: The coordinator cannot be reached before the deadline.
    """
    found = await describe(client, group, deadline)
    if found.state != DEAD:
        return found
    return await describe_assigned_by_brokers(client, group, deadline) or found


async def describe_assigned_by_brokers(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription | None:
    """Return the description of a group of the consumer protocol (KIP-848); None if there is no such group.

    Its members have no metadata here.

    Raises:
        AuthenticationError: This user is not authorized to describe the group.
        RetriableError: The coordinator cannot be reached before the deadline.
    """
    found = await describe_consumer_protocol(client, group, deadline)
    if found is None:
        return None
    members = (
        DescribedMember(
            GroupMember(m.member_id, m.instance_id, b""),
            encode_assignment(Assignment(_partitions(m.assignment))),
            m.client_id,
            m.client_host,
            frozenset(m.subscribed_topic_names),
        )
        for m in found.members
    )
    settled = frozenset(m.member_id for m in found.members if _is_settled(found, m))
    return GroupDescription(found.group_state, CONSUMER, found.assignor_name, tuple(members), settled)


async def describe_consumer_protocol(
    client: KafkaClient, group: str, deadline: Deadline
) -> ConsumerGroupDescribeResponse.DescribedGroup | None:
    """Return ConsumerGroupDescribe's answer about a group (KIP-848).

    A request of the classic protocol gets the state "Dead" for a group of the consumer protocol too.

    Returns:
        The answer; None if there is no such group, or brokers do not know the protocol.

    Raises:
        AuthenticationError: This user is not authorized to describe the group.
        RetriableError: The coordinator cannot be reached before the deadline.
    """

    async def ask() -> ConsumerGroupDescribeResponse.DescribedGroup | None:
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        (found,) = (await to_coordinator(client, GROUP, group, request, deadline)).groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        check_coordinator(client, GROUP, group, found.error_code, f"Describing group {group} failed")
        return found

    try:
        return await client.retrying(ask, deadline)
    except AuthenticationError:
        raise
    except InvalidConfigurationError:
        # The brokers are too old to know the consumer protocol.
        return None


def _is_settled(
    group: ConsumerGroupDescribeResponse.DescribedGroup, member: ConsumerGroupDescribeResponse.DescribedGroup.Member
) -> bool:
    if not group.group_epoch == group.assignment_epoch == member.member_epoch:
        return False
    return sorted(_partitions(member.assignment)) == sorted(_partitions(member.target_assignment))


def _topics(metadata: bytes) -> frozenset[str] | None:
    try:
        return frozenset(decode_subscription(metadata).topics)
    except WireFormatError:
        return None


def _partitions(assignment: ConsumerGroupDescribeResponse.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(t.topic_name, n) for t in assignment.topic_partitions for n in t.partitions)
