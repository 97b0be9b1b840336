"""A group as its coordinator describes it (DescribeGroups)."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_source.errors import error_for_code
from kafka_source.group.member import GroupMember
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient
from kafka_source.kafka_client.messages import DescribeGroupsRequest

STABLE = "Stable"
PREPARING_REBALANCE = "PreparingRebalance"

_MOVED = (15, 16)
_VERSION = 5


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member and the state that the leader gave it; both metadata and state are empty while it rebalances."""

    member: GroupMember
    state: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The coordinator's view; `state` is Kafka's word, e.g. "Stable"."""

    state: str
    protocol: str
    members: tuple[DescribedMember, ...]

    def member_id_of(self, instance_id: str | None) -> str | None:
        """The present member id of a static member."""
        return next((d.member.member_id for d in self.members if d.member.instance_id == instance_id), None)


async def describe(client: KafkaClient, group: str, deadline: Deadline) -> GroupDescription:
    """Asks the coordinator.

    Raises:
        AuthenticationError: This user may not describe the group.
        RetriableError: The coordinator cannot be reached until the deadline.
    """

    async def ask() -> GroupDescription:
        coordinator = await client.coordinator(group, deadline)
        try:
            connection = await client.connection(coordinator, deadline)
            request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
            answer = await connection.send(request, max(0.001, deadline.left), _VERSION)
        except ConnectionLost:
            client.forget_coordinator(group)
            raise
        found = answer.groups[0]
        if found.error_code in _MOVED:
            client.forget_coordinator(group)
        if found.error_code:
            raise error_for_code(found.error_code, f"Describing group {group} failed")
        return GroupDescription(
            found.group_state,
            found.protocol_data,
            tuple(
                DescribedMember(
                    GroupMember(m.member_id, m.group_instance_id, bytes(m.member_metadata)), bytes(m.member_assignment)
                )
                for m in found.members
            ),
        )

    return await client.retrying(ask, deadline)
