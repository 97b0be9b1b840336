"""A group as its coordinator describes it (DescribeGroups)."""

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
    """A member and the state that the leader gave it; both metadata and state are empty while it rebalances."""

    member: GroupMember
    state: bytes
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The coordinator's view; `state` is Kafka's word, e.g. "Stable", `protocol` the assignor of a consumer group."""

    state: str
    protocol_type: str
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
