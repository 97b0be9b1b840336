"""What the query's group has committed, as far as this driver committed it or looked it up."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from assignors.model import TopicPartition


class KnownOffsets:
    """The group's committed offsets that the driver knows, by partition.

    It spares commits that change nothing. It also knows the topics that were created again: their next commit may be
    lower than what the group has.
    """

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        self._recreated: set[str] = set()

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._offsets

    def missing(self, finished: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of `finished` that the group does not have, as far as known."""
        return {tp: offset for tp, offset in finished.items() if self._offsets.get(tp) != offset}

    def comparable(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose committed offset may be compared with the query's: not those created again."""
        return sorted(tp for tp in partitions if tp.topic not in self._recreated)

    def learn(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note what the group has, or what counts as if it had it."""
        self._offsets.update(offsets)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note what was committed; from now on the topics' offsets are comparable again."""
        self.learn(offsets)
        self._recreated -= {tp.topic for tp in offsets}

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget the offsets of topics which were deleted or created again."""
        self._recreated |= set(topics)
        self.forget([tp for tp in self._offsets if tp.topic in self._recreated])

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the offsets of partitions whose group was rewound."""
        for tp in partitions:
            self._offsets.pop(tp, None)
