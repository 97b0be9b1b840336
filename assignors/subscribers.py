"""Subscribers by topic, computed once for all members that subscribe to the same topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from assignors.model import GroupSubscription


def alike(group: GroupSubscription, members: Sequence[str]) -> dict[frozenset[str], list[int]]:
    """Return the places of the members, grouped by the set of topics they subscribe to.

    Args:
        group: The subscriptions by member id.
        members: The member ids; a member's place is its index here.
    """
    listed: dict[tuple[str, ...], list[int]] = {}
    for place, member in enumerate(members):
        listed.setdefault(tuple(group[member].topics), []).append(place)
    merged: dict[frozenset[str], list[int]] = {}
    for topics, places in listed.items():
        merged.setdefault(frozenset(topics), []).extend(places)
    return merged


def readers_by_topic(
    subscriptions: Mapping[frozenset[str], Sequence[int]], topics: Iterable[str]
) -> dict[str, Sequence[int]]:
    """Return the places of each topic's subscribers, ascending; topics with equal subscribers share one object."""
    kinds = list(subscriptions.items())
    merged: dict[tuple[int, ...], Sequence[int]] = {}
    readers: dict[str, Sequence[int]] = {}
    for topic in topics:
        key = tuple(kind for kind, (subscribed, _) in enumerate(kinds) if topic in subscribed)
        if key not in merged:
            merged[key] = sorted(place for kind in key for place in kinds[kind][1])
        readers[topic] = merged[key]
    return readers
