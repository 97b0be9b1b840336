"""Requests of the tools to coordinators: list, describe and delete groups of any type; decode members' user data."""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping

from assignors import wire
from assignors.model import Assignment, Subscription, TopicPartition
from assignors.wire import (
    StickyUserData,
    WireFormatError,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
)
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, UnknownGroupError, error_for_code
from kafka_source.group.requests import DEAD, DescribedMember, describe_classic, describe_consumer_protocol
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient, check_coordinator, coordinator_call
from kafka_source.kafka_client.messages.group import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from kafka_source.model.close_names import did_you_mean
from kafka_source.model.partition_runs import numbers_by_topic
from kafkagroup.admin.rows import Group, GroupSummary, MemberDescription, UserData

CONSUMER = "consumer"
"""The protocol type of consumer groups, and the group type of the new protocol (KIP-848)."""

CLASSIC = "classic"

_UNKNOWN = "unknown"


async def list_groups(client: KafkaClient, deadline: Deadline) -> list[GroupSummary]:
    """Return all groups that this user may describe, of every type, sorted by group id.

    Raises:
        KafkaGroupError: A broker does not answer. No incomplete list is returned.
    """

    async def list_on_broker(node: int) -> list[GroupSummary]:
        answer = await client.send(node, ListGroupsRequest(states_filter=[], types_filter=[]), deadline)
        if answer.error_code:
            raise error_for_code(answer.error_code, f"Listing the groups of broker {node} failed")
        return [
            # Brokers before 3.7 do not send the type, and brokers before 2.6 do not send the state.
            GroupSummary(
                g.group_id, (g.group_type or _UNKNOWN).lower(), g.protocol_type, g.group_state or _UNKNOWN.capitalize()
            )
            for g in answer.groups
        ]

    async def list_all() -> list[GroupSummary]:
        seen = await client.metadata((), deadline)
        answers = await asyncio.gather(*map(list_on_broker, seen.brokers))
        return [group for answer in answers for group in answer]

    return sorted(await client.retrying(list_all, deadline), key=lambda group: group.group)


def is_consumer_group(group: GroupSummary) -> bool:
    """Return whether the members are consumers, in either protocol; also true for a group that only has offsets."""
    # The protocol type of a group that only has committed offsets is empty.
    return group.type in (CLASSIC, CONSUMER, _UNKNOWN) and group.protocol in (CONSUMER, "")


async def describe_group(client: KafkaClient, group: str, deadline: Deadline) -> Group:
    """Return a group's state, and its members with their partitions.

    Raises:
        UnknownGroupError: The group does not exist.
        KafkaGroupError: The brokers do not answer, or refuse the request.
    """
    found = await _of_either_protocol(client, group, deadline)
    if found is None:
        other = next((one for one in await list_groups(client, deadline) if one.group == group), None)
        if other is not None and is_consumer_group(other):
            # The group has formed since the first request.
            found = await _of_either_protocol(client, group, deadline)
        elif other is not None and other.state != DEAD:
            raise InvalidConfigurationError(f"Group {group} is a {other.type} group, whose members are no consumers.")
    if found is None:
        raise unknown_group(group, (one.group for one in await list_groups(client, deadline)))
    return found


async def _of_either_protocol(client: KafkaClient, group: str, deadline: Deadline) -> Group | None:
    found = await describe_classic(client, group, deadline)
    coordinator = str((await client.coordinator(group, deadline)).endpoint)
    if found.state == DEAD:
        # Brokers answer a classic request with "Dead" for a group of the consumer protocol too.
        return await _of_consumer_protocol(client, group, coordinator, deadline)
    is_consumers = found.protocol_type == CONSUMER
    members = (_member(each, found.protocol if is_consumers else None) for each in found.members)
    return Group(group, found.state, found.protocol, _by_name(members), coordinator)


async def delete_group(client: KafkaClient, group: str, deadline: Deadline) -> None:
    """Delete a group with its committed offsets; the group must have no members.

    Raises:
        UnknownGroupError: The group does not exist.
        KafkaGroupError: The group has members, or the user lacks the permission.
    """
    unanswered = False

    def note_lost() -> None:
        nonlocal unanswered
        unanswered = True

    def read(answer: DeleteGroupsResponse) -> None:
        (result,) = answer.results
        if unanswered and result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            # A previous attempt has deleted the group, but its response was lost.
            return
        check_coordinator(client, GROUP, group, result.error_code, f"Deleting group {group} failed")

    request = DeleteGroupsRequest(groups_names=[group])
    await coordinator_call(client, GROUP, group, request, deadline, read, on_lost=note_lost)


async def delete_offsets(
    client: KafkaClient, group: str, partitions: Iterable[TopicPartition], deadline: Deadline
) -> None:
    """Delete the committed offsets of some partitions (KIP-496); no member may subscribe to their topics.

    Raises:
        UnknownGroupError: The group does not exist.
        KafkaGroupError: A member subscribes to a topic, or the user lacks the permission.
    """
    by_topic = numbers_by_topic(sorted(set(partitions)))
    what = f"Deleting offsets of group {group} failed"
    topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic

    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            topic_type(
                name=topic, partitions=[topic_type.OffsetDeleteRequestPartition(partition_index=n) for n in numbers]
            )
            for topic, numbers in by_topic.items()
        ],
    )

    def read(answer: OffsetDeleteResponse) -> None:
        check_coordinator(client, GROUP, group, answer.error_code, what)
        for topic in answer.topics:
            for p in topic.partitions:
                check_coordinator(client, GROUP, group, p.error_code, f"{what} for {topic.name}-{p.partition_index}")

    await coordinator_call(client, GROUP, group, request, deadline, read)


def _member(described: DescribedMember, assignor: str | None) -> MemberDescription:
    """Return a member of a classic group.

    Args:
        described: The member as the coordinator describes it.
        assignor: The assignor of a consumer group; None in a group of another protocol.
    """
    said, given = Subscription(()), Assignment(())
    if assignor is not None:
        # Subscription and assignment are empty while the group rebalances. Another client's bytes may be malformed.
        try:
            said = wire.decode_subscription(described.member.metadata) if described.member.metadata else said
            given = wire.decode_assignment(described.state)
        except wire.WireFormatError:
            pass
    return MemberDescription(
        described.member.member_id,
        described.member.instance_id,
        described.client_id,
        described.host,
        tuple(sorted(given.partitions)),
        tuple(sorted(said.topics)),
        said.rack,
        decode_user_data(assignor or "", said.user_data),
        decode_assigned_data(given.user_data),
    )


async def _of_consumer_protocol(client: KafkaClient, group: str, coordinator: str, deadline: Deadline) -> Group | None:
    """Describe a group of the consumer protocol (KIP-848); None: no such group, or brokers without this protocol."""

    found = await describe_consumer_protocol(client, group, deadline)
    if found is None:
        return None

    def member(described: ConsumerGroupDescribeResponse.DescribedGroup.Member) -> MemberDescription:
        has, meant = _partitions(described.assignment), _partitions(described.target_assignment)
        return MemberDescription(
            described.member_id,
            described.instance_id,
            described.client_id,
            described.client_host,
            tuple(sorted(has)),
            tuple(sorted(described.subscribed_topic_names)),
            described.rack_id or None,
            epoch=described.member_epoch,
            revoking=tuple(sorted(has - meant)),
            awaiting=tuple(sorted(meant - has)),
        )

    members = map(member, found.members)
    return Group(
        group, found.group_state, found.assignor_name, _by_name(members), coordinator, CONSUMER, found.group_epoch
    )


def _partitions(assignment: ConsumerGroupDescribeResponse.DescribedGroup.Member.Assignment) -> set[TopicPartition]:
    return {
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    }


def unknown_group(group: str, known: Iterable[str] = ()) -> UnknownGroupError:
    """Return the error for a group that does not exist."""
    return UnknownGroupError(
        f"Group {group} does not exist in this cluster: it has no members and no committed offsets."
        f"{did_you_mean(group, known)} Correct its name; `kafkagroup groups` lists the groups that this user may "
        "describe.",
        code=ErrorCode.GROUP_ID_NOT_FOUND,
    )


def _by_name(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda member: member.name))


_WEIGHT = struct.Struct(">i")
# Texts above this length, and bytes that are no text, are not shown.
_MAX_TEXT = 500


def decode_user_data(assignor: str, data: bytes | None) -> UserData | None:
    """Return the user data of a member's subscription; None without user data.

    For other assignors' data and malformed data, return only the size, and the text if the data are text.
    """
    if not data:
        return None
    decode = _DECODERS.get(assignor, _other)
    try:
        return decode(data)
    except (WireFormatError, struct.error):
        return _other(data)


def decode_assigned_data(data: bytes | None) -> UserData | None:
    """Return the user data of an assignment, such as the leader's reason for assigning nothing; None: no data."""
    return _other(data) if data else None


def _sticky(data: bytes) -> UserData:
    return _user_data(data, decode_sticky_user_data(data))


def _cooperative(data: bytes) -> UserData:
    return UserData(len(data), generation=decode_cooperative_user_data(data))


def _weighted(data: bytes) -> UserData:
    (weight,) = _WEIGHT.unpack_from(data)
    return _user_data(data, decode_sticky_user_data(data[_WEIGHT.size :]), weight)


def _redundant(data: bytes) -> UserData:
    """Decode an assignment of all copies; the primaries are nested in it (see `assignors.redundant`)."""
    said = decode_assignment(data)
    return _user_data(data, StickyUserData(said.partitions, decode_sticky_user_data(said.user_data).generation))


def _user_data(data: bytes, said: StickyUserData, weight: int | None = None) -> UserData:
    known = said.generation if said.generation >= 0 else None
    return UserData(len(data), weight, known, tuple(sorted(said.partitions)))


def _other(data: bytes) -> UserData:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return UserData(len(data))
    return UserData(len(data), text=text if len(text) <= _MAX_TEXT and text.isprintable() else None)


_DECODERS: Mapping[str, Callable[[bytes], UserData]] = {
    "sticky": _sticky,
    "rack-aware": _sticky,
    "cooperative-sticky": _cooperative,
    "weighted": _weighted,
    "redundant": _redundant,
}
