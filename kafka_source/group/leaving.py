"""LeaveGroup, as often as it takes: what leaves the group holds nobody up until its session has ended."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_source.error_codes import ErrorCode
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient, check_coordinator, to_coordinator
from kafka_source.kafka_client.messages.group import LeaveGroupRequest

# Any other error says that the group does not know the members, which is what they want.
_ASK_AGAIN = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


async def leave_group(
    client: KafkaClient,
    group: str,
    members: Sequence[tuple[str, str | None]],
    reason: str,
    deadline: Deadline,
) -> None:
    """Leave a group with several members in one request, so that it rebalances once.

    Args:
        client: Of the cluster.
        group: The group id.
        members: The member id and the instance id of each; a static member is found by its instance id.
        reason: The reason for the brokers' log (KIP-800).
        deadline: For all tries. A request whose response was lost is sent again: members that have left are ignored.

    Raises:
        RetriableError: The coordinator could not be reached in time. The members stay until their sessions end.
    """
    request = LeaveGroupRequest(
        group_id=group,
        members=[
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=reason or None)
            for member_id, instance_id in members
        ],
    )

    async def ask() -> None:
        answer = await to_coordinator(client, GROUP, group, request, deadline)
        if answer.error_code in _ASK_AGAIN:
            check_coordinator(client, GROUP, group, answer.error_code, f"Leaving group {group} failed")

    await client.retrying(ask, deadline)
