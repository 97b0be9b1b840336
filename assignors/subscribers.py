"""Who subscribes to what, worked out once for members that subscribe alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from assignors.model import GroupSubscription


def alike(group: GroupSubscription, members: Sequence[str]) -> dict[frozenset[str], list[int]]:
    """The members by what they subscribe to."""
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
    """The subscribers of each topic, ascending; equal ones are one object."""
    kinds = list(subscriptions.items())
    merged: dict[tuple[int, ...], Sequence[int]] = {}
    readers: dict[str, Sequence[int]] = {}
    for topic in topics:
        key = tuple(kind for kind, (subscribed, _) in enumerate(kinds) if topic in subscribed)
        if key not in merged:
            merged[key] = sorted(place for kind in key for place in kinds[kind][1])
        readers[topic] = merged[key]
    return readers
