"""The partitions that members claim to own, made consistent before anything is assigned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assignors.index import PartitionIndex
from assignors.wire import StickyUserData


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of all members on partitions that exist, by place (the member's index in the sorted member ids).

    Attributes:
        stated: The partitions each member claims, each partition once.
        generations: The generation of each member's claim; -1 if unknown.
        accepted: The partitions each member may keep. If several members claim a partition, only the claim of the
            newest generation is accepted.
        contested: Partitions that several members claim in the same newest generation; no member may keep them.
    """

    stated: Sequence[list[int]]
    generations: Sequence[int]
    accepted: Sequence[list[int]]
    contested: frozenset[int]

    def outdated(self) -> dict[int, int]:
        """Return the last previous owner of each partition that is claimed in an older generation.

        A generation is older if it is below the newest one in the group. If several members claim the partition in
        older generations, the member with the highest of those is returned.
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
        """Return, for each of these partitions, the members that claim it in the newest generation that claims it."""
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
    """Drop claims on partitions that do not exist, and decide between claims that contradict each other."""
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
