"""Partitions as consecutive integers, so that the algorithms work on integers and not on objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, gt

from assignors.model import ClusterMetadata, GroupSubscription, TopicPartition, TopicPartitions


def known_topics(cluster: ClusterMetadata, group: GroupSubscription) -> dict[str, int]:
    """Return the partition counts of the subscribed topics, without topics that have no partitions."""
    wanted: set[str] = set().union(*(subscription.topics for subscription in group.values()))
    return {topic: count for topic in wanted if (count := cluster.partitions.get(topic, 0)) > 0}


class PartitionIndex:
    """Numbers the partitions of topics in a given order: topic by topic, 0 to `size` - 1.

    Attributes:
        topics: The topics in order.
        start: The integer of each topic's partition 0.
        counts: The number of partitions of each topic.
        size: The number of partitions.
    """

    __slots__ = ("_last", "_numbers", "_topics", "counts", "size", "start", "topics")

    def __init__(self, topics: Sequence[str], counts: Mapping[str, int]) -> None:
        self.topics = topics
        self.counts = {topic: counts[topic] for topic in topics}
        self.start: dict[str, int] = {}
        self._topics: list[str] = []
        self._numbers: list[int] = []
        numbers = list(range(max(self.counts.values(), default=0)))
        for topic, count in self.counts.items():
            self.start[topic] = len(self._topics)
            self._topics += [topic] * count
            self._numbers += numbers if count == len(numbers) else numbers[:count]
        self.size = len(self._topics)
        # Members often own partitions of the same topics, so the starts and counts of the last call are kept.
        self._last: tuple[list[str], list[int], list[int]] = ([], [], [])

    def integers(self, partitions: Sequence[TopicPartition]) -> list[int]:
        """Return the integers of those partitions that exist, in the given order."""
        columns = TopicPartitions.of(partitions)
        topics, numbers = columns.topics, columns.numbers
        if not numbers:
            return []
        if topics != self._last[0] and all(map(self.counts.__contains__, topics)):
            self._last = (
                topics,
                list(map(self.start.__getitem__, topics)),
                list(map(self.counts.__getitem__, topics)),
            )
        if topics == self._last[0] and min(numbers) >= 0 and all(map(gt, self._last[2], numbers)):
            return list(map(add, self._last[1], numbers))
        start, counts = self.start, self.counts
        return [
            start[topic] + number
            for topic, number in zip(topics, numbers, strict=True)
            if topic in counts and 0 <= number < counts[topic]
        ]

    def partitions(self, integers: Iterable[int]) -> TopicPartitions:
        """Return the partitions with these integers."""
        found = integers if isinstance(integers, (list, range)) else list(integers)
        if isinstance(found, range) and found.start >= 0:
            piece = slice(found.start, found.stop, found.step)
            return TopicPartitions(self._topics[piece], self._numbers[piece])
        return TopicPartitions(list(map(self._topics.__getitem__, found)), list(map(self._numbers.__getitem__, found)))

    def number(self, integer: int) -> int:
        """Return the partition number of the partition with this integer."""
        return self._numbers[integer]

    def topic(self, integer: int) -> str:
        """Return the topic of the partition with this integer."""
        return self._topics[integer]
