"""A stream's cache of topic ids and partition counts, for `metadata.max.age.ms`."""

import time
from collections.abc import Callable, Iterable, Mapping

from assignors.model import TopicPartition
from kafka_source.model.identity import is_recreated
from kafka_source.model.topic_selection import Topic


class TopicIds:
    """Cache of topic descriptions.

    An old entry stays valid until `invalidate_if_old`, which a micro-batch calls once. So a batch that begins at an
    offset of a deleted topic does not get the id of the new topic.

    Args:
        lookup: Returns the description of topics by name, see `Cluster.topics`.
        max_age_ms: The age in ms after which `invalidate_if_old` drops the entries.
    """

    def __init__(self, lookup: Callable[[Iterable[str]], Mapping[str, Topic | None]], max_age_ms: int) -> None:
        self._lookup = lookup
        self._max_age = max_age_ms / 1000
        self._known: dict[str, Topic | None] = {}
        self._invalidated_at = float("-inf")

    def invalidate(self) -> None:
        """Drop all entries, so that the next call requests metadata."""
        self._known = {}

    def invalidate_if_old(self) -> None:
        """Drop all entries if this method last dropped them longer ago than the maximum age."""
        if time.monotonic() - self._invalidated_at > self._max_age:
            self.invalidate()
            self._invalidated_at = time.monotonic()

    def describe(self, names: Iterable[str]) -> Mapping[str, Topic | None]:
        """Return these topics; None for a topic that does not exist."""
        wanted = set(names)
        if unknown := wanted - self._known.keys():
            self._known |= self._lookup(unknown)
        return {name: self._known[name] for name in wanted}

    def existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the existing partitions, sorted; request metadata again for topics that seem to lack partitions."""
        partitions = sorted(partitions)
        self.describe(tp.topic for tp in partitions)
        if incomplete := {tp.topic for tp in partitions if not self._exists(tp)}:
            found = self._lookup(incomplete)
            self._known |= {name: topic for name, topic in found.items() if self._is_update(name, topic)}
        return [tp for tp in partitions if self._exists(tp)]

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of the topics that have an id."""
        topics = self.describe(names)
        return {name: topic.id for name, topic in topics.items() if topic is not None and topic.id is not None}

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._known[tp.topic]
        return topic is not None and tp.partition < topic.partitions

    def _is_update(self, name: str, current: Topic | None) -> bool:
        """Return whether `current` may replace the cached entry: there is no entry, or `current` is the same topic."""
        known = self._known[name]
        return known is None or (current is not None and not is_recreated(known.id, current.id))
