"""Sticky assignment for members that subscribe to different topics (Java's general algorithm).

Each partition goes to its least loaded subscriber, then single moves balance the result. Ties are decided as in Java.
The algorithm needs less work than Java's: topics with the same subscribers share one heap, their partitions are
assigned in batches, and balance is checked once per topic.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import groupby

from assignors.index import PartitionIndex, Pool
from assignors.sticky_uniform import RackView


def assign_mixed(
    index: PartitionIndex,
    readers: Sequence[Sequence[int]],
    claims: Sequence[Sequence[int]],
    outdated: Mapping[int, int],
    racks: RackView | None,
) -> tuple[list[Sequence[int]], set[int]]:
    """Assign all partitions of `index` to `len(claims)` members.

    Args:
        index: The partitions, with the fewest subscribers first.
        readers: The subscribers of each topic in the index's order, ascending. Topics that share one object of equal
            subscribers share one heap.
        claims: The partitions that each member may keep; no partition twice.
        outdated: The previous owner of each partition that a member of an older generation claims.
        racks: None if racks make no difference.

    Returns:
        The partitions of each member, and the claimed partitions that were revoked from their members.
    """
    group = _Group(index, readers, len(claims))
    revocation = group.keep_claims(claims, racks)
    fresh: Sequence[int] = range(index.size)
    if any(claims):
        fresh = [partition for partition, owner in enumerate(group.owner) if owner < 0]
    group.fill(group.fill_within_racks(fresh, racks) if racks is not None else fresh)
    if not revocation:
        group.level(fresh, outdated)
    group.level(range(index.size), outdated)
    owners = group.owner
    lists: list[list[int]] = [[] for _ in claims]
    add = [partitions.append for partitions in lists]
    for partition, owner in enumerate(owners):
        add[owner](partition)
    given: list[Sequence[int]] = [*lists]
    revoked = {partition for place, claimed in enumerate(claims) for partition in claimed if owners[partition] != place}
    return given, revoked


class _Group:
    """The assignment while it is being computed.

    Attributes:
        owner: The owner of each partition; -1: no owner yet.
        sizes: The number of partitions of each member.
    """

    def __init__(self, index: PartitionIndex, readers: Sequence[Sequence[int]], members: int) -> None:
        self._index = index
        self._topic_of: list[int] = []
        for topic, count in enumerate(index.counts.values()):
            self._topic_of += [topic] * count
        self.owner = [-1] * index.size
        self.sizes = [0] * members
        self._shrunk: list[int] = []
        alike: dict[int, Pool] = {}
        self._pools: list[Pool] = []
        for places in readers:
            if id(places) not in alike:
                alike[id(places)] = Pool(places, self.sizes, self._shrunk)
            self._pools.append(alike[id(places)])
        self._distinct = list(alike.values())
        self._came_home: set[int] = set()
        self._movements = _Movements(index)

    def keep_claims(self, claims: Sequence[Sequence[int]], racks: RackView | None) -> bool:
        """Keep the claims on topics that the member still subscribes to; with racks, only claims that match its rack.

        Returns:
            Whether any claim had to be revoked.
        """
        owner, topic_of = self.owner, self._topic_of
        revocation = False
        for place, claimed in enumerate(claims):
            kept: Sequence[int] = claimed
            if not all(place in pool.members for pool in self._distinct):
                mine = {topic for topic, pool in enumerate(self._pools) if place in pool.members}
                kept = [partition for partition in claimed if topic_of[partition] in mine]
            if racks is not None and racks.members[place] is not None:
                kept = [partition for partition in kept if not racks.mismatch(place, partition)]
            for partition in kept:
                owner[partition] = place
            self.sizes[place] = len(kept)
            revocation |= len(kept) < len(claimed)
        return revocation

    def fill_within_racks(self, partitions: Sequence[int], racks: RackView) -> list[int]:
        """Assign each partition to its least loaded subscriber that is on one of its racks or has no rack.

        Returns:
            The partitions that could not be assigned.
        """
        pools: dict[tuple[Pool, frozenset[str]], Pool] = {}
        rest: list[int] = []
        for partition in partitions:
            key = (self._pools[self._topic_of[partition]], racks.partitions[partition])
            pool = pools.get(key)
            if pool is None:
                near = [
                    place for place in key[0].places if racks.members[place] is None or racks.members[place] in key[1]
                ]
                pool = pools[key] = Pool(near, self.sizes, self._shrunk)
            if pool.places:
                place = pool.least_loaded()
                self.owner[partition] = place
                self.sizes[place] += 1
            else:
                rest.append(partition)
        return rest

    def fill(self, partitions: Sequence[int]) -> None:
        """Assign each partition to its least loaded subscriber; of equally loaded subscribers, to the first by id."""
        runs = self._runs(partitions)
        for pool, of_pool in groupby(runs, key=lambda run: run[0]):
            together = list(of_pool)
            takers = iter(self._water(pool.places, sum(len(run) for _, run in together)))
            for _, run in together:
                for partition, place in zip(run, takers, strict=False):
                    self.owner[partition] = place

    def _runs(self, partitions: Sequence[int]) -> list[tuple[Pool, Sequence[int]]]:
        """Split ascending partitions by topic; return each topic's pool of subscribers and its partitions."""
        runs: list[tuple[Pool, Sequence[int]]] = []
        at = 0
        for topic, pool in zip(self._index.topics, self._pools, strict=True):
            end = self._index.start[topic] + self._index.counts[topic]
            stop = bisect_left(partitions, end, at)
            if stop > at:
                runs.append((pool, partitions[at:stop]))
            at = stop
        return runs

    def _water(self, places: Sequence[int], count: int) -> list[int]:
        """Return the members that take the next `count` partitions, if each goes to the least loaded of `places`.

        The result equals that of `count` operations on a heap, in fewer steps. The least loaded members (`wet`) take
        one partition each, round after round, until they reach the size of the next member, which joins `wet`. Updates
        sizes.
        """
        sizes = self.sizes
        rising = sorted(places, key=sizes.__getitem__)
        level = sizes[rising[0]]
        wet: list[int] = []
        taken: list[int] = []
        at = 0
        while len(taken) < count:
            start = at
            while at < len(rising) and sizes[rising[at]] == level:
                at += 1
            if at > start:
                wet = sorted(wet + rising[start:at])
            rounds = -(-(count - len(taken)) // len(wet))
            if at < len(rising):
                rounds = min(rounds, sizes[rising[at]] - level)
            taken += wet * rounds
            level += rounds
            for place in wet:
                sizes[place] = level
        for place in taken[count:]:
            sizes[place] -= 1
        del taken[count:]
        return taken

    def level(self, partitions: Sequence[int], outdated: Mapping[int, int]) -> None:
        """Move single partitions to members with at least two partitions fewer, in order, until no such move is left.

        If a partition's previous owner of an older generation has at least two partitions fewer than the current owner,
        the partition goes to this previous owner, otherwise to the least loaded subscriber.

        Terminates with a balanced result, because every move makes the sum of squared sizes smaller, except the return
        of a partition to its previous member, which happens at most once for each partition.
        """
        runs = self._runs(partitions)
        moved = True
        while moved:
            moved = False
            for pool, run in runs:
                if len(pool.places) > 1 and not pool.level():
                    moved |= self._level_run(pool, run, outdated)

    def _level_run(self, pool: Pool, run: Sequence[int], outdated: Mapping[int, int]) -> bool:
        owner, sizes = self.owner, self.sizes
        lightest = pool.least_loaded()
        movable = sizes[lightest] + 2
        moved = False
        for partition in run:
            source = owner[partition]
            if sizes[source] < movable:
                continue
            target = outdated.get(partition, -1)
            if target < 0 or sizes[source] < sizes[target] + 2 or target not in pool.members:
                target = lightest
            actual = self._movements.instead(self._topic_of[partition], partition, source, target)
            if sizes[owner[actual]] < sizes[target] + 2:
                # A partition may return once to the member from which it came; later moves repair the balance. Java has
                # no such limit, so its loop need not terminate.
                actual = partition if actual in self._came_home else actual
                self._came_home.add(actual)
            source = owner[actual]
            self._movements.record(self._topic_of[actual], actual, source, target)
            owner[actual] = target
            sizes[source] -= 1
            sizes[target] += 1
            self._shrunk.append(source)
            moved = True
            lightest = pool.least_loaded()
            movable = sizes[lightest] + 2
        return moved


class _Movements:
    """The moves so far, by topic and pair of members, so that two members do not swap partitions of a topic.

    Corresponds to `PartitionMovements` in Java's `AbstractStickyAssignor`.
    """

    def __init__(self, index: PartitionIndex) -> None:
        self._index = index
        self._hashes: dict[str, int] = {}
        self._capacity: dict[tuple[int, int, int], int] = {}
        self._moves: dict[int, tuple[int, int]] = {}
        self._between: dict[tuple[int, int, int], dict[int, None]] = {}

    def instead(self, topic: int, partition: int, source: int, target: int) -> int:
        """Return the partition to move instead of `partition`.

        If the target has given partitions of this topic to the source, such a partition moves back, else `partition`.
        """
        if partition in self._moves:
            source = self._moves[partition][0]
        back = self._between.get((topic, target, source))
        if not back:
            return partition
        # Any partition of the set would be correct. Java takes the first of its hash set, in the lowest bucket.
        buckets = self._capacity[topic, target, source] - 1
        return min(back, key=lambda other: self._hash(other) & buckets)

    def _hash(self, partition: int) -> int:
        """Return Java's `TopicPartition.hashCode`, with the bits mixed as `HashMap.hash` does."""
        topic = self._index.topic(partition)
        if topic not in self._hashes:
            hashed = 0
            units = topic.encode("utf-16-be", "surrogatepass")
            for high, low in zip(units[::2], units[1::2], strict=True):
                hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
            self._hashes[topic] = hashed
        code = (31 * (31 + self._index.number(partition)) + self._hashes[topic]) & 0xFFFFFFFF
        return code ^ code >> 16

    def record(self, topic: int, partition: int, source: int, target: int) -> None:
        """Record a move. Several moves of a partition become one move, or none if the partition returns."""
        before = self._moves.pop(partition, None)
        if before is not None:
            pair = (topic, before[0], before[1])
            del self._between[pair][partition]
            if not self._between[pair]:
                del self._between[pair], self._capacity[pair]
            source = before[0]
            if source == target:
                return
        self._moves[partition] = (source, target)
        pair = (topic, source, target)
        moved = self._between.setdefault(pair, {})
        moved[partition] = None
        # Grow like Java's HashMap (load factor 3/4), because `instead` needs the HashMap's number of buckets.
        while len(moved) * 4 > self._capacity.setdefault(pair, 16) * 3:
            self._capacity[pair] *= 2
