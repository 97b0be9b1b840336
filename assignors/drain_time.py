"""Give work to members of different speed so that the last one is done as early as possible, with few moves. Pure.

The work of a unit (a partition, or co-partitioned partitions that stay together) is a number of records, the speed of a
member is a number of records per second, and the time of a member is the work of its units divided by its speed. The
longest time is to be short: scheduling on uniform machines, where the longest-processing-time rule (LPT: the unit with
the most work first, each to the member that would be done with it first) stays below 2 - 1/m times the optimum for m
members that may have every unit, and below 4/3 - 1/(3m) times if all have the same speed (Gonzalez, Ibarra and Sahni
1977; Graham 1969). docs/design/balance.md has the proof for the rule as it is used here, with racks and idle units.

Three plans are made, and the best is taken:

    keep    all units that are held stay; only the others are placed
    shed    members whose time is too long give up units, as few as possible; these are placed with the others
    pack    units are placed in the order of their work; a unit stays while its holder's time is not too long

`keep` is taken unless its longest time is more than `WORTH` times that of the best plan.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from assignors.uniform import RackView

TOLERANCE = 0.05
"""By how much a member's time may be above the shortest possible one before it gives up units that it holds."""

BATCH_NOISE = 0.3
"""The relative error of what one micro-batch shows: those with equally many records differ by 30 % or so."""

AVERAGED_BATCHES = 30
"""The number of micro-batches of which a measure should be the mean at least."""

NOISE = 2 * BATCH_NOISE / math.sqrt(AVERAGED_BATCHES)
"""The relative error of a member's time, which only one measure in twenty exceeds: two standard deviations (11 %)."""

WORTH = (1 + TOLERANCE) * (1 + NOISE) / (1 - NOISE)
"""By how much the longest time must be above that of the best plan before a unit moves, as a factor (1.31).

After a rebalance the longest time is up to `1 + TOLERANCE` above the shortest possible one. Errors of `NOISE` can make
it look longer by `1 + NOISE`, and the best plan shorter by `1 - NOISE`. Only what exceeds all three has changed in
truth, so noise does not move a unit back and forth.
"""

IDLE = 0.01
"""A unit with less than this part of the mean work is idle. Idle units are given out by number, because members with
many of them would be busy when the units wake up."""


@dataclass(frozen=True)
class Workload:
    """The work of a group.

    Attributes:
        work: The work of each unit, in records, at least 0.
        speeds: The speed of each member, in records per second, above 0.
        readers: The members that may have each unit, ascending, at least one; units with the same readers share one
            object.
        holders: The member that holds each unit, one of its readers; -1: nobody.
        racks: The racks; None if they make no difference.
        least: The number of units that each member must have at least, if others can spare them.
        most: The number of units that each member may have at most, if others can take them.
    """

    work: Sequence[int]
    speeds: Sequence[float]
    readers: Sequence[Sequence[int]]
    holders: Sequence[int]
    racks: RackView | None = None
    least: Sequence[int] | None = None
    most: Sequence[int] | None = None

    @cached_property
    def order(self) -> Sequence[int]:
        """The units, those with the most work first."""
        return sorted(range(len(self.work)), key=lambda unit: (-self.work[unit], unit))

    @cached_property
    def bound(self) -> float:
        """A time that no assignment can beat: all work at the speed of all, and each unit at the highest speed."""
        by_readers: dict[int, list[int]] = {}
        for unit, places in enumerate(self.readers):
            by_readers.setdefault(id(places), []).append(unit)
        longest, everybody = 0.0, set[int]()
        for units in by_readers.values():
            places = self.readers[units[0]]
            everybody.update(places)
            fastest = max(self.speeds[place] for place in places)
            together = sum(sorted(self.speeds[place] for place in places))
            works = [self.work[unit] for unit in units]
            longest = max(longest, max(works) / fastest, sum(works) / together)
        return max(longest, sum(self.work) / sum(sorted(self.speeds[place] for place in everybody)) if everybody else 0)

    @cached_property
    def idle_below(self) -> float:
        """The work at and below which a unit is idle."""
        return IDLE * sum(self.work) / len(self.work) if self.work else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """An assignment of all units.

    Attributes:
        owners: The member of each unit.
        longest: The time of the member that is done last, in seconds.
        kept: The longest time if all units that are held had stayed, without any for members that hold nothing yet.
        worth: Whether units have moved because that makes the longest time shorter by a factor of more than `WORTH`.
    """

    owners: Sequence[int]
    longest: float
    kept: float
    worth: bool


def balance(load: Workload) -> Outcome:
    """Assign all units.

    A unit moves from its holder only if that shortens the longest time by a factor of more than `WORTH`, to a member
    that holds nothing yet, or to one that must have more units (`Workload.least`).
    """
    keep = _keep(load)
    kept = keep.longest
    plan, worth = keep, False
    if any(holder >= 0 for holder in load.holders):
        others = [_shed(load), _pack(load)]
        shortest = min(other.longest for other in others)
        worth = kept > WORTH * shortest
        if worth:
            good = [other for other in others if other.longest <= (1 + TOLERANCE) * shortest]
            plan = min(good, key=lambda other: (other.moves, other.strangers, other.longest))
        _serve_newcomers(plan)
    _fill_up(plan)
    return Outcome(plan.owners, plan.longest, kept, worth)


class _Plan:
    """An assignment while it is made.

    Attributes:
        owners: The member of each unit; -1: none yet.
        sums: The work of each member. Whole numbers, so that their order makes no difference.
        counts: The number of units of each member.
    """

    def __init__(self, load: Workload) -> None:
        self.load = load
        self.owners = [-1] * len(load.work)
        self.sums = [0] * len(load.speeds)
        self.counts = [0] * len(load.speeds)

    def seconds(self, place: int, more: int = 0) -> float:
        """Return the time of a member, with more work than it has."""
        return (self.sums[place] + more) / self.load.speeds[place]

    @property
    def longest(self) -> float:
        """The time of the member that is done last."""
        return max(map(self.seconds, range(len(self.sums))), default=0.0)

    @property
    def moves(self) -> int:
        """The number of units that are not with their holders."""
        return sum(holder not in (-1, owner) for holder, owner in zip(self.load.holders, self.owners, strict=True))

    @property
    def strangers(self) -> int:
        """The number of units without a replica on their member's rack."""
        return sum(self.strange(place, unit) for unit, place in enumerate(self.owners))

    def strange(self, place: int, unit: int) -> bool:
        """Return whether the member has a rack, and the unit no replica there."""
        return self.load.racks is not None and self.load.racks.mismatch(place, unit)

    def has_room(self, place: int) -> bool:
        """Return whether the member may have one more unit."""
        return self.load.most is None or self.counts[place] < self.load.most[place]

    def put(self, unit: int, place: int) -> None:
        """Give a unit, which nobody has, to a member."""
        self.owners[unit] = place
        self.sums[place] += self.load.work[unit]
        self.counts[place] += 1

    def take(self, unit: int) -> None:
        """Take a unit away from its member."""
        place = self.owners[unit]
        self.owners[unit] = -1
        self.sums[place] -= self.load.work[unit]
        self.counts[place] -= 1

    def units(self, place: int) -> list[int]:
        """Return the units of a member."""
        return [unit for unit, owner in enumerate(self.owners) if owner == place]

    def place(self, units: Sequence[int]) -> None:
        """Give units, in this order, each to the member that is done with it first.

        All members that would be done without making the longest time longer are equal, so the ones on the unit's racks
        come first, and idle units go to the member with the fewest units for its speed.
        """
        load = self.load
        longest = max(load.bound, self.longest)
        for unit in units:
            work, idle = load.work[unit], load.work[unit] <= load.idle_below
            places = [place for place in load.readers[unit] if self.has_room(place)] or load.readers[unit]
            times = [(self.sums[place] + work) / load.speeds[place] for place in places]
            longest = max(longest, min(times))
            _, _, best = min(
                (self.strange(place, unit), (self.counts[place] + 1) / load.speeds[place] if idle else time, place)
                for place, time in zip(places, times, strict=True)
                if time <= longest
            )
            self.put(unit, best)

    def give_back(self) -> None:
        """Return moved units to their holders, the smallest first, while the longest time stays as it is."""
        load, longest = self.load, self.longest
        returned = True
        while returned:
            returned = False
            for unit in reversed(load.order):
                holder = load.holders[unit]
                if holder < 0 or self.owners[unit] == holder or not self.has_room(holder):
                    continue
                if self.seconds(holder, load.work[unit]) <= longest:
                    self.take(unit)
                    self.put(unit, holder)
                    returned = True


def _keep(load: Workload) -> _Plan:
    plan = _Plan(load)
    _put_held(plan)
    plan.place([unit for unit in load.order if plan.owners[unit] < 0])
    return plan


def _put_held(plan: _Plan) -> None:
    for unit in plan.load.order:
        holder = plan.load.holders[unit]
        if holder >= 0 and plan.has_room(holder):
            plan.put(unit, holder)


def _shed(load: Workload) -> _Plan:
    plan = _Plan(load)
    _put_held(plan)
    held: list[list[int]] = [[] for _ in load.speeds]
    for unit in reversed(load.order):
        if plan.owners[unit] >= 0:
            held[plan.owners[unit]].append(unit)
    for place, units in enumerate(held):
        works = [load.work[unit] for unit in units]
        while units and (excess := plan.sums[place] - _allowed(load, place)) > 0:
            # The smallest unit that is enough by itself; else the largest one, and then further ones.
            at = min(bisect_left(works, excess), len(units) - 1)
            works.pop(at)
            plan.take(units.pop(at))
    plan.place([unit for unit in load.order if plan.owners[unit] < 0])
    plan.give_back()
    return plan


def _pack(load: Workload) -> _Plan:
    plan = _Plan(load)
    for unit in load.order:
        holder = load.holders[unit]
        stays = holder >= 0 and plan.has_room(holder)
        if stays and plan.sums[holder] + load.work[unit] <= _allowed(load, holder):
            plan.put(unit, holder)
        else:
            plan.place([unit])
    plan.give_back()
    return plan


def _allowed(load: Workload, place: int) -> float:
    """Return the work that a member may have without giving up units."""
    return (1 + TOLERANCE) * load.bound * load.speeds[place]


def _serve_newcomers(plan: _Plan) -> None:
    """Give members that held nothing a share of what others have.

    A new member is no noise, so a unit moves to it whenever the longer time of the two becomes clearly shorter.
    """
    load = plan.load
    holding = set(load.holders)
    waiting = {place for places in load.readers for place in places} - holding
    while waiting:
        newcomer = min(waiting, key=lambda place: (plan.seconds(place), place))
        unit = _worth_taking(plan, newcomer) if plan.has_room(newcomer) else None
        if unit is None:
            waiting.discard(newcomer)
        else:
            plan.take(unit)
            plan.put(unit, newcomer)


def _worth_taking(plan: _Plan, newcomer: int) -> int | None:
    """Return the unit whose move to the newcomer does most for the member that is done last; None: there is none."""
    load = plan.load
    for source in sorted(range(len(load.speeds)), key=lambda place: (-plan.seconds(place), place)):
        before = plan.seconds(source)
        if before <= (1 + TOLERANCE) * plan.seconds(newcomer):
            break
        found: list[tuple[float, int]] = []
        for unit in plan.units(source):
            after = max(plan.seconds(newcomer, load.work[unit]), plan.seconds(source, -load.work[unit]))
            if after * (1 + TOLERANCE) < before and newcomer in load.readers[unit]:
                found.append((after, unit))
        if found:
            return min(found)[1]
    return None


def _fill_up(plan: _Plan) -> None:
    """Give members that have too few units those with the least work, from the members that have the most units."""
    load = plan.load
    least = load.least or [0] * len(load.speeds)
    for place in range(len(least)):
        while plan.counts[place] < least[place]:
            spare = [
                (-plan.counts[owner], load.work[unit], unit)
                for unit, owner in enumerate(plan.owners)
                if plan.counts[owner] > max(least[owner], plan.counts[place] + 1) and place in load.readers[unit]
            ]
            if not spare:
                break
            unit = min(spare)[2]
            plan.take(unit)
            plan.put(unit, place)
