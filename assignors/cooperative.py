"""`cooperative-sticky`: the sticky answer in two phases (`CooperativeStickyAssignor` in Java, KIP-429)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from assignors.interface import Assignor, RebalanceProtocol
from assignors.model import NO_GENERATION, Assignment, ClusterMetadata, GroupSubscription, Subscription
from assignors.sticky import Shared, share
from assignors.wire import StickyUserData, decode_cooperative_user_data, encode_cooperative_user_data


class CooperativeStickyAssignor(Assignor):
    """As `sticky`, but a partition that must change hands is given to nobody until its owner has let it go.

    What a member has comes from the owned partitions of its subscription. After such a round the members that lost
    something join again, and the next answer gives away what is free then.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}
    )

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """The generation of this member's last assignment, for leaders that read subscriptions of version 1."""
        return encode_cooperative_user_data(self._generation)

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """See `Assignor.assign`."""
        shared = share(cluster, group, {member: _claim(subscription) for member, subscription in group.items()})
        _hold_back(shared)
        return shared.assignments()

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remember the generation for `subscription_user_data`."""
        self._generation = generation


def _claim(subscription: Subscription) -> StickyUserData:
    generation = subscription.generation
    if generation < 0:
        generation = decode_cooperative_user_data(subscription.user_data)
    return StickyUserData(subscription.owned, generation)


def _hold_back(shared: Shared) -> None:
    """Take from the answer what another member still has: the newest claim of it is not the receiver's own."""
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
