"""Requests to group coordinators, for groups of the classic and the consumer protocol: list, describe, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assignors import wire
from assignors.model import TopicPartition
from kafka_source.error_codes import GROUP_ID_NOT_FOUND
from kafka_source.errors import AuthenticationError, InvalidConfigurationError, error_for_code
from kafka_source.group.description import describe
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient, check_coordinator, to_coordinator
from kafka_source.kafka_client.messages import ConsumerGroupDescribeRequest, DeleteGroupsRequest, ListGroupsRequest

_CONSUMER = "consumer"
_DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, as its coordinator describes it.

    Attributes:
        member_id: The member id that the coordinator assigned.
        instance_id: `group.instance.id`; None for a dynamic member.
        client_id: `client.id`.
        host: The address that it connects from.
        partitions: Its assignment, sorted.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]

    @property
    def name(self) -> str:
        """Return the instance id, or the member id of a dynamic member."""
        return self.instance_id or self.member_id


@dataclass(frozen=True, slots=True)
class Group:
    """A group, as its coordinator describes it.

    Attributes:
        group: The group id.
        state: Kafka's group state: Stable, Empty, Dead, PreparingRebalance, CompletingRebalance, or in the consumer
            protocol (KIP-848) Assigning, Reconciling.
        assignor: The name of the group's assignor; empty if the group has none.
        members: The members, sorted by name.
        coordinator: The coordinator's host:port.
    """

    group: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: str


async def list_groups(client: KafkaClient, deadline: Deadline) -> dict[str, str]:
    """Return the state of each consumer group that this user may describe, by group id.

    Raises:
        KafkaGroupError: A broker does not answer. A list without the groups that it coordinates is not returned.
    """

    async def of_broker(node: int) -> dict[str, str]:
        answer = await client.send(node, ListGroupsRequest(states_filter=[], types_filter=[]), deadline)
        if answer.error_code:
            raise error_for_code(answer.error_code, f"Listing the groups of broker {node} failed")
        # A group without members, which only has committed offsets, has an empty protocol type.
        return {g.group_id: g.group_state or "Unknown" for g in answer.groups if g.protocol_type in (_CONSUMER, "")}

    async def of_all() -> dict[str, str]:
        seen = await client.metadata((), deadline)
        answers = await asyncio.gather(*map(of_broker, seen.brokers))
        return {group: state for answer in answers for group, state in answer.items()}

    return dict(sorted((await client.retrying(of_all, deadline)).items()))


async def describe_group(client: KafkaClient, group: str, deadline: Deadline) -> Group:
    """Return a group's state, members and their partitions; an unknown group has the state Dead and no members.

    Raises:
        KafkaGroupError: The brokers do not answer, or refuse the request.
    """
    found = await describe(client, group, deadline)
    coordinator = str((await client.coordinator(group, deadline)).endpoint)
    if found.state == _DEAD:
        # A request of the classic protocol gets "Dead" for a group of the consumer protocol too.
        return await _of_consumer_protocol(client, group, coordinator, deadline) or Group(
            group, _DEAD, "", (), coordinator
        )
    members = (
        MemberDescription(
            d.member.member_id,
            d.member.instance_id,
            d.client_id,
            d.host,
            tuple(sorted(wire.decode_assignment(d.state).partitions))
            if d.state and found.protocol_type == _CONSUMER
            else (),
        )
        for d in found.members
    )
    return Group(group, found.state, found.protocol, _by_name(members), coordinator)


async def delete_group(client: KafkaClient, group: str, deadline: Deadline) -> None:
    """Delete a group with its committed offsets; it must have no members.

    Raises:
        KafkaGroupError: The group has members or does not exist, or the user lacks the permission.
    """

    async def ask() -> None:
        answer = await to_coordinator(client, GROUP, group, DeleteGroupsRequest(groups_names=[group]), deadline)
        (result,) = answer.results
        check_coordinator(client, GROUP, group, result.error_code, f"Deleting group {group} failed")

    await client.retrying(ask, deadline)


async def _of_consumer_protocol(client: KafkaClient, group: str, coordinator: str, deadline: Deadline) -> Group | None:
    """Describe a group of the consumer protocol (KIP-848); None if there is none, or brokers do not support it."""

    async def ask() -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        (found,) = (await to_coordinator(client, GROUP, group, request, deadline)).groups
        if found.error_code == GROUP_ID_NOT_FOUND:
            return None
        check_coordinator(client, GROUP, group, found.error_code, f"Describing group {group} failed")
        return found

    try:
        found = await client.retrying(ask, deadline)
    except AuthenticationError:
        raise
    except InvalidConfigurationError:
        return None
    if found is None:
        return None
    members = (
        MemberDescription(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            tuple(sorted(TopicPartition(t.topic_name, n) for t in m.assignment.topic_partitions for n in t.partitions)),
        )
        for m in found.members
    )
    return Group(group, found.group_state, found.assignor_name, _by_name(members), coordinator)


def _by_name(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda member: member.name))
