"""`weighted`: a sticky assignment in proportion to the members' weights, which `assignor.options` sets."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from assignors.index import PartitionIndex, Pool, alike, known_topics, readers_by_topic, resolve, sorted_names
from assignors.interface import AssignmentError, Assignor
from assignors.model import Assignment, ClusterMetadata, GroupSubscription
from assignors.wire import StickyUserData, decode_sticky_user_data, encode_sticky_user_data

_WEIGHT = struct.Struct(">i")


class WeightedAssignor(Assignor):
    """Assign partitions in proportion to weights: a member with twice the weight gets twice the partitions.

    A member's load is its number of partitions divided by its weight. If a partition of the result moved to another
    subscriber, the subscriber's load would be at least the owner's current load. If this balance allows, members keep
    their partitions.

    Args:
        weight: This member's capacity in any unit that the group agrees on, for example cores; at least 1. A member
            that reports no weight has weight 1.
    """

    name: ClassVar[str] = "weighted"

    def __init__(self, weight: int = 1) -> None:
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight < 2**31:
            raise ValueError(f"weight must be a whole number from 1 to 2147483647, got {weight!r}")
        self._weight = weight
        self._last = StickyUserData((), -1)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return the weight as int32, followed by this member's last assignment as `sticky` user data (V1)."""
        return _WEIGHT.pack(self._weight) + encode_sticky_user_data(*self._last)

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign in proportion to the weights that members report in their user data.

        Raises:
            AssignmentError: A member reports a weight below 1.
        """
        members = sorted_names(group)
        counts = known_topics(cluster, group)
        readers = readers_by_topic(alike(group, members), counts)
        index = PartitionIndex(sorted(sorted_names(counts), key=lambda topic: len(readers[topic])), counts)
        said = [_decode_user_data(member, group[member].user_data) for member in members]
        claims = resolve(index, [claim for _, claim in said])
        given = _share(index, [readers[topic] for topic in index.topics], claims.accepted, [w for w, _ in said])
        return {
            member: Assignment(index.partitions(partitions)) for member, partitions in zip(members, given, strict=True)
        }

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the assignment for the next `subscription_user_data`."""
        self._last = StickyUserData(assignment.partitions, generation)


def _decode_user_data(member: str, user_data: bytes | None) -> tuple[int, StickyUserData]:
    if user_data is None or len(user_data) < _WEIGHT.size:
        return 1, StickyUserData((), -1)
    weight = int(_WEIGHT.unpack_from(user_data)[0])
    if weight < 1:
        raise AssignmentError(f"member {member} reports weight {weight}; set a weight of at least 1 for it")
    return weight, decode_sticky_user_data(user_data[_WEIGHT.size :])


def _share(
    index: PartitionIndex, readers: Sequence[Sequence[int]], claims: Sequence[Sequence[int]], weights: Sequence[int]
) -> list[list[int]]:
    owner = [-1] * index.size
    sizes = [0] * len(weights)
    lowered: list[int] = []
    loads = [1 / weight for weight in weights]  # each member's load if it had one partition more
    pools: dict[int, Pool] = {}
    pool_of: list[Pool] = []
    for topic, places in zip(index.topics, readers, strict=True):
        pool_of += [pools.setdefault(id(places), Pool(places, loads, lowered))] * index.counts[topic]

    def put(partition: int, place: int) -> None:
        owner[partition] = place
        sizes[place] += 1
        loads[place] = (sizes[place] + 1) / weights[place]

    def assign_next(partition: int) -> None:
        place = owner[partition]
        sizes[place] -= 1
        loads[place] = (sizes[place] + 1) / weights[place]
        lowered.append(place)

    for place, claimed in enumerate(claims):
        for partition in claimed:
            if place in pool_of[partition].members:
                put(partition, place)
    fresh = [partition for partition in range(index.size) if owner[partition] < 0]
    for partition in fresh:
        put(partition, pool_of[partition].least_loaded())
    # Each move lowers the sum of sizes * (sizes + 1) / weight, so the loop terminates. New partitions move first,
    # because the move of a kept partition makes the result less sticky.
    for candidates in (fresh, range(index.size)):
        moved = True
        while moved:
            moved = False
            for partition in candidates:
                target = pool_of[partition].least_loaded()
                source = owner[partition]
                if sizes[source] * weights[target] > (sizes[target] + 1) * weights[source]:
                    assign_next(partition)
                    put(partition, target)
                    moved = True
    given: list[list[int]] = [[] for _ in weights]
    for partition, place in enumerate(owner):
        given[place].append(partition)
    return given
