"""Ask a group whether its members have a strategy in common with a newcomer, without waiting for them.

A newcomer's JoinGroup is held until all members are between two micro-batches. Only then the leader refuses it, see
`common_strategy`. The coordinator knows at once: it refuses a member that offers the strategies alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_source.error_codes import ErrorCode
from kafka_source.group.description import describe
from kafka_source.group.leaving import leave_group
from kafka_source.group.model import CONSUMER, GroupSettings
from kafka_source.group.rewind import CLIENT_ID
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient, to_coordinator
from kafka_source.kafka_client.messages.group import JoinGroupRequest


async def is_refused(
    client: KafkaClient, settings: GroupSettings, strategies: Sequence[tuple[str, bytes]], deadline: Deadline
) -> bool:
    """Return whether the coordinator refuses a member that offers these strategies; no member joins.

    False also where that says nothing, because the group is being rewound by a member without any strategy.

    Raises:
        RetriableError: The coordinator does not answer.
    """
    request = JoinGroupRequest(
        group_id=settings.group,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id="",
        group_instance_id=None,
        protocol_type=CONSUMER,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in strategies],
        reason="may it join?",
    )
    answer = await to_coordinator(client, GROUP, settings.group, request, deadline)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        # The group waits for this id until it joins or leaves.
        await leave_group(client, settings.group, [(answer.member_id, None)], "it only asked", deadline)
    if answer.error_code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return False
    described = await describe(client, settings.group, deadline)
    return not any(one.client_id == CLIENT_ID for one in described.members)
