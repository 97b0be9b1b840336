"""Sticky assignment for members that all subscribe to the same topics (Java's constrained algorithm).

Every member gets floor or ceil of partitions / members, and no more partitions move than these sizes require. Without
racks this takes a few passes over the partitions, because one slice per member has many rounds of round-robin.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from assignors.index import PartitionIndex


@dataclass(frozen=True, slots=True)
class RackView:
    """The racks of members, by place (index in the sorted member ids), and of partitions, by integer."""

    members: Sequence[str | None]
    partitions: Sequence[frozenset[str]]

    def mismatch(self, place: int, partition: int) -> bool:
        """Return whether the member has a rack, but the partition has no replica on this rack."""
        rack = self.members[place]
        return rack is not None and rack not in self.partitions[partition]


def assign_uniform(
    index: PartitionIndex, claims: Sequence[Sequence[int]], racks: RackView | None
) -> tuple[list[Sequence[int]], set[int]]:
    """Assign all partitions of `index` to `len(claims)` members.

    Args:
        index: The partitions, by topic and number.
        claims: The partitions that each member may keep; no partition twice.
        racks: None if racks make no difference.

    Returns:
        The partitions of each member, and the claimed partitions that were revoked from their members.
    """
    min_size, extra = divmod(index.size, len(claims))
    given: list[list[int]] = []
    revoked: set[int] = set()
    below: list[int] = []
    level: list[int] = []
    for place, claimed in enumerate(claims):
        owned = list(claimed)
        if racks is not None and racks.members[place] is not None:
            owned = [partition for partition in claimed if not racks.mismatch(place, partition)]
            revoked.update(claimed if len(owned) < len(claimed) else ())
        keep = min_size
        if len(owned) < min_size:
            below.append(place)
        elif len(owned) > min_size and extra > 0:
            extra -= 1
            keep += 1
        else:
            level.append(place)
        if len(owned) > keep:
            owned.sort(key=lambda partition: (index.number(partition), partition))
            revoked.update(owned[keep:])
            del owned[keep:]
        given.append(owned)
    for owned in given if revoked else ():
        revoked.difference_update(owned)
    left = _complement(index.size, given)
    if racks is not None:
        left, extra = _match_racks(left, racks, given, below, level, min_size, extra)
    return _deal(left, given, below, level, min_size, extra), revoked


def _complement(size: int, given: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return the partitions that are not assigned yet, ascending."""
    if not any(given):
        return range(size)
    free = bytearray(b"\x01") * size
    for owned in given:
        for partition in owned:
            free[partition] = 0
    return list(compress(range(size), free))


def _deal(
    left: Sequence[int], owned: list[list[int]], below: Sequence[int], level: list[int], min_size: int, extra: int
) -> list[Sequence[int]]:
    """Assign the partitions that are left.

    Members with fewer than `min_size` partitions take them round-robin. The last `extra` partitions go to members with
    exactly `min_size`, one each. One slice of `left` per member has all rounds until the next member is full.
    """
    given: list[Sequence[int]] = list(owned)
    at = 0
    waiting = list(below)
    while waiting:
        needs = [min_size - len(given[place]) for place in waiting]
        circuits = min(needs)
        stop = at + circuits * len(waiting)
        for offset, place in enumerate(waiting):
            piece = left[at + offset : stop : len(waiting)]
            given[place] = [*given[place], *piece] if given[place] else piece
        at = stop
        level += [place for place, need in zip(waiting, needs, strict=True) if need == circuits]
        waiting = [place for place, need in zip(waiting, needs, strict=True) if need > circuits]
    for place, partition in zip(level[:extra], left[at:], strict=True):
        given[place] = [*given[place], partition]
    return given


def _match_racks(
    left: Sequence[int],
    racks: RackView,
    given: list[list[int]],
    below: list[int],
    level: list[int],
    min_size: int,
    extra: int,
) -> tuple[list[int], int]:
    """Assign partitions to members on their racks, the partitions with the fewest such members first.

    Members on a partition's racks take it round-robin while they have fewer than `min_size` partitions. Otherwise,
    while `extra` is above 0, the first member with exactly `min_size` takes it. Updates `given`, `below` and `level`.

    Returns:
        The partitions that match no member, and the remaining `extra`.
    """
    on_rack: dict[str, int] = {}
    for rack in racks.members:
        if rack is not None:
            on_rack[rack] = on_rack.get(rack, 0) + 1
    reach = {here: sum(on_rack.get(rack, 0) for rack in here) for here in set(racks.partitions)}
    circle = _places_by_rack(racks, below, range(len(below)))
    queue = _places_by_rack(racks, level, range(len(level)))
    alive = dict.fromkeys(below)
    at_least = dict.fromkeys(level)
    entered, pointer = len(level), 0
    order, line = list(below), list(level)
    rest: list[int] = []
    for partition in sorted(left, key=lambda partition: reach[racks.partitions[partition]]):
        here = racks.partitions[partition]
        spot = _next(circle, here, pointer, len(order))
        if spot is not None:
            place = order[spot]
            given[place].append(partition)
            pointer = spot + 1
            if len(given[place]) >= min_size:
                del alive[place]
                _drop(circle, racks.members[place], spot)
                if extra > 0:
                    at_least[place] = None
                    line.append(place)
                    queue.setdefault(racks.members[place] or "", []).append(entered)
                    entered += 1
            continue
        spot = _next(queue, here, 0, len(line)) if extra > 0 else None
        if spot is None:
            rest.append(partition)
            continue
        place = line[spot]
        given[place].append(partition)
        extra -= 1
        del at_least[place]
        _drop(queue, racks.members[place], spot)
    below[:] = alive
    level[:] = at_least
    return rest, extra


def _places_by_rack(racks: RackView, places: Sequence[int], spots: Sequence[int]) -> dict[str, list[int]]:
    """Return the spots (positions) of the members on each rack, ascending; members without a rack are left out."""
    found: dict[str, list[int]] = {}
    for place, spot in zip(places, spots, strict=True):
        rack = racks.members[place]
        if rack is not None:
            found.setdefault(rack, []).append(spot)
    return found


def _next(spots: dict[str, list[int]], here: frozenset[str], pointer: int, size: int) -> int | None:
    """Return the next spot on one of the racks, from the pointer to the end, then from 0 on; None: no spot."""
    best: int | None = None
    for rack in here:
        on_rack = spots.get(rack)
        if on_rack:
            spot = on_rack[bisect_left(on_rack, pointer) % len(on_rack)]
            if best is None or (spot - pointer) % size < (best - pointer) % size:
                best = spot
    return best


def _drop(spots: dict[str, list[int]], rack: str | None, spot: int) -> None:
    on_rack = spots[rack or ""]
    del on_rack[bisect_left(on_rack, spot)]
