"""Look up where a stream's partitions continue: in checkpoint, group and log; a short log, an old checkpoint.

`positions` has the rules, and keeps what was resolved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.policy import CommitPolicy
from kafka_source.errors import InvalidConfigurationError, RefreshRetriableError
from kafka_source.group.model import OwnedPartitions
from kafka_source.model.commits import CommitOffset
from kafka_source.model.partition_runs import format_moves
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import TopicWord
from kafka_source.source import start_and_end
from kafka_source.source.owners import PartitionOwner
from kafka_source.source.positions import Positions

log = logging.getLogger(__name__)


class ShortLogs:
    """The partitions whose log ends before what was read, while that may be the word of a leader that is behind.

    Args:
        seconds: How long it may be (`data.loss.patience.ms`).
        clock: The time in seconds; only differences count.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: dict[TopicPartition, float] = {}

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all but these: the logs of the others reach as far as they did."""
        self._since = {tp: since for tp, since in self._since.items() if tp in partitions}

    def may_be_behind(self, tp: TopicPartition) -> bool:
        """Note that the log of this partition is short; return False once it has been for too long."""
        now = self._clock()
        if tp not in self._since:
            self._since[tp] = now
            log.warning(
                "%s-%d ends before what was read of it: it may be a loss, or a leader that is behind; looking for %g s",
                tp.topic,
                tp.partition,
                self._seconds,
            )
        return now - self._since[tp] < self._seconds

    def __bool__(self) -> bool:
        return any(self._clock() - since < self._seconds for since in self._since.values())


class PositionTracker:
    """Resolve the positions of the partitions that a stream owns.

    Args:
        options: Of the query.
        policy: Its commit policy.
        cluster: Where to look up offsets.
        owner: Knows the group's committed offsets.
        subscribed: The partitions of the subscription when the query started.
        positions: The positions, which this object resolves.
        are_replaced: Asks the cluster whether topics were created again since it was last asked.
    """

    def __init__(
        self,
        options: ReadOptions,
        policy: CommitPolicy,
        cluster: Cluster,
        owner: PartitionOwner,
        subscribed: Collection[TopicPartition],
        positions: Positions,
        are_replaced: Callable[[Collection[str]], bool] = lambda _: False,
    ) -> None:
        self._options, self._policy = options, policy
        self._cluster = cluster
        self._owner = owner
        self._positions = positions
        self._are_replaced = are_replaced
        # Partitions where the group has an offset of another topic of the same name.
        self._ignored: frozenset[TopicPartition] = frozenset()
        self._subscribed = frozenset(subscribed)
        self._own_positions = options.redundant_emit == "all"
        # The join of the slots after which the positions were last resolved; None: this process has not resolved any.
        self._resolved_join: int | None = None
        # Partitions that start at `latest` because startingOffsets says so for their topic, which the checkpoint
        # does not know.
        self._start_at_latest: frozenset[TopicPartition] = frozenset()
        # The query's own commits that are ahead of the checkpoint with which it has started.
        self._own_ahead: dict[TopicPartition, int] = {}
        self._is_compared = False
        self._short_logs = ShortLogs(options.data_loss_patience_ms / 1000)
        # Partitions that had no leader when the query started, and start at `earliest`.
        self._starts_later: frozenset[TopicPartition] = frozenset()

    @property
    def is_resolved(self) -> bool:
        """Whether this process has resolved positions before."""
        return self._resolved_join is not None

    @property
    def awaits_longer_logs(self) -> bool:
        """Whether a leader may be behind what was read of its partition."""
        return bool(self._short_logs)

    @property
    def marks_steps_back(self) -> bool:
        """Whether offsets of the checkpoint tell a step back by the mark of a rewind."""
        return not self._own_positions

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
            committed = self._owner.offsets.committed(sorted(ends))
            self._own_ahead = {
                tp: entry.offset
                for tp, entry in committed.items()
                if entry.offset > ends[tp] and self._positions.is_own(entry)
            }
            if self._own_ahead and self._options.group_on_older_checkpoint == "stop":
                raise self._is_older(ends)
        self._is_compared = True

    def _is_older(self, ends: Mapping[TopicPartition, int]) -> InvalidConfigurationError:
        moves = {tp: (ends[tp], offset) for tp, offset in self._own_ahead.items()}
        return InvalidConfigurationError(
            "The checkpoint is older than this query's own commits, so it was put back: group "
            f"{self._options.group_id} has {format_moves(moves)}. Nothing was read or committed. Put "
            "back the newest checkpoint. Or, if the output was put back together with this one, start the query once "
            "with group.on.older.checkpoint=replay: it reads again from the checkpoint's offsets. If the output still "
            "has those records, start it once with group.on.older.checkpoint=follow."
        )

    def is_resolved_after(self, join: int) -> bool:
        """Return whether the positions were resolved since the slots have joined for this time."""
        return self._resolved_join == join

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
            RefreshRetriableError: The group has offsets of a topic that was created a moment ago.
            OptionError: The starting options do not name exactly the partitions of the subscription.
        """
        self._positions.begin(start)
        known = self._positions.next_of(partitions)
        if self.is_resolved_after(owned.joins) and len(known) == len(partitions):
            return known
        continued = self._continued(start, owned, partitions, lost_topics)
        added = [tp for tp in partitions if tp not in continued]
        # Other clients do not read the note, and would continue at these offsets.
        self._owner.offsets.remember({tp: position for tp, position in continued.items() if tp in self._ignored})
        self._positions.replace(continued | self._first(start, added, lost_topics, leaderless))
        self._resolved_join = owned.joins
        return self._positions.next_of(partitions)

    def diverged(
        self,
        starts: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, start_and_end.Divergence]:
        """Return where the logs of new leaders diverge from what was read before the positions (KIP-320).

        The leaders are asked only where they have changed.

        Args:
            starts: The positions.
            latest: The latest offset of each partition that has a leader.
            leaders: The epoch of the leader of each partition that has one; -1: unknown.
        """
        epochs = self._positions.to_check(leaders)
        found = start_and_end.divergences(self._cluster, starts, epochs, leaders)
        reached = {tp: now for tp, now in leaders.items() if tp not in found and starts[tp] <= latest[tp]}
        self._positions.in_log_of(reached)
        return found

    def move_back_into_log(
        self,
        starts: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        diverged: Mapping[TopicPartition, start_and_end.Divergence],
    ) -> dict[TopicPartition, int]:
        """Return the positions, those that the log does not lead to moved to an offset to which it does.

        Positions before the first offset are left to the tasks, which find them without another request. A position
        stays for a while where a leader of a known epoch had all records before it, so that the leader of now may be
        behind. Any other may never have been in this log: more records would hide that.

        Args:
            starts: The positions.
            latest: The latest offset of each partition that has a leader; with read_committed the last stable offset.
            diverged: What `diverged` has found.

        Raises:
            DataLossError: A position is beyond the end of its partition, or its log has diverged, and `failOnDataLoss`
                is set.
        """
        beyond = {
            tp: position
            for tp, position in starts.items()
            if position > latest.get(tp, position) and tp not in diverged
        }
        self._short_logs.keep(beyond)
        if not beyond and not diverged:
            self._positions.settle(latest)
            return dict(starts)
        start_and_end.report_diverged(self._options, starts, diverged)
        moved = start_and_end.check_data_loss(
            self._cluster,
            self._options,
            beyond,
            may_be_behind=lambda tp: self._positions.has_epoch(tp) and self._short_logs.may_be_behind(tp),
        )
        # The others are beyond the last stable offset only.
        lost = {tp: to for tp, to in moved.items() if to < beyond[tp]}
        # Where the group's offset says what the output has, nothing is written twice.
        if not self._policy.is_output:
            lost = {tp: self._positions.within_log(tp, to) for tp, to in lost.items()}
        # Up to there the log is the one that was read before the position, by whoever.
        lost |= {tp: one.end for tp, one in diverged.items()}
        if lost:
            self._step_back({tp: (starts[tp], to) for tp, to in lost.items()})
        self._positions.settle(latest)
        return {**starts, **lost}

    def _step_back(self, moves: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Continue at earlier offsets, and let the group follow, as if somebody had rewound it.

        Args:
            moves: From where and to where, by partition.
        """
        for tp, (before, to) in sorted(moves.items()):
            log.warning("stepped back %s-%d from=%d to=%d", tp.topic, tp.partition, before, to)
        back = {tp: to for tp, (_, to) in moves.items()}
        self._positions.step_back(back, rewinds=self.marks_steps_back)
        self._owner.offsets.rewind(back)

    def are_durable(self, start: StreamOffset, starts: Mapping[TopicPartition, int]) -> bool:
        """Return whether a query that restarts before its next micro-batch would resolve the same positions.

        Args:
            start: The start offset of the micro-batch. If it has partitions, the checkpoint keeps their positions.
            starts: The positions.
        """
        if not starts:
            return True
        if any(starts[tp] != start.ends.get(tp) for tp in self._positions.replaced(starts)):
            # Where the group's offsets say what the output has, they keep them.
            return self._policy.is_output and (start.by_sink or not start.partitions)
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
        committed: Mapping[TopicPartition, CommitOffset] = {}
        self._ignored = frozenset()
        # Where all copies of a partition emit rows, the committed offset is that of one copy only.
        if not owned.copies:
            committed = {
                tp: entry
                for tp, entry in self._owner.offsets.committed([*partitions]).items()
                if tp.topic not in lost_topics or self._positions.is_of_new_topic(tp, entry)
            }
            self._ignored = self._positions.ignored(partitions)
            if self._ignored and self._are_replaced({tp.topic for tp in self._ignored}):
                raise RefreshRetriableError("Topics were created again since they were last described.")
        committed = self._without_replayed(committed)
        self._follow_rewinds(committed)
        positions = self._positions.merge(partitions, committed, self._policy.counts(start))
        self._log_moves(start, positions)
        if self._resolved_join is None and not start.partitions:
            start_and_end.log_committed_start(self._options, positions, commits=self._policy.keeps)
            if self._policy.signs and not self._policy.is_output:
                start_and_end.warn_of_new_checkpoint(self._options, committed.values())
        return positions

    def _without_replayed(
        self, committed: Mapping[TopicPartition, CommitOffset]
    ) -> Mapping[TopicPartition, CommitOffset]:
        """Do with the query's own commits that are ahead of its checkpoint what `group.on.older.checkpoint` says."""
        ahead = {tp for tp in committed if committed[tp].offset == self._own_ahead.pop(tp, None)}
        if not ahead:
            return committed
        self._positions.set_replaced(ahead)
        if self._options.group_on_older_checkpoint == "follow":
            return committed
        own = self._positions.next_of(ahead)
        self._step_back({tp: (committed[tp].offset, own[tp]) for tp in ahead})
        return {tp: entry for tp, entry in committed.items() if tp not in ahead}

    def _log_moves(self, start: StreamOffset, positions: Mapping[TopicPartition, int]) -> None:
        """Log where the query continues behind its own position, because its group is ahead."""
        own = self._positions.next_of(positions)
        moves = {tp: (before, positions[tp]) for tp, before in own.items() if positions[tp] > before}
        # What is not in the last batch was another query's meanwhile; what is replaced is followed on purpose.
        expected = self._positions.replaced(moves)
        surprising = {tp: move for tp, move in moves.items() if tp in start.partitions and tp not in expected}
        start_and_end.log_moves(self._options, surprising, of_spark=start.of_spark)
        others = {tp: move for tp, move in moves.items() if tp not in surprising}
        if others:
            log.info("group=%s has read on: %s", self._options.group_id, format_moves(others))

    def _follow_rewinds(self, committed: Mapping[TopicPartition, CommitOffset]) -> None:
        """Continue at the group's offsets in the partitions that somebody has rewound."""
        before = self._positions.follow_rewinds(self._positions.unfollowed_rewinds(committed))
        for tp, offset in sorted(before.items()):
            log.warning("rewound %s-%d from=%d to=%d", tp.topic, tp.partition, offset, committed[tp].offset)

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
            if (start.partitions and tp.topic not in by_word)
            or tp.topic in lost_topics
            or tp in self._ignored
            or tp not in self._subscribed
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
        # In a group a partition can be new to this query and old to the group. A topic that was created again is
        # reported as such.
        new = {tp for tp in added if tp.topic not in lost_topics and tp not in self._ignored and self._is_new(tp)}
        starts |= start_and_end.earliest_of_added(self._cluster, self._options, new)
        starts |= self._cluster.earliest([tp for tp in added if tp not in new])
        self._owner.offsets.remember(starts)
        return starts

    def _start_by_word(self, start: StreamOffset) -> dict[str, TopicWord]:
        """Return the topics that start at a word of `startingOffsets`, when the query starts and has not read them."""
        options = self._options
        wanted, by_time = options.starting_offsets, (options.starting_timestamp, options.starting_offsets_by_timestamp)
        if self._resolved_join is not None or not isinstance(wanted, dict) or by_time != (None, None):
            return {}
        read = {tp.topic for tp in start.partitions}
        return {topic: word for topic, word in wanted.items() if isinstance(word, str) and topic not in read}

    def _is_new(self, tp: TopicPartition) -> bool:
        """Return whether nobody else can have read a partition before this query."""
        return (not self._options.in_group or tp not in self._subscribed) and tp not in self._starts_later
