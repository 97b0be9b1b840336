"""The racks of partitions, and whether they can influence an assignment (KIP-881)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from assignors.model import ClusterMetadata

NO_RACKS: frozenset[str] = frozenset()


def partition_racks(cluster: ClusterMetadata, topic: str, count: int) -> list[frozenset[str]]:
    """Return the racks of partitions 0 to `count` - 1 of a topic; empty if unknown. Equal sets are one object."""
    known = cluster.racks.get(topic, ())
    seen: dict[tuple[str, ...], frozenset[str]] = {}
    found: list[frozenset[str]] = []
    for number in range(count):
        key = tuple(known[number]) if number < len(known) else ()
        racks = seen.get(key)
        if racks is None:
            racks = seen[key] = frozenset(rack for rack in key if rack)
        found.append(racks)
    return found


def racks_matter(members: Collection[str | None], partitions: Sequence[frozenset[str]]) -> bool:
    """Return whether rack-aware assignment could change the result (`useRackAwareAssignment` in Java).

    It can if a member's rack has a replica, and not every partition has replicas on all the racks.
    """
    wanted = {rack for rack in members if rack}
    if not wanted:
        return False
    distinct = set(partitions)
    offered = NO_RACKS.union(*distinct)
    return not wanted.isdisjoint(offered) and any(racks != offered for racks in distinct)
