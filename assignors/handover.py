"""Checks a cooperative assignment before the leader sends it (`ConsumerCoordinator` in Java, KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping

from assignors.interface import AssignmentError
from assignors.model import Assignment, GroupSubscription, TopicPartition


def in_transfer(group: GroupSubscription, answer: Mapping[str, Assignment]) -> set[TopicPartition]:
    """Return the partitions that are added to one member and revoked from another in the same rebalance.

    Under the cooperative protocol two members could read such a partition at the same time.
    """
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, subscription in group.items():
        owned, given = set(subscription.owned), set(answer[member].partitions)
        added |= given - owned
        revoked |= owned - given
    return added & revoked


def check_handover(name: str, group: GroupSubscription, answer: Mapping[str, Assignment]) -> None:
    """Refuse a cooperative assignment that moves a partition in one step. An eager assignment needs no check.

    As in Java, `cooperative-sticky` is exempt: it compares generations, and a partition claimed by a member of an
    older generation is not owned by that member any more.

    Raises:
        AssignmentError: Names the assignor and up to five of the partitions.
    """
    moving = set() if name == "cooperative-sticky" else in_transfer(group, answer)
    if moving:
        listed = ", ".join(f"{topic}-{number}" for topic, number in sorted(moving)[:5])
        raise AssignmentError(
            f"assignor {name} assigns {len(moving)} partitions to new members before their owners have revoked them "
            f"({listed}): a cooperative assignor must leave these out until the next rebalance"
        )


def hold_back(group: GroupSubscription, answer: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """Return the answer without the partitions in transfer, so that an eager strategy works cooperatively.

    Their owners revoke them and join again; the rebalance that follows assigns them.
    """
    moving = in_transfer(group, answer)
    adjusted = {}
    for member, given in answer.items():
        held = moving.difference(group[member].owned)
        adjusted[member] = Assignment([p for p in given.partitions if p not in held], given.user_data)
    return adjusted
