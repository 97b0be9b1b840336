"""`sticky`: a balanced assignment with as few moved partitions as possible (`StickyAssignor` in Java, KIP-54)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from assignors.claims import Claims, resolve
from assignors.index import PartitionIndex, known_topics
from assignors.interface import Assignor
from assignors.mixed import assign_mixed
from assignors.model import Assignment, ClusterMetadata, GroupSubscription
from assignors.ordering import sorted_names
from assignors.racks import partition_racks, racks_matter
from assignors.subscribers import alike, readers_by_topic
from assignors.uniform import RackView, assign_uniform
from assignors.wire import StickyUserData, decode_sticky_user_data, encode_sticky_user_data


class StickyAssignor(Assignor):
    """Balance first: sizes as even as subscriptions allow. Then racks, then members keep their partitions.

    The previous assignment of a member comes from its user data, because it has revoked everything when it joins.
    """

    name: ClassVar[str] = "sticky"

    def __init__(self) -> None:
        self._last: StickyUserData | None = None

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return this member's last assignment as `sticky` user data (V1); None before the first one."""
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
        members: The sorted member ids; the lists below are indexed by a member's place here.
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
    """Assign the partitions of all topics the group subscribes to, keeping as many claims as possible.

    With `heed_racks` False, racks are ignored; the result contains them nevertheless, so that they can be compared.
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
