"""`roundrobin`: assigns all partitions to members in turn (`RoundRobinAssignor` in Java)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import ClassVar

from assignors.index import known_topics
from assignors.interface import Assignor
from assignors.model import Assignment, ClusterMetadata, GroupSubscription, TopicPartitions
from assignors.ordering import sorted_names, static_members_first
from assignors.subscribers import alike, readers_by_topic


class RoundRobinAssignor(Assignor):
    """Go through all partitions, sorted by topic and number, and give each to the next member that subscribes to it.

    The result is balanced if all members subscribe to the same topics, else it can be very uneven. Racks are ignored.
    """

    name: ClassVar[str] = "roundrobin"

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign all partitions in round-robin order; members that do not subscribe to a topic are skipped."""
        counts = known_topics(cluster, group)
        circle = static_members_first(group)
        readers = readers_by_topic(alike(group, circle), counts)
        given = [TopicPartitions([], []) for _ in circle]
        at = 0
        for topic in sorted_names(counts):
            places, count = readers[topic], counts[topic]
            first = bisect_left(places, at) % len(places)
            for step in range(min(count, len(places))):
                numbers = range(step, count, len(places))
                partitions = given[places[(first + step) % len(places)]]
                partitions.topics.extend([topic] * len(numbers))
                partitions.numbers.extend(numbers)
            at = (places[(first + count - 1) % len(places)] + 1) % len(circle)
        return {member: Assignment(partitions) for member, partitions in zip(circle, given, strict=True)}
