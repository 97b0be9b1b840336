"""Groups that are no consumer groups (share, streams, connect and others): find out which kind refuses a member.

A coordinator refuses to let a consumer join such a group with the same error as a consumer without a common assignor.
"""

from __future__ import annotations

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.group.description import describe
from kafka_source.group.model import CONSUMER
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages.group import ListGroupsRequest

REFUSALS = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_ID_NOT_FOUND})
"""The error codes of JoinGroup behind which another kind of group may be."""

_LOOK_SECONDS = 10.0
_TYPES = {"share": "a share group (KIP-932)", "streams": "a Kafka Streams group (KIP-1071)"}
_STREAMS_PROTOCOL = "stream"


def kind_of(group_type: str, protocol_type: str, protocol: str) -> str | None:
    """Return the kind of a group in words; None for a consumer group, and for a group without members.

    Args:
        group_type: ListGroups' group type (KIP-848): classic, consumer, share, streams; empty on brokers before 3.7.
        protocol_type: ListGroups' protocol type: consumer, connect, share, …
        protocol: The assignor that the group uses; empty if it is not known.
    """
    known = _TYPES.get(group_type.lower()) or _TYPES.get(protocol_type)
    if known is not None:
        return known
    if protocol_type == "connect":
        return "the group of a Kafka Connect cluster"
    if protocol_type == CONSUMER:
        # Kafka Streams on the classic protocol is a consumer group whose members support only its own assignor.
        return "the group of a Kafka Streams application" if protocol == _STREAMS_PROTOCOL else None
    return f"a group of the protocol type {protocol_type}" if protocol_type else None


async def refusal(client: KafkaClient, group: str, code: int | None) -> InvalidConfigurationError | None:
    """Return the error to raise for a member that a group of another kind has refused; None if it is none.

    Args:
        client: The cluster's client.
        group: The group id.
        code: The error code of JoinGroup; None if the error has none.
    """
    if code not in REFUSALS:
        return None
    try:
        kind = await _look(client, group, Deadline(_LOOK_SECONDS))
    except KafkaGroupError:
        # Without the right to describe the group, the error of JoinGroup has to do.
        return None
    if kind is None:
        return None
    return InvalidConfigurationError(
        f"Group {group} is {kind}, which no consumer can join. Give this query a kafka.group.id of its own.", code=code
    )


async def _look(client: KafkaClient, group: str, deadline: Deadline) -> str | None:
    coordinator = await client.coordinator(group, deadline)
    connection = await client.connection(coordinator, deadline)
    answer = await connection.send(ListGroupsRequest(states_filter=[], types_filter=[]), max(0.001, deadline.left))
    listed = next((one for one in answer.groups if one.group_id == group), None)
    if listed is None:
        return None
    protocol = ""
    if listed.protocol_type == CONSUMER:
        protocol = (await describe(client, group, deadline)).protocol
    return kind_of(listed.group_type, listed.protocol_type, protocol)
