"""Rewind of a running group: a protocol that only our streams support, and the marks of rewound offsets. Pure.

Whoever rewinds a group joins it as a member that supports `PROTOCOL` and nothing else. The coordinator lets it in only
if every member supports that protocol, which members of other clients do not. It then starts one generation with this
protocol: the members of ours have finished and committed their micro-batches, own no partitions in it, and wait until
it ends. Meanwhile the new member commits the offsets, each with a mark in its metadata (`model.commits`), and
leaves. A query that finds a mark which it has not followed continues at the group's offset, also if its checkpoint is
elsewhere. The marks stay in the metadata of later commits, so that a query which was stopped meanwhile finds them too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from assignors import Subscription, WireFormatError, decode_subscription, encode_subscription
from kafka_source.group import common_strategy
from kafka_source.group.common_strategy import Offer
from kafka_source.group.model import GroupMember

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

    The generation has another reason than a rewind if the members have no strategy in common; see `common_strategy`.
    """
    return common_strategy.assignments({member: _offer_of(member) for member in members})


def _offer_of(member: GroupMember) -> Offer:
    try:
        return Offer.from_bytes(decode_subscription(member.metadata).user_data)
    except WireFormatError:
        return Offer()
