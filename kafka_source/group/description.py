"""DescribeGroups: the state and the members of a group, as its coordinator describes them."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_source.group.member import GroupMember
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient, check_coordinator, to_coordinator
from kafka_source.kafka_client.messages import DescribeGroupsRequest

STABLE = "Stable"
PREPARING_REBALANCE = "PreparingRebalance"

_VERSION = 5


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member and the assignment that the leader gave it (`state`).

    While the group rebalances, both the member's metadata and its state are empty.
    """

    member: GroupMember
    state: bytes
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: `state` is Kafka's name of its state, for example "Stable"; `protocol` is the assignor that it uses."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]

    def member_id_of(self, instance_id: str | None) -> str | None:
        """Return the current member id of a static member; None if the group has no such member."""
        return next((d.member.member_id for d in self.members if d.member.instance_id == instance_id), None)


async def describe(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription:
    """Return the coordinator's description of a group.

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
                )
                for m in found.members
            ),
        )

    return await client.retrying(ask, deadline)
