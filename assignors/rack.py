"""`rack-aware`: `sticky`, then exchanges of partitions that improve rack locality or stickiness.

Java's sticky algorithm revokes a claim that does not match its member's rack. So a partition without a member on its
racks moves in every rebalance. If the members on its racks have no room, Java does not revise their partitions.
`rack-aware` exchanges two partitions, or moves a partition to a member with one partition fewer. Each step lowers the
number of rack mismatches or lost claims, and raises neither. Sizes stay as even as in `sticky`.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from assignors.model import Assignment, ClusterMetadata, GroupSubscription
from assignors.sticky import Shared, StickyAssignor, share
from assignors.sticky_uniform import RackView
from assignors.wire import decode_sticky_user_data

_MAX_STEPS = 300_000
"""The limit on the number of examined exchanges, so that they take a fraction of a second."""


class RackAwareAssignor(StickyAssignor):
    """Like `sticky`, but exchange partitions for fewer rack mismatches or more kept partitions."""

    name: ClassVar[str] = "rack-aware"

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign as `sticky` does, with and without racks, improve both results, and return the better result."""
        claims = {member: decode_sticky_user_data(said.user_data) for member, said in group.items()}
        shared = share(cluster, group, claims)
        if shared.racks is None:
            return shared.assignments()
        improve_racks(shared)
        # If racks are ignored at first, every claim that balance allows is kept, so fewer partitions move. This result
        # is used if it is at least as good in balance, racks and claims.
        calm = share(cluster, group, claims, heed_racks=False)
        improve_racks(calm)
        better = all(ours <= theirs for ours, theirs in zip(_cost(calm), _cost(shared), strict=True))
        return (calm if better else shared).assignments()


def improve_racks(shared: Shared) -> None:
    """Exchange partitions until no single exchange improves the assignment; sizes stay as even as they are."""
    if shared.racks is not None:
        _Exchange(shared, shared.racks).run()


def _cost(shared: Shared) -> tuple[int, int, int]:
    """Return the sum of squared sizes, and the numbers of rack mismatches and of revoked claims."""
    racks = shared.racks
    return (
        sum(len(given) ** 2 for given in shared.given),
        sum(racks.mismatch(place, g) for place, given in enumerate(shared.given) for g in given) if racks else 0,
        len(shared.revoked),
    )


class _Exchange:
    """The assignment while partitions are exchanged.

    An exchange is accepted if it gives fewer rack mismatches or more kept claims, and makes neither worse. With
    different subscriptions the result must stay balanced: no owner has two partitions more than another subscriber.
    """

    def __init__(self, shared: Shared, racks: RackView) -> None:
        self._shared = shared
        self._racks = racks
        self._home = {g: place for place, claimed in enumerate(shared.claims.accepted) for g in claimed}
        self._owner = {g: place for place, given in enumerate(shared.given) for g in given}
        self._held = [dict.fromkeys(given) for given in shared.given]
        self._readers = [frozenset(places) for places in shared.readers]
        self._topic = {topic: place for place, topic in enumerate(shared.index.topics)}
        self._steps = _MAX_STEPS
        # Compute the limits once, because sizes change only in uniform groups, where any exchange keeps balance.
        sizes = [len(given) for given in shared.given]
        self._max_held = [min((sizes[place] for place in places), default=0) + 1 for places in shared.readers]

    def run(self) -> None:
        """Try to relocate each partition with a rack mismatch or a lost claim, until nothing improves further."""
        changed = True
        while changed and self._steps > 0:
            changed = False
            for partition in [g for g in sorted(self._owner) if self._unhappy(g)]:
                if self._steps > 0 and self._unhappy(partition):
                    changed |= self._relocate(partition)
        self._shared.given[:] = [list(held) for held in self._held]
        self._shared.revoked.clear()
        self._shared.revoked.update(g for g, home in self._home.items() if self._owner[g] != home)

    def _unhappy(self, partition: int) -> bool:
        place = self._owner[partition]
        return self._racks.mismatch(place, partition) or self._home.get(partition, place) != place

    def _relocate(self, partition: int) -> bool:
        """Move the partition to the member that improves the result most; return whether it was moved."""
        source = self._owner[partition]
        best: tuple[tuple[int, int], int, int | None] | None = None
        for target in self._places(partition):
            for back in self._exchanges(source, target):
                self._steps -= 1
                gain = self._gain(partition, source, target)
                if back is not None:
                    other = self._gain(back, target, source)
                    gain = (gain[0] + other[0], gain[1] + other[1])
                if min(gain) >= 0 and max(gain) > 0 and (best is None or gain > best[0]):
                    best = (gain, target, back)
                    if min(gain) > 0 or gain[0] > 1:
                        break
        if best is None:
            return False
        _, target, back = best
        self._move(partition, target)
        if back is not None:
            self._move(back, source)
        return True

    def _places(self, partition: int) -> Iterator[int]:
        """Yield the members that the partition could move to: the member that claims it, then members on its racks."""
        source, home = self._owner[partition], self._home.get(partition)
        topic = self._topic_of(partition)
        readers = self._readers[topic]
        max_held = len(self._owner) if self._shared.uniform else self._max_held[topic]
        if home is not None and home != source and home in readers and len(self._held[home]) <= max_held:
            yield home
        for place in sorted(readers):
            if self._steps <= 0:
                return
            self._steps -= 1
            if place in (source, home) or self._racks.mismatch(place, partition) or len(self._held[place]) > max_held:
                continue
            yield place

    def _exchanges(self, source: int, target: int) -> Iterator[int | None]:
        """Yield the partitions that the target can give back; first None (nothing) if the target has fewer."""
        uniform = self._shared.uniform
        if uniform and len(self._held[target]) < len(self._held[source]):
            yield None
        for back in list(self._held[target]):
            if self._steps <= 0:
                return
            topic = self._topic_of(back)
            if source in self._readers[topic] and (uniform or len(self._held[source]) <= self._max_held[topic]):
                yield back

    def _topic_of(self, partition: int) -> int:
        return self._topic[self._shared.index.topic(partition)]

    def _gain(self, partition: int, source: int, target: int) -> tuple[int, int]:
        """Return the gain of a move in rack matches and in kept claims, each 1, 0 or -1."""
        home = self._home.get(partition, -1)
        racks = self._racks.mismatch(source, partition) - self._racks.mismatch(target, partition)
        return racks, (home == target) - (home == source)

    def _move(self, partition: int, target: int) -> None:
        del self._held[self._owner[partition]][partition]
        self._held[target][partition] = None
        self._owner[partition] = target
