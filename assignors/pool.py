"""Members of which the least loaded is wanted again and again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace


class Pool:
    """Some members and their loads, which others change: a heap that is put right where it is looked at.

    Attributes:
        places: The members, ascending.
        members: The same as a set.
    """

    __slots__ = ("_heap", "_judged", "_loads", "_lowered", "_seen", "members", "places")

    def __init__(self, places: Sequence[int], loads: Sequence[float], lowered: Sequence[int]) -> None:
        """Loads of all members by place, and the growing list of members whose load has become lower."""
        self.places = places
        self.members = frozenset(places)
        self._loads = loads
        self._lowered = lowered
        self._seen = len(lowered)
        self._heap: list[tuple[float, int]] = []
        self._judged = (-1, False)

    def least(self) -> int:
        """The member with the lowest load, the first among equals."""
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

    def least_without(self, excluded: Collection[int]) -> int | None:
        """The member with the lowest load that is not excluded, if there is one."""
        aside: list[tuple[float, int]] = []
        found: int | None = None
        while found is None and self.places and (self._heap or not aside):
            place = self.least()
            if place in excluded:
                aside.append(heappop(self._heap))
            else:
                found = place
        for entry in aside:
            heappush(self._heap, entry)
        return found

    def level(self) -> bool:
        """Whether no member of the pool has a load of two more than another."""
        if self._judged[0] != len(self._lowered):
            held = list(map(self._loads.__getitem__, self.places))
            self._judged = (len(self._lowered), max(held) < min(held) + 2)
        return self._judged[1]
