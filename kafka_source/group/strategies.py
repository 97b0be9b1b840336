"""Whether a query fits its group: no common strategy, a rewind, brokers that assign, other kinds; the refusals.

**Members whose strategies have none in common.** A coordinator refuses a member that has no protocol in common with
the group. It cannot refuse our streams: they all offer `PROTOCOL`, behind their strategies. So the coordinator starts
a generation with that protocol, as if the group was rewound, and its leader refuses in the coordinator's place. For
that, each member says in its offer of the protocol which strategies it has, and under which one it is a member
already.

**The rewind of a running group.** Whoever rewinds a group joins it as a member that supports `PROTOCOL` and nothing
else. The coordinator lets it in only if every member supports that protocol, which members of other clients do not.
It then starts one generation with this protocol: the members of ours have finished and committed their micro-batches,
own no partitions in it, and wait until it ends. Meanwhile the new member commits the offsets, each with a mark in its
metadata (`model.commits`), and leaves. A query that finds a mark which it has not followed continues at the group's
offset, also if its checkpoint is elsewhere.

**Groups whose partitions the brokers assign (KIP-848).** A live group of classic members becomes such a group when a
consumer of the new protocol joins it ("converted"), and a classic group again when the last one leaves. A broker
accepts classic members in it and answers their JoinGroup without a leader and with the member's own first strategy.
Nobody runs that strategy, so a classic query leaves such a group between two micro-batches, and ends with an error.

**Groups of other kinds** (share, streams, connect and others). A coordinator refuses to let a consumer join such a
group with the same error as a consumer without a common assignor.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assignors import (
    Assignment,
    Subscription,
    WireFormatError,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError
from kafka_source.group.model import CONSUMER, GroupMember, GroupSettings
from kafka_source.group.requests import describe, leave_group
from kafka_source.kafka_client import GROUP, Deadline, KafkaClient, to_coordinator
from kafka_source.kafka_client.messages.group import JoinGroupRequest, ListGroupsRequest

_VERSION = 1
# What other members send is not trusted: it is in log lines, and every leader parses it.
_MAX_BYTES = 4096
_MAX_NAMES = 100
_MAX_NAME = 249
_MAX_NAMED = 5

_REFUSED = b"kafkagroup:refused:"
_OTHERS_REFUSED = b"kafkagroup:others-refused:"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a member says of itself.

    Attributes:
        strategies: Its strategies in order of preference. Empty: it has none, because it only rewinds the group, or it
            does not say; such a member is never refused.
        present: The strategy under which it was a member when it joined again; None: it was no member.
    """

    strategies: tuple[str, ...] = ()
    present: str | None = None

    def to_bytes(self) -> bytes:
        """Return the offer as the user data of a subscription."""
        said = {"version": _VERSION, "strategies": self.strategies, "present": self.present}
        return json.dumps(said, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> Offer:
        """Return what a member has sent; an empty offer if it is in no known format."""
        if data is None or len(data) > _MAX_BYTES:
            return cls()
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(said, dict) or said.get("version") != _VERSION:
            return cls()
        strategies, present = said.get("strategies"), said.get("present")
        if not isinstance(strategies, list) or len(strategies) > _MAX_NAMES or not all(map(_is_name, strategies)):
            return cls()
        return cls(tuple(strategies), present if present in strategies else None)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable()


def kept(offers: Mapping[str, Offer]) -> str | None:
    """Return the strategy that the group keeps; None: no member has one.

    Members of the group come before newcomers. It is the strategy that most of those support that are members already,
    or of all if nobody is; of several the one that most newcomers support too, then the present one, then the first by
    name. So every leader decides the same.
    """
    having = [offer for offer in offers.values() if offer.strategies]
    inside = [offer for offer in having if offer.present is not None] or having

    def weight(name: str) -> tuple[int, int, int]:
        return (
            sum(name in offer.strategies for offer in inside),
            sum(name in offer.strategies for offer in having),
            sum(name == offer.present for offer in inside),
        )

    return max(sorted({name for offer in inside for name in offer.strategies}), key=weight, default=None)


def refused(offers: Mapping[str, Offer]) -> dict[str, str]:
    """Return the members to refuse, by member id, each with the reason; empty if all have a strategy in common."""
    strategy = kept(offers)
    foreign = {one: offer for one, offer in offers.items() if offer.strategies and strategy not in offer.strategies}
    lists = sorted({offer.strategies for one, offer in offers.items() if offer.strategies and one not in foreign})
    others = "; ".join(map(", ".join, lists[:_MAX_NAMED]))
    return {
        one: f"it offers {', '.join(offer.strategies)}, and the group uses {strategy}; other members offer {others}"
        for one, offer in foreign.items()
    }


def assignments(members: Mapping[GroupMember, Offer]) -> dict[str, bytes]:
    """Return the leader's assignment for a generation with `PROTOCOL`, by member id: nobody reads.

    Members that are refused get the reason, and the others who it is.
    """
    reasons = refused({member.member_id: offer for member, offer in members.items()})
    names = [
        f"{member.instance_id or member.member_id} ({reasons[member.member_id]})"
        for member in members
        if member.member_id in reasons
    ]
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    note = _OTHERS_REFUSED + (", ".join(names[:_MAX_NAMED]) + more).encode() if names else None
    return {
        member_id: encode_assignment(
            Assignment((), _REFUSED + reasons[member_id].encode() if member_id in reasons else note)
        )
        for member_id in (member.member_id for member in members)
    }


def why_refused(assignment: Assignment) -> str | None:
    """Return why the leader has refused the member that got this assignment; None: it has not."""
    return _text(assignment, _REFUSED)


def others_refused(assignment: Assignment) -> str | None:
    """Return whom the leader has refused instead of the member that got this assignment; None: nobody."""
    return _text(assignment, _OTHERS_REFUSED)


def _text(assignment: Assignment, prefix: bytes) -> str | None:
    data = assignment.user_data
    if data is None or not data.startswith(prefix):
        return None
    text = data[len(prefix) : len(prefix) + _MAX_BYTES].decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)


PROTOCOL = "kafkagroup-rewind"
"""The name under which members offer it in JoinGroup, behind their assignors."""

CLIENT_ID = "kafkagroup-rewind"
"""The `client.id` of the program that rewinds."""


def new_id() -> str:
    """Return the id of a new rewind."""
    return uuid.uuid4().hex


def offer(said: Offer) -> tuple[str, bytes]:
    """Return the protocol as a member offers it: its name, and a subscription to nothing, which brokers can parse."""
    return PROTOCOL, encode_subscription(Subscription((), said.to_bytes()))


def lead(members: Iterable[GroupMember]) -> dict[str, bytes]:
    """Return the leader's assignment for a generation with this protocol, by member id: nobody reads.

    The generation has another reason than a rewind if the members have no strategy in common; see above.
    """
    return assignments({member: _offer_of(member) for member in members})


def _offer_of(member: GroupMember) -> Offer:
    try:
        return Offer.from_bytes(decode_subscription(member.metadata).user_data)
    except WireFormatError:
        return Offer()


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


async def refusal_of_other_kind(client: KafkaClient, group: str, code: int | None) -> InvalidConfigurationError | None:
    """Return the error to raise for a member that a group of another kind has refused; None if it is none.

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
