"""Topics that are gone, or are others of the same name by now: offsets of a topic mean nothing in the one after it.

Only the topic's id tells them apart (KIP-516); brokers before Kafka 2.8 have none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster, Topic
from kafka_source.errors import DataLossError
from kafka_source.model.stream_offset import Range, StreamOffset


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


def lost_topic(offset: StreamOffset, name: str, now: Topic | None) -> DataLossError:
    """What is to be said of a topic that an offset knows and that is gone or another one by now."""
    tp, span = next((tp, span) for tp, span in sorted(offset.partitions.items()) if tp.topic == name)
    reason = "The topic is gone" if now is None else created_anew(now.id)
    return DataLossError(topic=name, partition=tp.partition, planned=span.end, reason=reason)


def only_of(ranges: Iterable[Range], ids: Mapping[str, str]) -> dict[str, str]:
    """The ids of the topics that are read, out of more."""
    return {name: ids[name] for name in {r.topic for r in ranges} & ids.keys()}


def created_anew(now: str | None) -> str:
    """How the records of a topic were lost whose id is another one by now."""
    return f"The topic was deleted and created anew: its id is {now} now"


def differ(before: str | None, now: str | None) -> bool:
    """Whether two ids are known to be those of different topics."""
    return before is not None and now is not None and before != now
