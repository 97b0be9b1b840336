"""`range` and `roundrobin`: assign partitions by their numbers, without regard to previous owners.

`range`, Kafka's `RangeAssignor` with the racks of KIP-881, assigns consecutive partitions of each topic to each member,
and matches racks first. Topics with the same subscribers and the same number of partitions are co-partitioned:
partition p of these topics is assigned to the same member. `roundrobin`, Kafka's `RoundRobinAssignor`, assigns all
partitions to members in turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from assignors.index import (
    alike,
    known_topics,
    partition_racks,
    racks_matter,
    readers_by_topic,
    sorted_names,
    static_members_first,
)
from assignors.interface import Assignor
from assignors.model import Assignment, ClusterMetadata, GroupSubscription, TopicPartitions


class RangeAssignor(Assignor):
    """Assign consecutive partitions of each topic: floor(partitions / members), and one more to the first members."""

    name: ClassVar[str] = "range"

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign consecutive partitions, topic by topic."""
        counts = known_topics(cluster, group)
        return share_out(cluster, group, shares_of_alike(counts, readers_in_order(group, counts)))


def readers_in_order(group: GroupSubscription, topics: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the subscribers of each topic, static members first; topics with equal subscribers share one object."""
    order = static_members_first(group)
    places = readers_by_topic(alike(group, order), topics)
    named = {id(readers): tuple(order[place] for place in readers) for readers in places.values()}
    return {topic: named[id(readers)] for topic, readers in places.items()}


def shares_of_alike(counts: Mapping[str, int], readers: Mapping[str, tuple[str, ...]]) -> list[TopicShare]:
    """Return a share for each set of topics with the same number of partitions and the same subscribers."""
    sets: dict[tuple[int, int], list[str]] = {}
    for topic, count in counts.items():
        sets.setdefault((id(readers[topic]), count), []).append(topic)
    return [TopicShare(topics, count, readers[topics[0]]) for (_, count), topics in sets.items()]


class TopicShare:
    """Partitions `first` to `count` - 1 of co-partitioned topics, and their members.

    Attributes:
        topics: The topics; a member gets the same partition numbers of all topics.
        count: The number of partitions of each topic.
        members: The members in order.
        given: The partition numbers of each member so far.
    """

    __slots__ = ("_each", "_extra", "_free", "count", "given", "members", "topics")

    def __init__(self, topics: Sequence[str], count: int, members: Sequence[str], first: int = 0) -> None:
        self.topics = topics
        self.count = count
        self.members = members
        self.given: dict[str, list[int]] = {member: [] for member in members}
        self._each, self._extra = divmod(count - first, len(members))
        self._free: Sequence[int] = range(first, count)

    def room(self, member: str) -> int:
        """Return how many more partitions the member may take.

        The limit is floor(partitions / members), or one more while the remainder is not used up.
        """
        return max(0, self._each + (self._extra > 0) - len(self.given[member]))

    def assign_numbers(self, member: str, numbers: Sequence[int]) -> None:
        """Assign these partitions to a member with enough room."""
        self.given[member] += numbers
        if len(self.given[member]) > self._each:
            self._extra -= 1

    def match_racks(self, racks: Mapping[str, str | None], replicas: Mapping[str, Sequence[frozenset[str]]]) -> None:
        """Phase 1: assign each partition to a member on whose rack all the topics have a replica of the partition.

        A member without a rack matches every partition.
        """
        free = self._free
        on_racks = [frozenset.intersection(*(replicas[topic][number] for topic in self.topics)) for number in free]
        if len(self.topics) > 1:
            taken = self._match_by_partition(racks, free, on_racks)
        else:
            taken = self._match_by_member(racks, free, on_racks)
        self._free = [number for number in free if number not in taken]

    def fill(self) -> None:
        """Phase 2: assign the partitions that are left, in order, to the members in order."""
        at = 0
        for member in self.members:
            room = self.room(member)
            if room and at < len(self._free):
                self.assign_numbers(member, self._free[at : at + room])
                at += room

    def _match_by_partition(
        self, racks: Mapping[str, str | None], free: Sequence[int], on_racks: Sequence[frozenset[str]]
    ) -> set[int]:
        """Assign each partition to the first member on its racks that has room; return the assigned partitions."""
        waiting: dict[str | None, list[tuple[int, str]]] = {}
        for place, member in reversed(list(enumerate(self.members))):
            waiting.setdefault(racks[member], []).append((place, member))
        taken: set[int] = set()
        for number, here in zip(free, on_racks, strict=True):
            fitting: list[tuple[int, str]] = []
            for rack in (None, *here):
                queue = waiting.get(rack, [])
                while queue and not self.room(queue[-1][1]):
                    queue.pop()
                fitting += queue[-1:]
            if fitting:
                self.assign_numbers(min(fitting)[1], [number])
                taken.add(number)
        return taken

    def _match_by_member(
        self, racks: Mapping[str, str | None], free: Sequence[int], on_racks: Sequence[frozenset[str]]
    ) -> set[int]:
        """Fill each member's room with the first free partitions on its rack; return the assigned partitions."""
        taken: set[int] = set()
        offers: dict[str | None, Iterator[int]] = {}
        for member in self.members:
            room, rack = self.room(member), racks[member]
            if rack not in offers:
                offers[rack] = iter([n for n, here in zip(free, on_racks, strict=True) if rack is None or rack in here])
            found: list[int] = []
            while len(found) < room and (number := next(offers[rack], None)) is not None:
                if number not in taken:
                    taken.add(number)
                    found.append(number)
            if found:
                self.assign_numbers(member, found)
        return taken


def share_out(
    cluster: ClusterMetadata, group: GroupSubscription, shares: Sequence[TopicShare]
) -> Mapping[str, Assignment]:
    """Fill all shares, matching racks first if they matter, and return each member's assignment, sorted."""
    racks = {member: subscription.rack or None for member, subscription in group.items()}
    if any(racks.values()):
        topics = {topic for share in shares for topic in share.topics}
        replicas = {topic: partition_racks(cluster, topic, cluster.partitions[topic]) for topic in topics}
        needing = [
            any(racks_matter([racks[member] for member in share.members], replicas[topic]) for topic in share.topics)
            for share in shares
        ]
        for share, needs in zip(shares, needing, strict=True):
            # As in Java: for co-partitioned topics, match racks if racks matter for any topic of the group. For a
            # single topic, match racks only if racks matter for this topic.
            if needs or (any(needing) and len(share.topics) > 1):
                share.match_racks(racks, replicas)
    given = {member: TopicPartitions([], []) for member in group}
    by_topic: dict[str, list[tuple[str, list[int]]]] = {}
    for share in shares:
        share.fill()
        taken = [(member, sorted(numbers)) for member, numbers in share.given.items() if numbers]
        for topic in share.topics:
            by_topic.setdefault(topic, []).extend(taken)
    for topic in sorted_names(by_topic):
        for member, numbers in by_topic[topic]:
            given[member].topics.extend([topic] * len(numbers))
            given[member].numbers.extend(numbers)
    return {member: Assignment(partitions) for member, partitions in given.items()}


class RoundRobinAssignor(Assignor):
    """Give each partition, in the order of topics and numbers, to the next member that subscribes to the topic.

    The result is balanced if all members subscribe to the same topics, else it may be very uneven. Racks are ignored.
    """

    name: ClassVar[str] = "roundrobin"

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign all partitions in round-robin order; members that do not subscribe to a topic are skipped."""
        counts = known_topics(cluster, group)
        circle = static_members_first(group)
        readers = readers_by_topic(alike(group, circle), counts)
        given = [TopicPartitions([], []) for _ in circle]
        at = 0
        for topic in sorted_names(counts):
            places, count = readers[topic], counts[topic]
            first = bisect_left(places, at) % len(places)
            for step in range(min(count, len(places))):
                numbers = range(step, count, len(places))
                partitions = given[places[(first + step) % len(places)]]
                partitions.topics.extend([topic] * len(numbers))
                partitions.numbers.extend(numbers)
            at = (places[(first + count - 1) % len(places)] + 1) % len(circle)
        return {member: Assignment(partitions) for member, partitions in zip(circle, given, strict=True)}
