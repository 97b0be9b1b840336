"""The topics of a stream that were deleted or created again, and its partitions without a leader.

A topic that was deleted and created again has the same name and another id (KIP-516). Offsets of the deleted topic are
invalid in the new topic, so the stream reads the new topic from its first record.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from assignors.model import TopicPartition
from kafka_source.cluster.topic_ids import TopicIds
from kafka_source.errors import RetriableError
from kafka_source.model.identity import is_recreated, lost_topic
from kafka_source.model.partition_runs import format_partitions
from kafka_source.model.stream_offset import Span, StreamOffset
from kafka_source.model.topic_selection import Topic

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedStart:
    """The start of a micro-batch after its topics were compared with the topics of the cluster.

    Attributes:
        start: The start offset without lost topics.
        newly_lost: The topics whose loss no earlier check has reported. These topics' offsets are invalid.
    """

    start: StreamOffset
    newly_lost: frozenset[str] = frozenset()


class TopicTracker:
    """Compare the topics of a stream's offsets with the topics of the cluster.

    A topic that was deleted, and perhaps created again, counts as lost until a micro-batch starts with the new id.

    Args:
        cache: The topics of the cluster.
        fail_on_data_loss: Raise an error for a lost topic; if false, log a warning.
    """

    def __init__(self, cache: TopicIds, *, fail_on_data_loss: bool) -> None:
        self._cache = cache
        self._fail_on_data_loss = fail_on_data_loss
        # Each lost topic as it was described when the loss was reported; None: deleted.
        self._lost: dict[str, Topic | None] = {}
        # The positions of a query that has no micro-batch yet, so that its checkpoint has neither positions nor ids.
        self._unread = StreamOffset()

    def note_unread(self, starts: Mapping[TopicPartition, int]) -> None:
        """Record the topics of a query that has no micro-batch yet, with the positions at which the query starts."""
        names = {tp.topic for tp in starts} - self._unread.topics.keys()
        if names:
            spans = {tp: Span(start, start, -1) for tp, start in starts.items() if tp.topic in names}
            self._unread = replace(
                self._unread,
                partitions={**self._unread.partitions, **spans},
                topics={**self._unread.topics, **self.ids(names)},
            )

    @property
    def lost_topics(self) -> frozenset[str]:
        """The names of the topics that are lost now."""
        return frozenset(self._lost)

    def refresh(self) -> None:
        """Look topics up again at the next check, because topics have changed."""
        self._cache.invalidate()

    def are_replaced(self, names: Collection[str]) -> bool:
        """Check whether one of these topics was deleted, or created again, since the last check."""
        before = self.ids(names)
        self.refresh()
        now = self._cache.describe(names)
        return any(topic is None or is_recreated(before.get(name), topic.id) for name, topic in now.items())

    def existing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that exist, sorted."""
        return self._cache.existing(partitions)

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of the topics that have an id."""
        return self._cache.ids(names)

    def check(self, start: StreamOffset, cluster_id: str | None) -> CheckedStart:
        """Remove lost topics from the start offset of a micro-batch.

        Args:
            start: The start offset, from the checkpoint or from the last batch.
            cluster_id: The id of the cluster that answers; None: unknown.

        Raises:
            DataLossError: A topic was lost, and `failOnDataLoss` is set.
        """
        if (here := start.in_cluster(cluster_id)) is not start:
            start = here
            self.refresh()
        self._cache.invalidate_if_old()
        known = start if start.partitions else self._unread
        lost = self._lost_since(known)
        still_lost = {name: topic for name, topic in self._lost.items() if name in lost or name not in known.topics}
        newly_lost = {n: topic for n, topic in lost.items() if n not in still_lost or still_lost[n] != topic}
        for name, topic in sorted(newly_lost.items()):
            error = lost_topic(known, name, topic)
            if self._fail_on_data_loss:
                raise error
            log.warning("%s (failOnDataLoss is false: the query continues)", error)
        self._lost = still_lost | newly_lost
        return CheckedStart(start.without(lost) if lost else start, frozenset(newly_lost))

    def _lost_since(self, start: StreamOffset) -> Mapping[str, Topic | None]:
        """Return the lost topics of `start`, each as it is described now."""
        topics = self._cache.describe(tp.topic for tp in start.partitions)
        return {name: topic for name, topic in topics.items() if _is_lost(start, name, topic)}


class PartitionsWithoutLeader:
    """The partitions that have no leader; a micro-batch leaves them out and reads the other partitions.

    Args:
        seconds: The time for which a partition may have no leader (`coordinator.timeout.ms`).
        clock: The time in seconds; only differences count.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: dict[TopicPartition, float] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions without a leader at the last check."""
        return frozenset(self._since)

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        """Check how long these partitions have had no leader.

        Raises:
            RetriableError: A partition has had no leader for too long. After a restart, the full time applies again.
        """
        now = self._clock()
        overdue = sorted(tp for tp in partitions if now - self._since.get(tp, now) > self._seconds)
        if overdue:
            raise RetriableError(
                f"No broker has led {format_partitions(overdue)} for {self._seconds:g} s (coordinator.timeout.ms), "
                "so the query ends. Start a broker that has these partitions, then start the query again: it continues "
                "where it was."
            )

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these partitions have no leader."""
        if added := sorted(set(partitions) - self._since.keys()):
            log.warning(
                "no broker leads %s: waiting for a leader; the query ends after %g s (coordinator.timeout.ms)",
                format_partitions(added),
                self._seconds,
            )
        now = self._clock()
        self._since = {**dict.fromkeys(partitions, now), **self._since}

    def update(self, without_leader: Callable[[Collection[TopicPartition]], Collection[TopicPartition]]) -> None:
        """Check whether the partitions have a leader again.

        Args:
            without_leader: Returns the partitions without a leader; see `Cluster.without_leader`.
        """
        if not self._since:
            return
        still = without_leader(self.partitions)
        if back := sorted(self._since.keys() - set(still)):
            log.info("a broker leads %s again", format_partitions(back))
        self._since = {tp: self._since[tp] for tp in still}


def _is_lost(offset: StreamOffset, name: str, current: Topic | None) -> bool:
    return current is None or is_recreated(offset.topics.get(name), current.id)
