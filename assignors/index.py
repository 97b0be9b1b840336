"""Represent a group by integers for the algorithms, sort its members, and decide between contradicting claims.

Sort orders decide ties as in Java, so that the result does not depend on the leader's client.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from operator import add, gt

from assignors.model import ClusterMetadata, GroupSubscription, TopicPartition, TopicPartitions
from assignors.wire import StickyUserData


def known_topics(cluster: ClusterMetadata, group: GroupSubscription) -> dict[str, int]:
    """Return the partition counts of the subscribed topics that have partitions."""
    wanted: set[str] = set().union(*(subscription.topics for subscription in group.values()))
    return {topic: count for topic in wanted if (count := cluster.partitions.get(topic, 0)) > 0}


class PartitionIndex:
    """Numbers the partitions of topics in a given order: topic by topic, 0 to `size` - 1.

    Attributes:
        topics: The topics in order.
        start: The integer of each topic's partition 0.
        counts: The number of partitions of each topic.
        size: The number of partitions.
    """

    __slots__ = ("_last", "_numbers", "_topics", "counts", "size", "start", "topics")

    def __init__(self, topics: Sequence[str], counts: Mapping[str, int]) -> None:
        self.topics = topics
        self.counts = {topic: counts[topic] for topic in topics}
        self.start: dict[str, int] = {}
        self._topics: list[str] = []
        self._numbers: list[int] = []
        numbers = list(range(max(self.counts.values(), default=0)))
        for topic, count in self.counts.items():
            self.start[topic] = len(self._topics)
            self._topics += [topic] * count
            self._numbers += numbers if count == len(numbers) else numbers[:count]
        self.size = len(self._topics)
        # Keep the starts and counts of the last call, because members often own partitions of the same topics.
        self._last: tuple[list[str], list[int], list[int]] = ([], [], [])

    def integers(self, partitions: Sequence[TopicPartition]) -> list[int]:
        """Return the integers of those partitions that exist, in the given order."""
        columns = TopicPartitions.from_pairs(partitions)
        topics, numbers = columns.topics, columns.numbers
        if not numbers:
            return []
        if topics != self._last[0] and all(map(self.counts.__contains__, topics)):
            self._last = (topics, list(map(self.start.__getitem__, topics)), list(map(self.counts.__getitem__, topics)))
        if topics == self._last[0] and min(numbers) >= 0 and all(map(gt, self._last[2], numbers)):
            return list(map(add, self._last[1], numbers))
        start, counts = self.start, self.counts
        return [
            start[topic] + number
            for topic, number in zip(topics, numbers, strict=True)
            if topic in counts and 0 <= number < counts[topic]
        ]

    def partitions(self, integers: Iterable[int]) -> TopicPartitions:
        """Return the partitions with these integers."""
        found = integers if isinstance(integers, (list, range)) else list(integers)
        if isinstance(found, range) and found.start >= 0:
            piece = slice(found.start, found.stop, found.step)
            return TopicPartitions(self._topics[piece], self._numbers[piece])
        return TopicPartitions(list(map(self._topics.__getitem__, found)), list(map(self._numbers.__getitem__, found)))

    def number(self, integer: int) -> int:
        """Return the partition number of the partition with this integer."""
        return self._numbers[integer]

    def topic(self, integer: int) -> str:
        """Return the topic of the partition with this integer."""
        return self._topics[integer]


def sorted_names(names: Iterable[str]) -> list[str]:
    """Sort names as Java's `String.compareTo` does, by UTF-16 code units and not by code points."""
    found = list(names)
    if all(map(str.isascii, found)):
        return sorted(found)
    return sorted(found, key=_utf16)


def static_members_first(group: GroupSubscription) -> list[str]:
    """Sort member ids: static members by instance id, then others by member id (`MemberInfo.compareTo`)."""
    static = [(member, instance) for member in group if (instance := group[member].instance_id) is not None]
    dynamic = [member for member in group if group[member].instance_id is None]
    in_order = sorted(static, key=lambda pair: (_utf16(pair[1]), _utf16(pair[0])))
    return [member for member, _ in in_order] + sorted_names(dynamic)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def alike(group: GroupSubscription, members: Sequence[str]) -> dict[frozenset[str], list[int]]:
    """Return the places of the members, grouped by the set of their topics.

    Args:
        group: The subscriptions by member id.
        members: The member ids; a member's place is its index in this sequence.
    """
    listed: dict[tuple[str, ...], list[int]] = {}
    for place, member in enumerate(members):
        listed.setdefault(tuple(group[member].topics), []).append(place)
    merged: dict[frozenset[str], list[int]] = {}
    for topics, places in listed.items():
        merged.setdefault(frozenset(topics), []).extend(places)
    return merged


def readers_by_topic(
    subscriptions: Mapping[frozenset[str], Sequence[int]], topics: Iterable[str]
) -> dict[str, Sequence[int]]:
    """Return the places of each topic's subscribers, ascending; topics with equal subscribers share one object."""
    kinds = list(subscriptions.items())
    merged: dict[tuple[int, ...], Sequence[int]] = {}
    readers: dict[str, Sequence[int]] = {}
    for topic in topics:
        key = tuple(kind for kind, (subscribed, _) in enumerate(kinds) if topic in subscribed)
        if key not in merged:
            merged[key] = sorted(place for kind in key for place in kinds[kind][1])
        readers[topic] = merged[key]
    return readers


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of all members on existing partitions, by place (the member's index in the sorted member ids).

    Attributes:
        stated: The partitions that each member claims, each partition once.
        generations: The generation of each member's claim; -1 if unknown.
        accepted: The partitions that each member may keep. If several members claim a partition, only the claim of the
            newest generation is accepted.
        contested: Partitions that several members claim in the same newest generation; no member may keep them.
    """

    stated: Sequence[list[int]]
    generations: Sequence[int]
    accepted: Sequence[list[int]]
    contested: frozenset[int]

    def outdated(self) -> dict[int, int]:
        """Return the newest claimant of each partition, among the members whose claims are of older generations.

        A generation is older if its number is below the group's newest generation.
        """
        newest = max(self.generations, default=-1)
        last: dict[int, int] = {}
        for place, generation in enumerate(self.generations):
            if generation < newest:
                for partition in self.stated[place]:
                    if partition not in last or generation > self.generations[last[partition]]:
                        last[partition] = place
        return last

    def newest(self, partitions: set[int]) -> dict[int, list[int]]:
        """Return the claimants of each partition, without claimants of older generations."""
        holders: dict[int, list[int]] = {}
        for place, stated in enumerate(self.stated):
            for partition in partitions.intersection(stated):
                rivals = holders.get(partition)
                if rivals is None or self.generations[place] > self.generations[rivals[0]]:
                    holders[partition] = [place]
                elif self.generations[place] == self.generations[rivals[0]]:
                    rivals.append(place)
        return holders


def resolve(index: PartitionIndex, claims: Sequence[StickyUserData]) -> Claims:
    """Drop claims on missing partitions, and decide between contradicting claims."""
    stated = [index.integers(claim.partitions) for claim in claims]
    generations = [max(claim.generation, -1) for claim in claims]
    distinct: set[int] = set().union(*stated)
    if len(distinct) == sum(map(len, stated)):
        return Claims(stated, generations, stated, frozenset())
    stated = [list(dict.fromkeys(partitions)) for partitions in stated]
    settled = Claims(stated, generations, stated, frozenset())
    seen: set[int] = set()
    repeated: set[int] = set()
    for partitions in stated:
        repeated |= seen.intersection(partitions)
        seen.update(partitions)
    holders = settled.newest(repeated)
    contested = frozenset(partition for partition, rivals in holders.items() if len(rivals) > 1)
    accepted = [
        [partition for partition in partitions if partition not in holders or holders[partition] == [place]]
        for place, partitions in enumerate(stated)
    ]
    return Claims(stated, generations, accepted, contested)


NO_RACKS: frozenset[str] = frozenset()


def partition_racks(cluster: ClusterMetadata, topic: str, count: int) -> list[frozenset[str]]:
    """Return the racks of a topic's first `count` partitions; empty: unknown. Equal sets of racks are one object."""
    known = cluster.racks.get(topic, ())
    seen: dict[tuple[str, ...], frozenset[str]] = {}
    found: list[frozenset[str]] = []
    for number in range(count):
        key = tuple(known[number]) if number < len(known) else ()
        racks = seen.get(key)
        if racks is None:
            racks = seen[key] = frozenset(rack for rack in key if rack)
        found.append(racks)
    return found


def racks_matter(members: Collection[str | None], partitions: Sequence[frozenset[str]]) -> bool:
    """Return whether rack-aware assignment could change the result (`useRackAwareAssignment` in Java).

    Two conditions must hold: a replica is on a member's rack, and the partitions differ in the racks of their replicas.
    """
    wanted = {rack for rack in members if rack}
    if not wanted:
        return False
    distinct = set(partitions)
    offered = NO_RACKS.union(*distinct)
    return not wanted.isdisjoint(offered) and any(racks != offered for racks in distinct)


class Pool:
    """Candidate members for a set of partitions, in a heap by load.

    A member is represented by its place, the index in the sorted member ids. The caller changes the loads, and the heap
    is repaired when the least loaded member is requested.

    Attributes:
        places: The members, ascending.
        members: The same members as a set.
    """

    __slots__ = ("_heap", "_judged", "_loads", "_lowered", "_seen", "members", "places")

    def __init__(self, places: Sequence[int], loads: Sequence[float], lowered: Sequence[int]) -> None:
        """Make a pool, which shares the lists `loads` and `lowered` with the caller.

        Args:
            places: The members of this pool, ascending.
            loads: The load of every member of the group, by place; the caller updates it.
            lowered: The members whose load was lowered, in order. The caller appends to this list. Such a
                member may be deep inside the heap, so it is pushed again.
        """
        self.places = places
        self.members = frozenset(places)
        self._loads = loads
        self._lowered = lowered
        self._seen = len(lowered)
        self._heap: list[tuple[float, int]] = []
        self._judged = (-1, False)

    def least_loaded(self) -> int:
        """Return the member with the lowest load; if loads are equal, with the lowest place."""
        heap, loads = self._heap, self._loads
        if not heap:
            heap += [(loads[place], place) for place in self.places]
            heapify(heap)
        elif self._seen < len(self._lowered):
            for place in self.members.intersection(self._lowered[self._seen :]):
                heappush(heap, (loads[place], place))
        self._seen = len(self._lowered)
        while True:
            load, place = heap[0]
            if loads[place] == load:
                return place
            heapreplace(heap, (loads[place], place))

    def least_loaded_without(self, excluded: Collection[int]) -> int | None:
        """Return the least loaded member that is not excluded, or None."""
        aside: list[tuple[float, int]] = []
        found: int | None = None
        while found is None and self.places and (self._heap or not aside):
            place = self.least_loaded()
            if place in excluded:
                aside.append(heappop(self._heap))
            else:
                found = place
        for entry in aside:
            heappush(self._heap, entry)
        return found

    def level(self) -> bool:
        """Return whether the pool is balanced: no member's load is higher than another's by two or more."""
        if self._judged[0] != len(self._lowered):
            held = list(map(self._loads.__getitem__, self.places))
            self._judged = (len(self._lowered), max(held) < min(held) + 2)
        return self._judged[1]
