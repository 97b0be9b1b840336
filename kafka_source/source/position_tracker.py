"""Track the position of a stream in each partition: the offset that it reads next.

The checkpoint, the group's committed offsets and the starting options each know positions. This module decides which of
them counts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options.kinds import TopicWord
from kafka_source.source import committed_start, sink_commit_replay, start_and_end
from kafka_source.source.partition_owner import OwnedPartitions, PartitionOwner
from kafka_source.source.read_task import Query
from kafka_source.source.rewind_marks import RewindMarks

log = logging.getLogger(__name__)


class PositionTracker:
    """Resolve the positions of the partitions that a stream owns.

    Args:
        query: The query.
        cluster: Where to look up offsets.
        owner: Knows the group's committed offsets.
        subscribed: The partitions of the subscription when the query started.
        marks: The rewinds of the group that the query has followed.
    """

    def __init__(
        self,
        query: Query,
        cluster: Cluster,
        owner: PartitionOwner,
        subscribed: Collection[TopicPartition],
        marks: RewindMarks,
    ) -> None:
        self._options = query.options
        self._cluster = cluster
        self._owner = owner
        self._marks = marks
        self._subscribed = frozenset(subscribed)
        self._sink_commits = query.options.commit == "sink"
        # The positions as resolved in `_generation`, and the start offset that they already include.
        self._positions: dict[TopicPartition, int] = {}
        self._generation: int | None = None
        # Partitions that start at `latest` because startingOffsets says so for their topic, which the checkpoint
        # does not know.
        self._start_at_latest: frozenset[TopicPartition] = frozenset()
        self._start: StreamOffset | None = None

    def is_resolved_in(self, generation: int) -> bool:
        """Return whether the positions were last resolved in this generation of the group."""
        return self._generation == generation

    def resolve(
        self,
        start: StreamOffset,
        owned: OwnedPartitions,
        partitions: Collection[TopicPartition],
        lost_topics: Collection[str],
    ) -> dict[TopicPartition, int]:
        """Return the position of each partition.

        Without a rebalance and a new partition these are the ends of the last batch. After one, the group's committed
        offsets count too, and a partition that is new to this query starts at its first offset or, when the query
        starts, where the options say.

        Args:
            start: The start offset of the micro-batch, without lost topics.
            owned: The partitions that the query owns.
            partitions: Those of them that exist.
            lost_topics: The topics whose committed offsets are those of a deleted topic.

        Raises:
            OptionError: The starting options do not name exactly the partitions of the subscription.
        """
        if start != self._start:
            self._positions.update(start.ends)
            self._start = start
        if not self.is_resolved_in(owned.generation) or any(tp not in self._positions for tp in partitions):
            continued = self._continued(start, owned, partitions, lost_topics)
            added = [tp for tp in partitions if tp not in continued]
            self._positions = continued | self._first(start, added, lost_topics)
            self._generation = owned.generation
        return {tp: self._positions[tp] for tp in partitions}

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget the positions in topics that were deleted or created again."""
        self._positions = {tp: position for tp, position in self._positions.items() if tp.topic not in topics}

    def move_into_log(
        self, starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the positions, those beyond the latest offset moved to an offset that the partition has.

        Positions before the first offset are left to the tasks, which find them without another request.

        Args:
            starts: The positions.
            latest: The latest offset of each partition; with read_committed the last stable offset.

        Raises:
            DataLossError: A position is beyond the end of its partition, and `failOnDataLoss` is set.
        """
        beyond = {tp: position for tp, position in starts.items() if position > latest[tp]}
        if not beyond:
            return dict(starts)
        moved = start_and_end.check_data_loss(self._cluster, self._options, beyond)
        self._positions.update(moved)
        if self._sink_commits:
            # The sink compares the batch with the group's offsets. It would take offsets beyond the batch for those of
            # another member that has read further.
            self._owner.rewind_committed(moved)
        return {**starts, **moved}

    def are_durable(self, start: StreamOffset, starts: Mapping[TopicPartition, int]) -> bool:
        """Return whether a query that restarts before its next micro-batch would resolve the same positions.

        Args:
            start: The start offset of the micro-batch. If it has partitions, the checkpoint keeps their positions.
            starts: The positions.
        """
        if not starts or self._owner.keeps_positions:
            return True
        if start.partitions:
            return self._start_at_latest & starts.keys() <= start.partitions.keys()
        options = self._options
        by_time = options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None
        return options.starting_offsets == "earliest" and not by_time

    def _continued(
        self,
        start: StreamOffset,
        owned: OwnedPartitions,
        partitions: Iterable[TopicPartition],
        lost_topics: Collection[str],
    ) -> dict[TopicPartition, int]:
        """Return the positions that the checkpoint or the group's committed offsets know."""
        known = [tp for tp in partitions if tp.topic not in lost_topics]
        # Where all copies of a partition emit rows, the committed offset is that of one copy only.
        uses_committed = not owned.copies and bool(start.partitions or self._options.group_start == "committed")
        committed: Mapping[TopicPartition, CommitOffset] = {}
        if uses_committed and self._sink_commits:
            fetched = sink_commit_replay.fetch_committed(self._options)
            committed = {tp: fetched[tp] for tp in known if tp in fetched}
        elif uses_committed:
            committed = self._owner.committed(known)
        elif not owned.copies:
            committed = self._rewound_since_start(self._owner.committed(known))
        self._follow_rewinds(committed)
        positions: dict[TopicPartition, int | None]
        if self._sink_commits:
            positions = {
                tp: sink_commit_replay.position(tp, self._positions.get(tp), committed, start.stream)
                for tp in partitions
            }
        else:
            offsets = {tp: entry.offset for tp, entry in committed.items()}
            positions = {tp: furthest(self._positions.get(tp), offsets.get(tp)) for tp in partitions}
        if self._generation is None and not start.partitions:
            found = [tp for tp, position in positions.items() if position is not None]
            committed_start.tell(self._options, found, commits=self._options.commit != "none")
        return {tp: position for tp, position in positions.items() if position is not None}

    def _rewound_since_start(
        self, committed: Mapping[TopicPartition, CommitOffset]
    ) -> dict[TopicPartition, CommitOffset]:
        """Return the committed offsets of partitions that were rewound since a query with a start of its own started.

        Such a query (`group.start=starting`) begins where its options say, whatever the group's offsets are. That
        includes a rewind of the group from before its start.
        """
        news = self._marks.news(committed)
        if self._generation is None:
            self._marks.follow(news)
            return {}
        return {tp: committed[tp] for tp in news}

    def _follow_rewinds(self, committed: Mapping[TopicPartition, CommitOffset]) -> None:
        """Forget the positions from before a rewind of the group, in the partitions that it has rewound."""
        news = self._marks.news(committed)
        if not news:
            return
        for tp in sorted(news):
            before = self._positions.pop(tp, None)
            if before is not None:
                log.warning("rewound %s-%d from=%d to=%d", tp.topic, tp.partition, before, committed[tp].offset)
        self._marks.follow(news)
        self._owner.rewound(news)

    def _first(
        self, start: StreamOffset, partitions: Sequence[TopicPartition], lost_topics: Collection[str]
    ) -> dict[TopicPartition, int]:
        """Return the positions of partitions that neither this query nor its group has read."""
        # A partition that was added while the query runs is read from its first offset, so that no record is missed.
        # A query that has not read anything yet has no partitions in `start`, hence the other two conditions.
        # A topic that the query subscribes to for the first time may have a start of its own, though.
        by_word = self._start_by_word(start)
        added = [
            tp
            for tp in partitions
            if (start.partitions and tp.topic not in by_word) or tp.topic in lost_topics or tp not in self._subscribed
        ]
        others = [tp for tp in partitions if tp not in added]
        self._start_at_latest |= {tp for tp in others if by_word.get(tp.topic) == "latest"}
        starts = start_and_end.starting_offsets(
            self._cluster, self._options, others, {}, subscribed=self._subscribed, default="latest"
        )
        self._owner.remember(starts)
        # In a group a partition can be new to this query and old to the group. A topic that was created again is
        # reported as such.
        new = {tp for tp in added if tp.topic not in lost_topics and self._is_new(tp)}
        late = start_and_end.earliest_of_added(self._cluster, self._options, new)
        late = late | self._cluster.earliest([tp for tp in added if tp not in new])
        if not start.partitions and self._options.group_start == "committed":
            # Until the first micro-batch the checkpoint has no positions. If the query stopped now, these partitions
            # would belong to the subscription at its next start, and would begin where the options say.
            self._owner.remember(late)
        return starts | late

    def _start_by_word(self, start: StreamOffset) -> dict[str, TopicWord]:
        """Return the topics that start at a word of `startingOffsets`, when the query starts and has not read them."""
        options = self._options
        wanted, by_time = options.starting_offsets, (options.starting_timestamp, options.starting_offsets_by_timestamp)
        if self._generation is not None or not isinstance(wanted, dict) or by_time != (None, None):
            return {}
        read = {tp.topic for tp in start.partitions}
        return {topic: word for topic, word in wanted.items() if isinstance(word, str) and topic not in read}

    def _is_new(self, tp: TopicPartition) -> bool:
        """Return whether nobody else can have read a partition before this query."""
        return not self._options.in_group or tp not in self._subscribed


def furthest(position: int | None, committed: int | None) -> int | None:
    """Return the larger of a query's position and the group's committed offset; None if both are unknown.

    Another application of the group may have read the partition while this query did not own it.
    """
    return max((offset for offset in (position, committed) if offset is not None), default=None)
