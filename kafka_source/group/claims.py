"""Claims: partitions that a member keeps through a rebalance, because its micro-batch still reads them.

A cooperative strategy (KIP-429) takes a partition away in one rebalance and gives it to its next owner in a later one.
An eager strategy gives it away at once. Our leader gives our members the same two steps under an eager strategy: a
member lists the partitions of its micro-batch as owned, and the leader leaves those that the strategy gives to another
member out of the assignment. The member's own assignment names them as held: nobody else has them, so the member may
still commit them. It rejoins without the claim when they are committed, and that rebalance gives them to their new
owner. Consumers of other clients own nothing while they join under an eager strategy, so they claim nothing.

Pure.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping

from assignors import (
    Assignment,
    Assignor,
    GroupSubscription,
    RebalanceProtocol,
    TopicPartition,
    WireFormatError,
    decode_assignment,
    encode_assignment,
)

_HELD = b"kafkagroup:held:"
_SIZE = struct.Struct(">i")


def hold(
    assignor: Assignor, group: GroupSubscription, plan: Mapping[str, Assignment], generation: int
) -> tuple[dict[str, Assignment], dict[str, tuple[TopicPartition, ...]]]:
    """Leave claimed partitions out of the assignments of other members.

    Args:
        assignor: The strategy that made the plan. The plan of a cooperative strategy needs no change; under a redundant
            one a partition has several owners.
        group: The members' subscriptions.
        plan: The strategy's assignments, by member id.
        generation: The generation that begins. Only claims of the one before count: in between, another member may have
            read the partition.

    Returns:
        The assignments, and the partitions that are held for each member that claims some, by member id.
    """
    if assignor.redundant or RebalanceProtocol.COOPERATIVE in assignor.protocols:
        return dict(plan), {}
    claims = {
        member: frozenset(subscription.owned)
        for member, subscription in group.items()
        if subscription.owned and subscription.generation == generation - 1
    }
    claimants = Counter(tp for claimed in claims.values() for tp in claimed)
    given = {tp: member for member, assignment in plan.items() for tp in assignment.partitions}
    held = {
        member: tuple(sorted(tp for tp in claimed if claimants[tp] == 1 and given.get(tp, member) != member))
        for member, claimed in claims.items()
    }
    left_out = {tp for partitions in held.values() for tp in partitions}
    if not left_out:
        return dict(plan), {}
    kept = {
        member: Assignment([tp for tp in assignment.partitions if tp not in left_out], assignment.user_data)
        for member, assignment in plan.items()
    }
    return kept, {member: partitions for member, partitions in held.items() if partitions}


def with_held(assignment: Assignment, held: tuple[TopicPartition, ...]) -> Assignment:
    """Return the assignment of a member for which partitions are held; `without_held` reads it."""
    if not held:
        return assignment
    partitions = encode_assignment(Assignment(held))
    data = b"" if assignment.user_data is None else b"\x01" + assignment.user_data
    return Assignment(assignment.partitions, _HELD + _SIZE.pack(len(partitions)) + partitions + data)


def without_held(assignment: Assignment) -> tuple[Assignment, tuple[TopicPartition, ...]]:
    """Return the assignment as the strategy made it, and the partitions that are held for the member.

    Raises:
        WireFormatError: The leader sent a malformed assignment.
    """
    data = assignment.user_data
    if data is None or not data.startswith(_HELD):
        return assignment, ()
    begin = len(_HELD) + _SIZE.size
    if len(data) < begin:
        raise WireFormatError(f"held partitions: {len(data)} bytes are too few")
    (size,) = _SIZE.unpack_from(data, len(_HELD))
    if not 0 <= size <= len(data) - begin:
        raise WireFormatError(f"held partitions: {size} bytes of {len(data) - begin}")
    held = decode_assignment(data[begin : begin + size]).partitions
    rest = data[begin + size :]
    return Assignment(assignment.partitions, rest[1:] if rest else None), tuple(TopicPartition(*tp) for tp in held)
