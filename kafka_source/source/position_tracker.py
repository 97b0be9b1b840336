"""Track the position of a stream in each partition: the offset that it reads next.

The checkpoint, the group's committed offsets and the starting options each know positions. This module decides which of
them counts.

Spark writes the end offset of a batch to its offset log, runs the batch's tasks, lets the sink commit, and notes the
batch in its commit log. Only then it asks for the next end offset, and the driver commits. So these may be ahead of the
end of the newest batch in the offset log:

| commit | the query's own commits | commits of others |
| --- | --- | --- |
| batch | never: the driver commits when the batch is in the commit log | yes |
| task | never: a task commits at most the batch's end, which is in the offset log | yes |
| sink | never: the decision has the same ends | yes |
| none | there are none | yes |

and after a `kill -9` at any moment the group's offset may be behind that end, with `batch` by the batch whose commit
was under way, with `task` and `sink` by the batch that Spark replays.

- Ahead by commits of others: these have read what is in between. The query follows, and says so.
- Ahead by its own commits (their metadata has the stream's id): the offset log has lost batches, so the checkpoint was
  put back. Nobody but the user knows whether the output was too: `group.on.older.checkpoint`.
- Behind: the checkpoint counts; with `commit=sink` the group, because it is what the output has.
- Rewound (the metadata has a mark that the checkpoint does not follow): the group counts, wherever it is.
- Beyond the end of the log: records were lost. What is left within the log counts, or its end (`failOnDataLoss=false`).
  The group follows by a rewind, so that the offset from before counts nowhere. A query that commits nothing keeps it in
  its checkpoint as stale.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.commits import CommitOffset
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
        self._commits = query.options.commit != "none"
        self._own_positions = query.options.redundant_emit == "all"
        # The positions as resolved in `_generation`, and the start offset that they already include.
        self._positions: dict[TopicPartition, int] = {}
        self._generation: int | None = None
        # Partitions that start at `latest` because startingOffsets says so for their topic, which the checkpoint
        # does not know.
        self._start_at_latest: frozenset[TopicPartition] = frozenset()
        self._start: StreamOffset | None = None
        # Of the checkpoint's and the group's offset the one that does not count, as resolved for the next plan.
        self._second: dict[TopicPartition, int] = {}
        self._stale: dict[TopicPartition, int] = {}
        # The query's own commits that are ahead of the checkpoint with which it has started.
        self._own_ahead: dict[TopicPartition, int] = {}
        self._is_compared = False
        # Partitions that had no leader when the query started, and start at `earliest`.
        self._starts_later: frozenset[TopicPartition] = frozenset()
        # The partitions whose position is another one than a restart would find by itself.
        self._replaced: set[TopicPartition] = set()

    @property
    def is_resolved(self) -> bool:
        """Whether this process has resolved positions before."""
        return self._generation is not None

    def compare_with_group(self, newest: StreamOffset) -> None:
        """Compare the newest offset of the checkpoint with the query's own commits, when the query starts.

        Raises:
            InvalidConfigurationError: The query has committed further offsets, and `group.on.older.checkpoint` is
                `stop`.
        """
        if self._is_compared:
            return
        if newest.stream is not None and self._options.in_group and not self._own_positions:
            ends = newest.ends
            committed = self._owner.committed(sorted(ends))
            self._own_ahead = {
                tp: entry.offset
                for tp, entry in committed.items()
                if entry.offset > ends[tp] and self._marks.is_own(entry)
            }
            if self._own_ahead and self._options.group_on_older_checkpoint == "stop":
                raise self._is_older(ends)
        self._is_compared = True

    def _is_older(self, ends: Mapping[TopicPartition, int]) -> InvalidConfigurationError:
        moves = {tp: (ends[tp], offset) for tp, offset in self._own_ahead.items()}
        return InvalidConfigurationError(
            "The checkpoint is older than this query's own commits, so it was put back: group "
            f"{self._options.group_id} has {committed_start.named(moves)}. Nothing was read or committed. Put back the "
            "newest checkpoint. Or, if the output was put back together with this one, start the query once with "
            "group.on.older.checkpoint=replay: it reads again from the checkpoint's offsets. If the output still has "
            "those records, start it once with group.on.older.checkpoint=follow."
        )

    def is_resolved_in(self, generation: int) -> bool:
        """Return whether the positions were last resolved in this generation of the group."""
        return self._generation == generation

    def resolve(
        self,
        start: StreamOffset,
        owned: OwnedPartitions,
        partitions: Collection[TopicPartition],
        lost_topics: Collection[str],
        leaderless: Collection[TopicPartition] = (),
    ) -> dict[TopicPartition, int]:
        """Return the position of each partition, without partitions whose position only their next leader can tell.

        Without a rebalance and a new partition these are the ends of the last batch. After one, the group's committed
        offsets count too, and a partition that is new to this query starts at its first offset or, when the query
        starts, where the options say.

        Args:
            start: The start offset of the micro-batch, without lost topics.
            owned: The partitions that the query owns.
            partitions: Those of them that exist.
            lost_topics: The topics whose committed offsets are those of a deleted topic.
            leaderless: Those of the partitions that have no leader.

        Raises:
            NoLeaderError: A partition without a leader starts at `latest` or at a time, which has to be looked up.
            OptionError: The starting options do not name exactly the partitions of the subscription.
        """
        if start != self._start:
            self._positions.update(start.ends)
            self._stale = {**start.stale, **self._stale}
            self._replaced -= start.partitions.keys()
            self._start = start
        if not self.is_resolved_in(owned.generation) or any(tp not in self._positions for tp in partitions):
            continued = self._continued(start, owned, partitions, lost_topics)
            added = [tp for tp in partitions if tp not in continued]
            self._positions = continued | self._first(start, added, lost_topics, leaderless)
            self._generation = owned.generation
        return {tp: self._positions[tp] for tp in partitions if tp in self._positions}

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
            latest: The latest offset of each partition that has a leader; with read_committed the last stable offset.

        Raises:
            DataLossError: A position is beyond the end of its partition, and `failOnDataLoss` is set.
        """
        beyond = {tp: position for tp, position in starts.items() if position > latest.get(tp, position)}
        if not beyond:
            return dict(starts)
        moved = start_and_end.check_data_loss(self._cluster, self._options, beyond)
        # The others are beyond the last stable offset only.
        lost = {tp: self._within(tp, to) for tp, to in moved.items() if to < beyond[tp]}
        if lost:
            self._step_back({tp: (beyond[tp], to) for tp, to in lost.items()})
        self._second = {}
        return {**starts, **lost}

    def _within(self, tp: TopicPartition, end: int) -> int:
        """Return where a partition continues whose position is beyond the end of its log.

        What the query or the group has not read is read, also if the other one had. With `commit=sink` the group's
        offset says what the output has, and nothing is written twice.
        """
        second = self._second.get(tp, end)
        return end if self._sink_commits else min(second, end)

    def _step_back(self, moves: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Continue at earlier offsets, and let the group follow, as if somebody had rewound it.

        Args:
            moves: From where and to where, by partition.
        """
        for tp, (before, to) in sorted(moves.items()):
            log.warning("stepped back %s-%d from=%d to=%d", tp.topic, tp.partition, before, to)
        back = {tp: to for tp, (_, to) in moves.items()}
        self._positions |= back
        self._replaced |= back.keys()
        if not self._commits:
            # The group stays where it is, and another rewind of it must not look as if it were news.
            committed = self._owner.committed(sorted(back))
            self._stale |= {tp: entry.offset for tp, entry in committed.items() if entry.offset > back[tp]}
            return
        if not self._own_positions:
            self._marks.step_back(back)
        self._owner.rewind_committed(back)

    def stale(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's offsets that do not count, for the checkpoint."""
        return {tp: self._stale[tp] for tp in partitions if tp in self._stale}

    def are_durable(self, start: StreamOffset, starts: Mapping[TopicPartition, int]) -> bool:
        """Return whether a query that restarts before its next micro-batch would resolve the same positions.

        Args:
            start: The start offset of the micro-batch. If it has partitions, the checkpoint keeps their positions.
            starts: The positions.
        """
        if not starts:
            return True
        if self.stale(starts).items() - start.stale.items():
            return False
        if any(starts[tp] != start.ends.get(tp) for tp in self._replaced & starts.keys()):
            # The group keeps them where the checkpoint has none, and where the sink keeps the group's offsets.
            in_group = self._owner.keeps_positions or self._sink_commits
            return in_group and (start.by_sink or not start.partitions)
        if self._owner.keeps_positions:
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
        committed = self._without_stale(self._without_replayed(committed))
        self._follow_rewinds(committed)
        positions: dict[TopicPartition, int | None]
        if self._sink_commits:
            stream = start.stream if start.by_sink else None
            positions = {
                tp: sink_commit_replay.position(tp, self._positions.get(tp), committed, stream) for tp in partitions
            }
        else:
            offsets = {tp: entry.offset for tp, entry in committed.items()}
            positions = {tp: furthest(self._positions.get(tp), offsets.get(tp)) for tp in partitions}
            self._second = self._seconds(positions, offsets)
        self._tell_moves(start, positions)
        if self._generation is None and not start.partitions:
            found = [tp for tp, position in positions.items() if position is not None]
            committed_start.tell(self._options, found, commits=self._options.commit != "none")
        return {tp: position for tp, position in positions.items() if position is not None}

    def _without_replayed(
        self, committed: Mapping[TopicPartition, CommitOffset]
    ) -> Mapping[TopicPartition, CommitOffset]:
        """Do with the query's own commits that are ahead of its checkpoint what `group.on.older.checkpoint` says."""
        ahead = {tp for tp in committed if committed[tp].offset == self._own_ahead.pop(tp, None)}
        if not ahead:
            return committed
        self._replaced |= ahead
        if self._options.group_on_older_checkpoint == "follow":
            return committed
        self._step_back({tp: (committed[tp].offset, self._positions[tp]) for tp in ahead})
        return {tp: entry for tp, entry in committed.items() if tp not in ahead}

    def _without_stale(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, CommitOffset]:
        """Return the committed offsets that count, and forget which ones were stale where somebody has committed."""
        for tp in [tp for tp in self._stale if tp in committed and committed[tp].offset != self._stale[tp]]:
            del self._stale[tp]
        return {tp: entry for tp, entry in committed.items() if tp not in self._stale}

    def _seconds(
        self, positions: Mapping[TopicPartition, int | None], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return, of the query's positions and the group's offsets, those that do not count because they are lower."""
        known = {tp: self._positions[tp] for tp in positions if tp in self._positions}
        # A query that commits nothing does not step back to the group's offset: it could not tell it from then on.
        pairs = {tp: (known[tp], committed[tp]) for tp in known.keys() & committed.keys()}
        return {tp: min(pair) for tp, pair in pairs.items() if self._commits or pair[0] < pair[1]}

    def _tell_moves(self, start: StreamOffset, positions: Mapping[TopicPartition, int | None]) -> None:
        """Say where the query continues behind its own position, because its group is ahead."""
        moves = {
            tp: (self._positions[tp], to)
            for tp, to in positions.items()
            if to is not None and to > self._positions.get(tp, to)
        }
        # What is not in the last batch was another query's meanwhile; what is replaced is followed on purpose.
        surprising = {tp: move for tp, move in moves.items() if tp in start.partitions and tp not in self._replaced}
        committed_start.tell_moves(self._options, surprising, of_spark=start.of_spark)
        others = {tp: move for tp, move in moves.items() if tp not in surprising}
        if others:
            log.info("group=%s has read on: %s", self._options.group_id, committed_start.named(others))

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
            if not self._commits:
                # The group keeps these, and a restart before they are reached must not continue at them.
                self._stale |= {tp: entry.offset for tp, entry in committed.items()}
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
        self,
        start: StreamOffset,
        partitions: Sequence[TopicPartition],
        lost_topics: Collection[str],
        leaderless: Collection[TopicPartition],
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
        # `latest` and a time have to be looked up before records come. The first offset is the same one later.
        later = {tp for tp in others if tp in leaderless and start_and_end.starts_at_earliest(self._options, tp)}
        self._starts_later |= later
        others = [tp for tp in others if tp not in later]
        added = [tp for tp in added if tp not in leaderless]
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
        return (not self._options.in_group or tp not in self._subscribed) and tp not in self._starts_later


def furthest(position: int | None, committed: int | None) -> int | None:
    """Return the larger of a query's position and the group's committed offset; None if both are unknown.

    Another application of the group may have read the partition while this query did not own it.
    """
    return max((offset for offset in (position, committed) if offset is not None), default=None)
