"""Rewind of a running group: a protocol that only our streams support, and the marks of rewound offsets. Pure.

Whoever rewinds a group joins it as a member that supports `PROTOCOL` and nothing else. The coordinator lets it in only
if every member supports that protocol, which members of other clients do not. It then starts one generation with this
protocol: the members of ours have finished and committed their micro-batches, own no partitions in it, and wait until
it ends. Meanwhile the new member commits the offsets, each with a mark in its metadata (`model.offset_note`), and
leaves. A query that finds a mark which it has not followed continues at the group's offset, also if its checkpoint is
elsewhere. The marks stay in the metadata of later commits, so that a query which was stopped meanwhile finds them too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from assignors import Assignment, Subscription, encode_assignment, encode_subscription

PROTOCOL = "kafkagroup-rewind"
"""The name under which members offer it in JoinGroup, behind their assignors."""


def new_id() -> str:
    """Return the id of a new rewind."""
    return uuid.uuid4().hex


def offer() -> tuple[str, bytes]:
    """Return the protocol as a member offers it: its name, and an empty subscription, which brokers can parse."""
    return PROTOCOL, encode_subscription(Subscription(()))


def nothing_for(member_ids: Iterable[str]) -> dict[str, bytes]:
    """Return the leader's assignment for the generation of a rewind, by member id: nobody reads."""
    empty = encode_assignment(Assignment(()))
    return dict.fromkeys(member_ids, empty)
