"""`redundant`: assign each partition to several members: a primary, and standbys that can take over immediately.

Java has no such strategy. Kafka's "Client-side Assignment Proposal" describes the use case of search indexers that each
hold a replica of a partition.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from assignors.index import PartitionIndex, Pool, alike, known_topics, readers_by_topic, sorted_names
from assignors.interface import Assignor
from assignors.model import NO_GENERATION, Assignment, ClusterMetadata, GroupSubscription, Subscription, TopicPartition
from assignors.wire import (
    WireFormatError,
    decode_assignment,
    decode_sticky_user_data,
    encode_assignment,
    encode_sticky_user_data,
)


class RedundantAssignor(Assignor):
    """Assign each partition to `copies` different subscribers, or to all if there are fewer, with even loads.

    A member's Assignment lists every partition of which it has a copy. `primaries` returns the partitions that the
    member leads, and `replicas` returns the copy numbers of its other partitions. Copies stay with their members if
    balance allows. If a primary leaves, a standby of the partition becomes the primary, and another member becomes a
    standby. The copy numbers of standbys may change.

    Args:
        copies: The number of members that hold each partition, at least 1.
    """

    name: ClassVar[str] = "redundant"
    redundant: ClassVar[bool] = True

    def __init__(self, copies: int = 2) -> None:
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
            raise ValueError(f"copies must be a whole number of at least 1, got {copies!r}")
        self._copies = copies
        self._last: bytes | None = None

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return the last assignment, encoded; its user data contain the primaries as `sticky` user data (V1)."""
        return self._last

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign each partition to up to `copies` members. The user data of a member contain its partitions by rank."""
        members = sorted_names(group)
        counts = known_topics(cluster, group)
        readers = readers_by_topic(alike(group, members), counts)
        index = PartitionIndex(sorted(sorted_names(counts), key=lambda topic: len(readers[topic])), counts)
        copies = _Copies(index, [readers[topic] for topic in index.topics], len(members), self._copies)
        claims = [_claim(index, group[member]) for member in members]
        copies.keep_claims(claims)
        copies.fill()
        copies.level()
        primary = copies.choose_primaries(claims)
        held: list[list[int]] = [[] for _ in members]
        ranked: list[list[list[int]]] = [[[] for _ in range(self._copies)] for _ in members]
        for partition, holders in enumerate(copies.holders):
            first = primary[partition]
            for rank, place in enumerate([first, *(place for place in holders if place != first)]):
                held[place].append(partition)
                ranked[place][rank].append(partition)
        return {
            member: Assignment(
                index.partitions(held[place]), _encode_ranks([index.partitions(of_rank) for of_rank in ranked[place]])
            )
            for place, member in enumerate(members)
        }

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the assignment for the next `subscription_user_data`."""
        leading = encode_sticky_user_data(primaries(assignment), generation)
        self._last = encode_assignment(Assignment(assignment.partitions, leading))

    def replicas(self, assignment: Assignment) -> Mapping[TopicPartition, int]:
        """Return the copy number of each partition for which this member is a standby."""
        said = _decode_ranks(assignment.user_data)
        return {tp: rank for rank, partitions in enumerate(said) if rank for tp in partitions}


def primaries(assignment: Assignment) -> Sequence[TopicPartition]:
    """Return the partitions of a `redundant` assignment for which its member is the primary."""
    return next(iter(_decode_ranks(assignment.user_data)), ())


def _encode_ranks(ranks: Sequence[Sequence[TopicPartition]]) -> bytes:
    """Encode the partitions of each rank as nested assignments.

    The outermost assignment lists the primaries (rank 0); its user data are the assignment of rank 1, and so on.
    """
    data = b""
    for partitions in reversed(ranks):
        data = encode_assignment(Assignment(partitions, data)) if data or partitions else b""
    return data


def _decode_ranks(data: bytes | None) -> list[Sequence[TopicPartition]]:
    ranks: list[Sequence[TopicPartition]] = []
    while data:
        try:
            said = decode_assignment(data)
        except WireFormatError:
            # The bytes are not from this strategy, for example the error message of a leader whose assignor failed.
            return ranks
        ranks.append(said.partitions)
        data = said.user_data
    return ranks


@dataclass(frozen=True, slots=True)
class _Claim:
    """A member's report: all its partitions, the partitions of which it was the primary, and the generation."""

    held: Sequence[int]
    leading: frozenset[int]
    generation: int


def _claim(index: PartitionIndex, subscription: Subscription) -> _Claim:
    try:
        said = decode_assignment(subscription.user_data or b"")
    except WireFormatError:
        said = Assignment(())
    if not said.partitions:
        held = list(dict.fromkeys(index.integers(subscription.owned)))
        return _Claim(held, frozenset(), max(subscription.generation, NO_GENERATION))
    leading = decode_sticky_user_data(said.user_data)
    held = list(dict.fromkeys(index.integers(said.partitions)))
    return _Claim(held, frozenset(index.integers(leading.partitions)), max(leading.generation, NO_GENERATION))


class _Copies:
    """The copies while they are being assigned.

    Attributes:
        holders: The members that hold each partition. Members that kept the partition come first, by generation.
    """

    def __init__(self, index: PartitionIndex, readers: Sequence[Sequence[int]], members: int, copies: int) -> None:
        self.holders: list[list[int]] = [[] for _ in range(index.size)]
        self._copies = copies
        self._sizes = [0] * members
        self._lowered: list[int] = []
        self._kept: set[tuple[int, int]] = set()
        pools: dict[int, Pool] = {}
        self._pools: list[Pool] = []
        for topic, places in zip(index.topics, readers, strict=True):
            pool = pools.setdefault(id(places), Pool(places, self._sizes, self._lowered))
            self._pools += [pool] * index.counts[topic]

    def keep_claims(self, claims: Sequence[_Claim]) -> None:
        """Accept claims up to the number of copies: newer generations first, primaries before standbys."""
        claimed = [
            (-claim.generation, partition not in claim.leading, place, partition)
            for place, claim in enumerate(claims)
            for partition in claim.held
        ]
        for _, _, place, partition in sorted(claimed):
            holders = self.holders[partition]
            if len(holders) < self._copies and place in self._pools[partition].members:
                holders.append(place)
                self._sizes[place] += 1
                self._kept.add((partition, place))

    def fill(self) -> None:
        """Give missing copies to the least loaded subscribers that do not hold the partition yet."""
        for partition, holders in enumerate(self.holders):
            while len(holders) < self._copies:
                place = self._pools[partition].least_loaded_without(holders)
                if place is None:
                    break
                holders.append(place)
                self._sizes[place] += 1

    def level(self) -> None:
        """Move copies to members with at least two copies fewer: new copies singly, then in chains, then kept copies.

        A copy moves only to a member that does not hold the partition yet. Every move or chain of moves makes the sum
        of the squared sizes smaller, so the loops terminate.
        """
        self._level_singly(kept_too=False)
        self._level_by_chains()
        self._level_singly(kept_too=True)

    def _level_singly(self, *, kept_too: bool) -> None:
        moved = True
        while moved:
            moved = False
            for partition in range(len(self.holders)):
                moved |= self._level_partition(partition, kept_too)

    def _level_by_chains(self) -> None:
        """Move new copies along chains: the fullest member may have no copy that it can give to the emptiest member."""
        lowest = min(self._sizes, default=0)
        if max(self._sizes, default=0) < lowest + 2:
            return
        new: dict[int, set[int]] = {}
        for partition, holders in enumerate(self.holders):
            for place in holders:
                if (partition, place) not in self._kept:
                    new.setdefault(place, set()).add(partition)
        # The members from which no chain leads to a member with few enough copies.
        without: set[int] = set()
        for source in sorted(new, key=lambda place: -self._sizes[place]):
            if self._sizes[source] < lowest + 2:
                return
            while source not in without and (chain := self._chain(source, new, without)):
                for giver, partition, taker in chain:
                    holders = self.holders[partition]
                    holders[holders.index(giver)] = taker
                    new[giver].remove(partition)
                    new.setdefault(taker, set()).add(partition)
                self._sizes[source] -= 1
                self._sizes[chain[0][2]] += 1
                self._lowered.append(source)

    def _chain(self, source: int, new: Mapping[int, set[int]], without: set[int]) -> list[tuple[int, int, int]]:
        """Return the shortest chain to a member with at least two copies fewer, last step first; empty: no chain.

        A step is a tuple: the member that gives up a new copy, the copy's partition, and the member that takes it over.
        """
        came: dict[int, tuple[int, int, int] | None] = {source: None}
        unreached: dict[Pool, set[int]] = {}
        for place in (queue := [source]):
            for partition in sorted(new.get(place, ())):
                pool = self._pools[partition]
                if pool not in unreached:
                    unreached[pool] = set(pool.members) - came.keys() - without
                reached = unreached[pool].difference(self.holders[partition])
                for target in sorted(reached):
                    came[target] = (place, partition, target)
                    queue.append(target)
                    if self._sizes[source] >= self._sizes[target] + 2:
                        return list(_steps(came, target))
                for rest in unreached.values() if reached else ():
                    rest -= reached
        without |= came.keys()
        return []

    def _level_partition(self, partition: int, kept_too: bool) -> bool:
        holders, sizes = self.holders[partition], self._sizes
        moved = False
        # Go backwards: standbys are appended after primaries, and should move first.
        for at in range(len(holders) - 1, -1, -1):
            source = holders[at]
            if not kept_too and (partition, source) in self._kept:
                continue
            target = self._pools[partition].least_loaded_without(holders)
            if target is not None and sizes[source] >= sizes[target] + 2:
                holders[at] = target
                sizes[source] -= 1
                sizes[target] += 1
                self._lowered.append(source)
                moved = True
        return moved

    def choose_primaries(self, claims: Sequence[_Claim]) -> list[int]:
        """Return the primary of each partition.

        The previous primary stays if it still holds the partition. If not, a standby that kept the partition takes
        over, or else a new holder. Then primaries give up partitions to other holders, until no holder leads at least
        two partitions fewer than the primary. No copy moves.
        """
        leads = [0] * len(claims)
        chosen: list[int] = []
        open_: list[int] = []
        for partition, holders in enumerate(self.holders):
            before = [place for place in holders if partition in claims[place].leading]
            chosen.append(max(before, key=lambda place: claims[place].generation) if before else -1)
            if before:
                leads[chosen[partition]] += 1
            else:
                open_.append(partition)
        for partition in open_:
            kept = [place for place in self.holders[partition] if (partition, place) in self._kept]
            chosen[partition] = min(kept or self.holders[partition], key=lambda place: (leads[place], place))
            leads[chosen[partition]] += 1
        moved = True
        while moved:
            moved = False
            for partition, holders in enumerate(self.holders):
                target = min(holders, key=lambda place: (leads[place], place))
                if leads[chosen[partition]] >= leads[target] + 2:
                    leads[chosen[partition]] -= 1
                    leads[target] += 1
                    chosen[partition] = target
                    moved = True
        return chosen


def _steps(came: Mapping[int, tuple[int, int, int] | None], target: int) -> Iterator[tuple[int, int, int]]:
    """Yield the steps that lead to a member, the last step first."""
    while (step := came[target]) is not None:
        yield step
        target = step[0]
