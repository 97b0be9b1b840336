"""Rewinds of a running group, and groups that a classic query cannot join.

**The rewind of a running group.** Members of kafkagroup offer each strategy twice, for example as `range` and, after
all strategies, as `kafkagroup-rewind:range` with an empty subscription. The program that rewinds a group offers only
the second name of the strategy in use. So the coordinator accepts the program only if every member offers that name, as
members of other clients do not. Members that join later have to offer that name too. One generation has that name as
its strategy: members have finished and committed their micro-batches, own no partitions, and wait until it ends. The
program commits the offsets, each with a mark in its metadata (`model.commits`), and leaves. A query that finds a mark
it has not followed continues at the group's offset, even if its checkpoint has another offset.

**Groups whose partitions the brokers assign (KIP-848).** A live group of classic members becomes such a group
("converted") when a consumer of the new protocol joins it. When the last such consumer leaves, the group is classic
again. A converted group accepts a classic member, but answers JoinGroup without a leader and with the member's own
first strategy. No leader runs that strategy, so a classic query leaves between two micro-batches, with an error.

**Groups of other kinds** (share, streams, connect and others). To a consumer that joins such a group, a coordinator
returns the same error as to a consumer without a common assignor.
"""

import uuid
from collections.abc import Iterable, Sequence

from assignors import Assignment, Subscription, encode_assignment, encode_subscription
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.group.model import CONSUMER, GroupMember
from kafka_source.group.requests import describe
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages.group import ListGroupsRequest

_REWIND = "kafkagroup-rewind:"
_MAX_NAMED = 5

CLIENT_ID = "kafkagroup-rewind"
"""The `client.id` of the program that rewinds."""


def new_id() -> str:
    """Return the id of a new rewind."""
    return uuid.uuid4().hex


def rewind_offers(strategies: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
    """Return the second name of each strategy, for JoinGroup, each with an empty subscription in Kafka's format."""
    return tuple((_REWIND + name, encode_subscription(Subscription(()))) for name in strategies)


def is_rewind(protocol: str) -> bool:
    """Return whether a generation with this protocol is a rewind, in which no member reads."""
    return protocol.startswith(_REWIND)


def lead(members: Iterable[GroupMember]) -> dict[str, bytes]:
    """Return, by member id, the assignments in the generation of a rewind: each is without partitions."""
    return {member.member_id: encode_assignment(Assignment(())) for member in members}


def refusal_of_converted_group(group: str, members: Sequence[str]) -> InvalidConfigurationError:
    """Return the error of a classic member in a group whose partitions the brokers assign.

    Args:
        group: The group id.
        members: The group's other members, as text; empty: unknown.
    """
    more = f" and {len(members) - _MAX_NAMED} more" if len(members) > _MAX_NAMED else ""
    names = f", such as {', '.join(members[:_MAX_NAMED])}{more}" if members else ""
    return InvalidConfigurationError(
        f"Group {group} has members of the consumer protocol (KIP-848){names}: the brokers assign its partitions, and "
        "kafka.partition.assignment.strategy has no effect. The finished micro-batch is committed. Set "
        "kafka.group.protocol=consumer, which is for streams without commit=task; or let all members of the group use "
        "the classic protocol (group.protocol=classic); or give this query a kafka.group.id of its own."
    )


_OTHER_KIND_CODES = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_ID_NOT_FOUND})
"""The error codes of JoinGroup that may mean another kind of group."""

_LOOK_SECONDS = 10.0
_TYPES = {"share": "a share group (KIP-932)", "streams": "a Kafka Streams group (KIP-1071)"}
_STREAMS_PROTOCOL = "stream"


def kind_of(group_type: str, protocol_type: str, protocol: str) -> str | None:
    """Return the kind of a group in words; None for a consumer group, and for a group without members.

    Args:
        group_type: ListGroups' group type (KIP-848): classic, consumer, share, streams; empty on brokers before 3.7.
        protocol_type: ListGroups' protocol type: consumer, connect, share, …
        protocol: The assignor that the group uses; empty if unknown.
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


async def refusal_of_other_kind(client: KafkaClient, group: str, code: int | None) -> InvalidConfigurationError | None:
    """Return the error of a member that a group of another kind has refused; None: the kind is right or unknown.

    Args:
        client: The cluster's client.
        group: The group id.
        code: The error code of JoinGroup; None if the error has none.
    """
    if code not in _OTHER_KIND_CODES:
        return None
    try:
        kind = await _look(client, group, Deadline(_LOOK_SECONDS))
    except KafkaGroupError:
        # Without the right to describe the group only the error of JoinGroup is known.
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


async def is_being_rewound(client: KafkaClient, group: str, deadline: Deadline) -> bool:
    """Return whether a program that rewinds the group is its member now.

    Raises:
        KafkaGroupError: This user may not describe the group, or the coordinator does not answer.
    """
    described = await describe(client, group, deadline)
    return any(one.client_id == CLIENT_ID for one in described.members)
