"""Look up what the group and the logs say of a stream's partitions, let `decision` decide, and act on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import ListedOffset
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.policy import CommitPolicy, max_offset
from kafka_source.errors import InvalidConfigurationError, RefreshRetriableError
from kafka_source.group.model import OwnedPartitions
from kafka_source.model.commits import CommitOffset
from kafka_source.model.partition_runs import format_moves
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import TopicWord
from kafka_source.source import start_and_end
from kafka_source.source.decision import Decision, GroupFacts, LogFacts, Need, Rules, decide
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

    def seconds(self, tp: TopicPartition) -> float:
        """Return for how long the log of this partition has been known to be short; 0: it was not known."""
        now = self._clock()
        return now - self._since.get(tp, now)

    def wait_for(self, tp: TopicPartition) -> None:
        """Note that the log of this partition is short."""
        if tp not in self._since:
            self._since[tp] = self._clock()
            log.warning(
                "%s-%d ends before what was read of it: it may be a loss, or a leader that is behind; looking for %g s",
                tp.topic,
                tp.partition,
                self._seconds,
            )

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
        self._rules = Rules(
            max_offset,
            replays=options.group_on_older_checkpoint != "follow",
            keeps_output=policy.is_output,
            fails_on_loss=options.fail_on_data_loss,
            patience_seconds=options.data_loss_patience_ms / 1000,
        )
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
        decisions = self._decide_by_group(start, owned, partitions, lost_topics)
        continued = {tp: at for tp, one in decisions.items() if (at := one.known.next) is not None}
        if self._resolved_join is None and not start.partitions:
            start_and_end.log_committed_start(self._options, continued, commits=self._policy.keeps)
        added = [tp for tp in partitions if tp not in continued]
        # Other clients do not read the note, and would continue at these offsets.
        self._owner.offsets.remember({tp: position for tp, position in continued.items() if tp in self._ignored})
        first = self._first(start, added, lost_topics, leaderless)
        self._log_moves(start, decisions)
        self._own_ahead = {tp: offset for tp, offset in self._own_ahead.items() if tp not in decisions}
        self._act(decisions)
        self._positions.replace(continued | first)
        self._resolved_join = owned.joins
        return self._positions.next_of(partitions)

    def keep_within_logs(
        self, starts: Mapping[TopicPartition, int], listed: Mapping[TopicPartition, ListedOffset]
    ) -> dict[TopicPartition, int]:
        """Return the positions, those that the log does not lead to moved to an offset to which it does.

        Positions before the first offset are left to the tasks, which find them without another request.

        Args:
            starts: The positions.
            listed: The latest offset of each partition that has a leader; with read_committed the last stable offset.

        Raises:
            DataLossError: A position is beyond the end of its partition, or its log has diverged, and `failOnDataLoss`
                is set.
            RefreshRetriableError: It is that of a topic that was deleted or created again.
        """
        facts = {
            tp: LogFacts(one.offset, one.leader_epoch, short_seconds=self._short_logs.seconds(tp))
            for tp, one in listed.items()
        }
        decisions = self._decide(facts)
        if epochs := {tp: self._positions.known(tp).epoch for tp in _needing(Need.EPOCH_END, decisions)}:
            # The leaders are asked only where they have changed (KIP-320).
            ends = self._cluster.epoch_ends(epochs)
            facts |= {tp: replace(facts[tp], epoch_end=ends.get(tp, -1)) for tp in epochs}
            decisions |= self._decide({tp: facts[tp] for tp in epochs})
        doubtful = {tp.topic for tp, one in decisions.items() if one.doubts_topic}
        if doubtful and self._are_replaced(doubtful):
            # Their records are not lost, but those of other topics: the trigger begins again and reads all of them.
            raise RefreshRetriableError(f"Topics were deleted or created again: {', '.join(sorted(doubtful))}.")
        beyond = _needing(Need.BOUNDS, decisions)
        self._short_logs.keep(beyond)
        if beyond:
            earliest = self._cluster.earliest(beyond)
            # The log has records beyond the last stable offset: those of open transactions.
            ends = {
                tp: one.offset for tp, one in self._cluster.latest_with_epochs(beyond, read_committed=False).items()
            }
            decisions |= self._decide({tp: replace(facts[tp], bounds=(earliest[tp], ends[tp])) for tp in beyond})
        self._act(decisions)
        return {**starts, **self._positions.next_of(decisions)}

    def _decide(self, facts: Mapping[TopicPartition, LogFacts]) -> dict[TopicPartition, Decision]:
        return {tp: decide(tp, self._positions.known(tp), one, self._rules) for tp, one in facts.items()}

    def _act(self, decisions: Mapping[TopicPartition, Decision]) -> None:
        """Report losses, note the positions, and let the group follow where the query steps back, as in a rewind."""
        for _, one in sorted(decisions.items()):
            if one.loss is not None:
                if one.refuses:
                    raise one.loss
                log.warning("%s (failOnDataLoss is false: the query continues)", one.loss)
        for tp, one in decisions.items():
            if one.waits:
                self._short_logs.wait_for(tp)
        self._positions.follow(decisions)
        back = {
            tp: to
            for tp, one in sorted(decisions.items())
            if one.stepped_from is not None and (to := one.known.next) is not None
        }
        for tp, to in back.items():
            log.warning("stepped back %s-%d from=%d to=%d", tp.topic, tp.partition, decisions[tp].stepped_from, to)
        if back:
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

    def _decide_by_group(
        self,
        start: StreamOffset,
        owned: OwnedPartitions,
        partitions: Collection[TopicPartition],
        lost_topics: Collection[str],
    ) -> dict[TopicPartition, Decision]:
        """Decide where partitions continue, by the checkpoint and the group's committed offsets."""
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
        if self._resolved_join is None and not start.partitions and self._policy.signs and not self._policy.is_output:
            start_and_end.warn_of_new_checkpoint(self._options, committed.values())
        rules = replace(self._rules, counts=self._policy.counts(start))
        facts = {tp: GroupFacts(committed.get(tp), self._own_ahead.get(tp)) for tp in partitions}
        return {tp: decide(tp, self._positions.known(tp), one, rules) for tp, one in facts.items()}

    def _log_moves(self, start: StreamOffset, decisions: Mapping[TopicPartition, Decision]) -> None:
        """Log the rewinds that the query follows, and where it continues behind its position: its group is ahead."""
        moves: dict[TopicPartition, tuple[int, int]] = {}
        for tp, one in sorted(decisions.items()):
            before, to = self._positions.known(tp).next, one.known.next
            if one.rewound_from is not None:
                log.warning("rewound %s-%d from=%d to=%d", tp.topic, tp.partition, one.rewound_from, to)
            elif before is not None and to is not None and to > before:
                moves[tp] = (before, to)
        # What is not in the last batch was another query's meanwhile; what is replaced is followed on purpose.
        surprising = {
            tp: move for tp, move in moves.items() if tp in start.partitions and not decisions[tp].known.is_replaced
        }
        start_and_end.log_moves(self._options, surprising, of_spark=start.of_spark)
        others = {tp: move for tp, move in moves.items() if tp not in surprising}
        if others:
            log.info("group=%s has read on: %s", self._options.group_id, format_moves(others))

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


def _needing(need: Need, decisions: Mapping[TopicPartition, Decision]) -> list[TopicPartition]:
    return [tp for tp, one in decisions.items() if one.need is need]
