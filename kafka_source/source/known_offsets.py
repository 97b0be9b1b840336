"""What the query's group has committed, as far as this driver committed it or looked it up."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.model.commits import CommitOffset

# Brokers keep the offsets of a group without members for `offsets.retention.minutes` after each commit: seven days by
# default, one day before Kafka 2.0.
_REPEAT_SECONDS = 3600.0


class KnownOffsets:
    """The group's committed offsets that the driver knows, by partition.

    It spares commits that change nothing. It also knows the topics that were created again: their next commit may be
    lower than what the group has.

    Args:
        clock: The time in seconds; only differences count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._offsets: dict[TopicPartition, int] = {}
        self._since: dict[TopicPartition, float] = {}
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
        self._since.update(dict.fromkeys(offsets, self._clock()))

    def old(self) -> dict[TopicPartition, int]:
        """Return the offsets that were committed long ago, which a broker forgets if nobody commits them again."""
        oldest = self._clock() - _REPEAT_SECONDS
        return {tp: offset for tp, offset in self._offsets.items() if self._since[tp] <= oldest}

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


def not_below(
    starts: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommitOffset]
) -> dict[TopicPartition, int]:
    """Return the starts to which the group's offsets can be set back: those that it has not, or has reached."""
    return {tp: start for tp, start in starts.items() if tp not in committed or committed[tp].offset >= start}
