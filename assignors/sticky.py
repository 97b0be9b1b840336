"""`sticky`: balanced first, then as little movement as possible (`StickyAssignor` in Java, KIP-54)."""

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
    """Sizes as even as subscriptions allow, then racks, then everybody keeps what they had in the last generation.

    What a member had comes from its user data (it has revoked everything by the time it joins).
    """

    name: ClassVar[str] = "sticky"

    def __init__(self) -> None:
        self._last: StickyUserData | None = None

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """What this member last got (V1); None before its first assignment."""
        return None if self._last is None else encode_sticky_user_data(*self._last)

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """See `Assignor.assign`."""
        shared = share(cluster, group, {m: decode_sticky_user_data(s.user_data) for m, s in group.items()})
        return shared.assignments()

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remember it for `subscription_user_data`."""
        self._last = StickyUserData(assignment.partitions, generation)


@dataclass(frozen=True, slots=True)
class Shared:
    """A sticky answer before it is handed out.

    Attributes:
        members: The member ids; lists below go by their places.
        index: The partitions; lists below hold their integers.
        claims: What the members claimed.
        given: What each member gets.
        revoked: The claimed partitions that were taken from their members.
        uniform: Whether all members subscribe to the same topics.
        racks: The racks, None where they do not matter.
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
        """The answer by member id."""
        return {
            member: Assignment(self.index.partitions(partitions))
            for member, partitions in zip(self.members, self.given, strict=True)
        }


def share(
    cluster: ClusterMetadata, group: GroupSubscription, claims: Mapping[str, StickyUserData], *, heed_racks: bool = True
) -> Shared:
    """Share the partitions of all topics the group subscribes to, near to what the members claim to own.

    With `heed_racks` False the answer is made as if there were no racks; they are in the result all the same.
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
