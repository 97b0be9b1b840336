"""A set of members that returns its least loaded member quickly, while loads change."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush, heapreplace


class Pool:
    """Candidate members for a set of partitions, in a heap by load.

    Members are given by place, their index in the sorted list of member ids. The caller changes the loads; the heap is
    repaired lazily, when the least loaded member is asked for.

    Attributes:
        places: The members, ascending.
        members: The same members as a set.
    """

    __slots__ = ("_heap", "_judged", "_loads", "_lowered", "_seen", "members", "places")

    def __init__(self, places: Sequence[int], loads: Sequence[float], lowered: Sequence[int]) -> None:
        """Share `loads` and `lowered` with the caller.

        Args:
            places: The members of this pool, ascending.
            loads: The load of every member of the group, by place; the caller updates it.
            lowered: The members whose load was lowered, in order; the caller appends to it. Without this list the heap
                would not notice that a member deep inside it has become the least loaded one.
        """
        self.places = places
        self.members = frozenset(places)
        self._loads = loads
        self._lowered = lowered
        self._seen = len(lowered)
        self._heap: list[tuple[float, int]] = []
        self._judged = (-1, False)

    def least(self) -> int:
        """Return the member with the lowest load; of equal ones the one with the lowest place."""
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
        """Return the member with the lowest load that is not excluded, or None if all are."""
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
        """Return whether the pool is balanced: no member's load is higher than another's by two or more."""
        if self._judged[0] != len(self._lowered):
            held = list(map(self._loads.__getitem__, self.places))
            self._judged = (len(self._lowered), max(held) < min(held) + 2)
        return self._judged[1]
