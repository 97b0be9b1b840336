"""`rack-aware`: `sticky`, then exchanges that bring partitions onto racks or back home at nobody's cost.

Java's sticky algorithm revokes a claim off its member's rack even where nothing better is to be had, so that the
partition wanders with every rebalance; and it does not look back once a partition found no member on its racks. Here
two partitions change places, or one goes to a member with one fewer, as long as that makes partitions off their racks
fewer or kept claims more, and neither worse. Sizes stay as even as `sticky` makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from assignors.model import Assignment, ClusterMetadata, GroupSubscription
from assignors.sticky import Shared, StickyAssignor, share
from assignors.uniform import RackView
from assignors.wire import decode_sticky_user_data

_MOST_STEPS = 300_000
"""Exchanges looked at before we are content: a fraction of a second."""


class RackAwareAssignor(StickyAssignor):
    """As `sticky`, with fewer partitions off their members' racks and more of them kept, where there is a way."""

    name: ClassVar[str] = "rack-aware"

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """See `Assignor.assign`."""
        claims = {member: decode_sticky_user_data(said.user_data) for member, said in group.items()}
        shared = share(cluster, group, claims)
        if shared.racks is None:
            return shared.assignments()
        improve_racks(shared)
        # Keeping every claim and exchanging from there is calmer, where it is as good in every respect.
        calm = share(cluster, group, claims, heed_racks=False)
        improve_racks(calm)
        better = all(ours <= theirs for ours, theirs in zip(_cost(calm), _cost(shared), strict=True))
        return (calm if better else shared).assignments()


def improve_racks(shared: Shared) -> None:
    """Exchange partitions until no single exchange makes the answer better; sizes stay as even as they are."""
    if shared.racks is not None:
        _Exchange(shared, shared.racks).run()


def _cost(shared: Shared) -> tuple[int, int, int]:
    """Unevenness, partitions off their racks and claims not kept."""
    racks = shared.racks
    return (
        sum(len(given) ** 2 for given in shared.given),
        sum(racks.mismatch(place, g) for place, given in enumerate(shared.given) for g in given) if racks else 0,
        len(shared.revoked),
    )


class _Exchange:
    """The answer while partitions change places.

    Where subscriptions are mixed, a partition goes only where no subscriber of its topic has two fewer. An exchange is
    judged by how many partitions are off their racks before and after, and how many are kept.
    """

    def __init__(self, shared: Shared, racks: RackView) -> None:
        self._shared = shared
        self._racks = racks
        self._home = {g: place for place, claimed in enumerate(shared.claims.accepted) for g in claimed}
        self._owner = {g: place for place, given in enumerate(shared.given) for g in given}
        self._held = [dict.fromkeys(given) for given in shared.given]
        self._readers = [frozenset(places) for places in shared.readers]
        self._topic = {topic: place for place, topic in enumerate(shared.index.topics)}
        self._steps = _MOST_STEPS
        # Sizes change only in uniform groups, and there an exchange cannot unbalance anything.
        sizes = [len(given) for given in shared.given]
        self._most = [min((sizes[place] for place in places), default=0) + 1 for places in shared.readers]

    def run(self) -> None:
        """Look at every partition that is off its rack or away from home, until nothing helps any more."""
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
        """Move the partition where that gains the most, if it gains anything."""
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
        """Members to which the partition could go: home first, then those on its racks."""
        source, home = self._owner[partition], self._home.get(partition)
        topic = self._topic_of(partition)
        readers = self._readers[topic]
        most = len(self._owner) if self._shared.uniform else self._most[topic]
        if home is not None and home != source and home in readers and len(self._held[home]) <= most:
            yield home
        for place in sorted(readers):
            if self._steps <= 0:
                return
            self._steps -= 1
            if place in (source, home) or self._racks.mismatch(place, partition) or len(self._held[place]) > most:
                continue
            yield place

    def _exchanges(self, source: int, target: int) -> Iterator[int | None]:
        """What the target could give back: nothing if it has fewer, or one partition of a topic the source reads."""
        uniform = self._shared.uniform
        if uniform and len(self._held[target]) < len(self._held[source]):
            yield None
        for back in list(self._held[target]):
            if self._steps <= 0:
                return
            topic = self._topic_of(back)
            if source in self._readers[topic] and (uniform or len(self._held[source]) <= self._most[topic]):
                yield back

    def _topic_of(self, partition: int) -> int:
        return self._topic[self._shared.index.topic(partition)]

    def _gain(self, partition: int, source: int, target: int) -> tuple[int, int]:
        """How many fewer are off their racks, and how many more are kept, if the partition moves."""
        home = self._home.get(partition, -1)
        racks = self._racks.mismatch(source, partition) - self._racks.mismatch(target, partition)
        return racks, (home == target) - (home == source)

    def _move(self, partition: int, target: int) -> None:
        del self._held[self._owner[partition]][partition]
        self._held[target][partition] = None
        self._owner[partition] = target
