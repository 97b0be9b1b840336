"""Cache of topic ids and partition counts: which topics of a stream's offset were deleted, or created again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.model.topic_identity import differ
from kafka_source.model.topic_selection import Topic


class TopicIds:
    """What is known of topics, looked up again by `lost` when it is old, or when somebody has reason to doubt it.

    Nothing else looks again: a micro-batch that begins where an old topic ended must not get the id of the new one.

    Args:
        cluster: To ask.
        max_age_ms: How old an answer may be.
    """

    def __init__(self, cluster: Cluster, max_age_ms: int) -> None:
        self._cluster = cluster
        self._max_age = max_age_ms / 1000
        self._known: dict[str, Topic | None] = {}
        self._looked_at = float("-inf")

    def doubt(self) -> None:
        """Something has happened to topics: look again when asked next."""
        self._known = {}

    def now(self, names: Iterable[str]) -> Mapping[str, Topic | None]:
        """These topics as they are; None for one that does not exist."""
        wanted = set(names)
        if unknown := wanted - self._known.keys():
            self._known |= self._cluster.topics(unknown)
        return {name: self._known[name] for name in wanted}

    def existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that exist, sorted."""
        partitions = sorted(partitions)
        self.now(tp.topic for tp in partitions)
        if unknown := {tp.topic for tp in partitions if not self._exists(tp)}:
            self._known |= {
                name: topic for name, topic in self._cluster.topics(unknown).items() if self._fits(name, topic)
            }
        return [tp for tp in partitions if self._exists(tp)]

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._known[tp.topic]
        return topic is not None and tp.partition < topic.partitions

    def _fits(self, name: str, now: Topic | None) -> bool:
        """Whether this may be the topic that is known, which has grown or come into being."""
        before = self._known[name]
        return before is None or (now is not None and not differ(before.id, now.id))

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of those that have one."""
        return {name: topic.id for name, topic in self.now(names).items() if topic is not None and topic.id is not None}

    def lost(self, offset: StreamOffset) -> dict[str, Topic | None]:
        """The topics of an offset that are gone (None) or were created anew, as they are now."""
        if time.monotonic() - self._looked_at > self._max_age:
            self.doubt()
            self._looked_at = time.monotonic()
        topics = self.now(tp.topic for tp in offset.partitions)
        return {
            name: topic for name, topic in topics.items() if topic is None or differ(offset.topics.get(name), topic.id)
        }
