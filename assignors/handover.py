"""What the leader checks of a cooperative answer before it sends it (`ConsumerCoordinator` in Java, KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping

from assignors.interface import AssignmentError
from assignors.model import Assignment, GroupSubscription, TopicPartition


def in_transfer(group: GroupSubscription, answer: Mapping[str, Assignment]) -> set[TopicPartition]:
    """Partitions added to one member and taken from another in one round: two members might read them at a time."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, subscription in group.items():
        owned, given = set(subscription.owned), set(answer[member].partitions)
        added |= given - owned
        revoked |= owned - given
    return added & revoked


def check_handover(name: str, group: GroupSubscription, answer: Mapping[str, Assignment]) -> None:
    """Refuse a cooperative answer with partitions in transfer. An eager one needs no check.

    As in Java, `cooperative-sticky` is exempt: it weighs generations, and a stale claim is no ownership.

    Raises:
        AssignmentError: With the first such partitions.
    """
    moving = set() if name == "cooperative-sticky" else in_transfer(group, answer)
    if moving:
        listed = ", ".join(f"{topic}-{number}" for topic, number in sorted(moving)[:5])
        raise AssignmentError(
            f"assignor {name} gives {len(moving)} partitions to members before their owners let them go ({listed}): "
            "a cooperative assignor must hold these back until the next round"
        )


def hold_back(group: GroupSubscription, answer: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """The answer without the partitions in transfer: how a strategy that knows no rounds becomes cooperative."""
    moving = in_transfer(group, answer)
    adjusted = {}
    for member, given in answer.items():
        held = moving.difference(group[member].owned)
        adjusted[member] = Assignment([p for p in given.partitions if p not in held], given.user_data)
    return adjusted
