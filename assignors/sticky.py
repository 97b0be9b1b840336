"""`sticky` and `cooperative-sticky`: collect the claims of members; `sticky_uniform` and `sticky_mixed` assign.

The strategies are Kafka's `StickyAssignor` (KIP-54) and `CooperativeStickyAssignor` (KIP-429). Both make the same
assignment, which is balanced and moves as few partitions as possible; `cooperative-sticky` needs two rebalances.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from assignors.index import (
    Claims,
    PartitionIndex,
    alike,
    known_topics,
    partition_racks,
    racks_matter,
    readers_by_topic,
    resolve,
    sorted_names,
)
from assignors.interface import Assignor, RebalanceProtocol
from assignors.model import NO_GENERATION, Assignment, ClusterMetadata, GroupSubscription, Subscription
from assignors.sticky_mixed import assign_mixed
from assignors.sticky_uniform import RackView, assign_uniform
from assignors.wire import (
    StickyUserData,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
)


class StickyAssignor(Assignor):
    """Make sizes as even as subscriptions allow, then match racks, then keep partitions with their members.

    A member's previous assignment comes from its user data, because the member revokes its partitions before it joins.
    """

    name: ClassVar[str] = "sticky"

    def __init__(self) -> None:
        self._last: StickyUserData | None = None

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return this member's last assignment as `sticky` user data (V1); None before the first assignment."""
        return None if self._last is None else encode_sticky_user_data(*self._last)

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign evenly, keeping partitions with the members that report them in their user data."""
        shared = share(cluster, group, {m: decode_sticky_user_data(s.user_data) for m, s in group.items()})
        return shared.assignments()

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the assignment for the next `subscription_user_data`."""
        self._last = StickyUserData(assignment.partitions, generation)


@dataclass(frozen=True, slots=True)
class Shared:
    """A sticky assignment in integers, which other strategies modify before it is returned.

    Attributes:
        members: The sorted member ids; the lists below are indexed by a member's index in this list.
        index: The partitions; the lists below hold their integers.
        claims: The partitions that the members claimed.
        given: The partitions of each member.
        revoked: The claimed partitions that were revoked from their members.
        uniform: Whether all members subscribe to the same topics.
        racks: The racks; None if they make no difference.
        readers: The subscribers of each topic, in the index's order.
    """

    members: Sequence[str]
    index: PartitionIndex
    claims: Claims
    given: list[Sequence[int]]
    revoked: set[int]
    uniform: bool
    racks: RackView | None
    readers: Sequence[Sequence[int]]

    def assignments(self) -> Mapping[str, Assignment]:
        """Return the assignments by member id."""
        return {
            member: Assignment(self.index.partitions(partitions))
            for member, partitions in zip(self.members, self.given, strict=True)
        }


def share(
    cluster: ClusterMetadata, group: GroupSubscription, claims: Mapping[str, StickyUserData], *, heed_racks: bool = True
) -> Shared:
    """Assign the partitions of all topics to which the group subscribes, and keep as many claims as possible.

    If `heed_racks` is false, racks are ignored, but are in the result for comparison.
    """
    members = sorted_names(group)
    counts = known_topics(cluster, group)
    subscriptions = alike(group, members)
    uniform = len(subscriptions) == 1
    readers = readers_by_topic(subscriptions, counts)
    topics = sorted_names(counts)
    if not uniform:
        topics.sort(key=lambda topic: len(readers[topic]))
    index = PartitionIndex(topics, counts)
    resolved = resolve(index, [claims[member] for member in members])
    racks = _rack_view(cluster, [group[member].rack or None for member in members], index)
    ordered = [readers[topic] for topic in topics]
    heeded = racks if heed_racks else None
    if uniform:
        given, revoked = assign_uniform(index, resolved.accepted, heeded)
    elif members:
        given, revoked = assign_mixed(index, ordered, resolved.accepted, resolved.outdated(), heeded)
    else:
        given, revoked = [], set()
    return Shared(members, index, resolved, given, revoked, uniform, racks, ordered)


def _rack_view(cluster: ClusterMetadata, members: Sequence[str | None], index: PartitionIndex) -> RackView | None:
    if not any(members) or not cluster.racks:
        return None
    partitions = [racks for topic, count in index.counts.items() for racks in partition_racks(cluster, topic, count)]
    return RackView(members, partitions) if racks_matter(members, partitions) else None


class CooperativeStickyAssignor(Assignor):
    """As `sticky`, but a partition that must move is assigned to no member until its owner has revoked it.

    The owned partitions come from the members' subscriptions. Members that lost partitions in the first rebalance join
    again, and the second rebalance assigns the revoked partitions.
    """

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(
        {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}
    )

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return the generation of this member's last assignment, encoded.

        Subscriptions before version 2 have no field for the generation, so leaders read the generation from user data.
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
    """Remove from the assignment the partitions that another member still owns, according to the newest claim."""
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
