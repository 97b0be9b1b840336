"""`cooperative-sticky`: the sticky assignment in two rebalances (`CooperativeStickyAssignor` in Java, KIP-429)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from assignors.interface import Assignor, RebalanceProtocol
from assignors.model import NO_GENERATION, Assignment, ClusterMetadata, GroupSubscription, Subscription
from assignors.sticky import Shared, share
from assignors.wire import StickyUserData, decode_cooperative_user_data, encode_cooperative_user_data


class CooperativeStickyAssignor(Assignor):
    """As `sticky`, but a partition that must move is assigned to no member until its owner has revoked it.

    The owned partitions come from the members' subscriptions. After the first rebalance the members that lost
    partitions join again, and the second rebalance assigns the revoked partitions.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}
    )

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return the generation of this member's last assignment, encoded.

        Subscriptions before version 2 have no field for the generation, so their leaders read it from the user data.
        """
        return encode_cooperative_user_data(self._generation)

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign as `sticky` does, then leave out the partitions that another member still owns."""
        shared = share(cluster, group, {member: _claim(subscription) for member, subscription in group.items()})
        _hold_back(shared)
        return shared.assignments()

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the generation for the next `subscription_user_data`."""
        self._generation = generation


def _claim(subscription: Subscription) -> StickyUserData:
    generation = subscription.generation
    if generation < 0:
        generation = decode_cooperative_user_data(subscription.user_data)
    return StickyUserData(subscription.owned, generation)


def _hold_back(shared: Shared) -> None:
    """Remove from the answer the partitions that another member still owns, by the newest claim on them."""
    claims = shared.claims
    moving = shared.revoked | claims.contested
    if not moving:
        return
    holders = claims.newest(moving)
    for place, partitions in enumerate(shared.given):
        held = {
            partition
            for partition in moving.intersection(partitions)
            if place not in holders[partition] or (shared.uniform and len(holders[partition]) > 1)
        }
        if held:
            shared.given[place] = [partition for partition in partitions if partition not in held]
