"""Settle where a stream's partitions continue: look facts up (`facts`), let `decision` decide, act on the decisions."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST
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
from kafka_source.source.decision import (
    Beginning,
    Decision,
    Facts,
    GroupFacts,
    LogFacts,
    Need,
    Rules,
    Start,
    begin,
    decide,
)
from kafka_source.source.facts import Look
from kafka_source.source.option_bounds import starting_bounds, starting_words, starts_by_time
from kafka_source.source.owners import PartitionOwner
from kafka_source.source.positions import Positions

log = logging.getLogger(__name__)


class ShortLogs:
    """The partitions whose log ends before the query's position, perhaps only because their leader is behind.

    Args:
        seconds: The time for which a leader may be behind (`data.loss.patience.ms`).
        clock: The time in seconds; only differences count.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: dict[TopicPartition, float] = {}

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Keep only these partitions, because the logs of all others are no longer short."""
        self._since = {tp: since for tp, since in self._since.items() if tp in partitions}

    def seconds(self, tp: TopicPartition) -> float:
        """Return the time for which the log of this partition has been known to be short; 0: the log is not short."""
        now = self._clock()
        return now - self._since.get(tp, now)

    def wait_for(self, tp: TopicPartition) -> None:
        """Note that the log of this partition is short."""
        if tp not in self._since:
            self._since[tp] = self._clock()
            log.warning(
                "%s-%d ends before the read position: a loss, or a leader that is behind; checking for %g s",
                tp.topic,
                tp.partition,
                self._seconds,
            )

    def __bool__(self) -> bool:
        return any(self._clock() - since < self._seconds for since in self._since.values())


@dataclass(frozen=True, slots=True)
class Scope:
    """The partitions that a trigger may read.

    Attributes:
        start: The start offset of the micro-batch, without lost topics.
        owned: The partitions that the query owns.
        partitions: The owned partitions that exist.
        lost_topics: The topics whose committed offsets may be of a deleted topic of the same name.
        leaderless: The partitions without a leader.
    """

    start: StreamOffset
    owned: OwnedPartitions
    partitions: Collection[TopicPartition]
    lost_topics: Collection[str] = ()
    leaderless: Collection[TopicPartition] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """The positions of a trigger's partitions.

    Attributes:
        starts: The known positions. A position that only a leader can return stays unknown until there is a leader.
        stepped: The partitions in which the query steps back.
        latest: The latest offset of each partition that has a leader; with `read_committed` the last stable offset.
        leaders: The epochs of the partitions' leaders; -1: unknown.
    """

    starts: dict[TopicPartition, int]
    stepped: frozenset[TopicPartition]
    latest: dict[TopicPartition, int]
    leaders: dict[TopicPartition, int]


@dataclass(slots=True)
class _Case:
    """The decisions of one trigger, and the facts on which they rest.

    Attributes:
        scope: The partitions that the trigger may read.
        rules: The query's rules.
        facts: The looked-up facts.
        words: The topics for which `startingOffsets` has a word (`earliest` or `latest`).
        decisions: The decisions.
        ignored: The partitions where the group has an offset of another topic of the same name.
        later: The partitions that begin at their first offset when a broker leads them.
        at_latest: The partitions that begin at `latest` because of their topic's word in `startingOffsets`.
    """

    scope: Scope
    rules: Rules
    facts: dict[TopicPartition, Facts]
    words: Mapping[str, TopicWord]
    decisions: dict[TopicPartition, Decision] = field(default_factory=dict)
    ignored: frozenset[TopicPartition] = frozenset()
    later: frozenset[TopicPartition] = frozenset()
    at_latest: frozenset[TopicPartition] = frozenset()


class PositionTracker:
    """Settle the positions of the partitions that a stream owns.

    Args:
        options: The query's options.
        policy: The query's commit policy.
        cluster: The lookups of offsets.
        owner: Knows the group's committed offsets.
        subscribed: The partitions of the subscription when the query started.
        positions: The positions, which this object keeps up to date.
        are_replaced: Checks whether topics were created again since the last check.
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
        self._options, self._policy, self._offsets = options, policy, owner.offsets
        self._look = Look(options, cluster, owner.offsets, positions)
        self._positions = positions
        self._are_replaced = are_replaced
        self._subscribed = frozenset(subscribed)
        self._own_positions = options.redundant_emit == "all"
        # The join of the slots after which positions were last resolved; None: this process has resolved no position.
        self._resolved_join: int | None = None
        # Partitions that start at `latest` by their topic's word in startingOffsets; the checkpoint lacks these starts.
        self._start_at_latest: frozenset[TopicPartition] = frozenset()
        # The query's own commits that were ahead of the checkpoint when the query started.
        self._own_ahead: dict[TopicPartition, int] = {}
        self._is_compared = False
        self._rules = Rules(
            max_offset,
            replays=options.group_on_older_checkpoint != "follow",
            is_output=policy.is_output,
            fails_on_loss=options.fail_on_data_loss,
            patience_seconds=options.data_loss_patience_ms / 1000,
        )
        self._short_logs = ShortLogs(options.data_loss_patience_ms / 1000)
        # Partitions that had no leader when the query started, and start at `earliest`.
        self._starts_later: frozenset[TopicPartition] = frozenset()

    @property
    def is_resolved(self) -> bool:
        """Whether this process has resolved positions already."""
        return self._resolved_join is not None

    @property
    def is_compared(self) -> bool:
        """Whether the checkpoint was compared with the query's own commits; before that, nothing is committed."""
        return self._is_compared

    @property
    def awaits_longer_logs(self) -> bool:
        """Whether the leader of a partition may be behind the query's position."""
        return bool(self._short_logs)

    @property
    def marks_steps_back(self) -> bool:
        """Whether the checkpoint marks a step back as a rewind; false with `redundant.emit=all`."""
        return not self._own_positions

    def compare_with_group(self, newest: StreamOffset) -> None:
        """Compare the newest offset of the checkpoint with the query's own commits, when the query starts.

        Raises:
            InvalidConfigurationError: The commits are ahead of `newest`, and `group.on.older.checkpoint` is `stop`.
        """
        if self._is_compared:
            return
        if newest.stream is not None and self._options.in_group and not self._own_positions:
            ends = newest.ends
            committed = self._offsets.committed(sorted(ends))
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
            "back the newest checkpoint. If the output was put back together with the checkpoint, start the query "
            "once with group.on.older.checkpoint=replay, to read again from the checkpoint's offsets. If the output "
            "still has those records, start the query once with group.on.older.checkpoint=follow."
        )

    def is_resolved_after(self, join: int) -> bool:
        """Return whether the positions were resolved after this join of the slots."""
        return self._resolved_join == join

    def settle(self, scope: Scope) -> Settled:
        """Return the positions of a trigger's partitions: look up, decide, act.

        Without a rebalance or a new partition the positions are the ends of the last batch. After a rebalance the
        group's committed offsets count too. A partition that is new to a running query starts at its first offset. When
        the query starts, its options decide. A position beyond the end of a log moves into the log. Tasks detect
        positions before the first offset, without another request.

        Raises:
            DataLossError: `failOnDataLoss` is set, and a position is beyond the end of a log, or a log diverged.
            NoLeaderError: A partition without a leader starts at `latest` or at a time, which has to be looked up.
            RefreshRetriableError: A topic was deleted or created again since the topics were described.
            OptionError: The starting options do not name exactly the partitions of the subscription.
        """
        self._positions.begin(scope.start)
        asks_group = not self.is_resolved_after(scope.owned.joins)
        rules = replace(self._rules, counts=self._policy.counts(scope.start), asks_group=asks_group)
        case = _Case(scope, rules, dict.fromkeys(scope.partitions, Facts()), self._start_by_word(scope.start))
        if not asks_group:
            # Most triggers need no other fact.
            self._look_up(Need.LATEST, self._positions.next_of(scope.partitions), case)
        self._decide(case, scope.partitions)
        for need in Need:
            lacking = [tp for tp, one in case.decisions.items() if one.need is need]
            if need is Need.BOUNDS:
                self._check_topics({tp.topic for tp, one in case.decisions.items() if one.doubts_topic})
                self._short_logs.keep(lacking)
            if lacking:
                self._look_up(need, lacking, case)
                self._decide(case, lacking)
        self._act(case)
        logs = {tp: one.log for tp, one in case.facts.items() if one.log is not None}
        return Settled(
            self._positions.next_of(scope.partitions),
            frozenset(tp for tp, one in case.decisions.items() if one.stepped_from is not None),
            {tp: one.latest for tp, one in logs.items()},
            {tp: one.leader_epoch for tp, one in logs.items()},
        )

    def _decide(self, case: _Case, partitions: Collection[TopicPartition]) -> None:
        known = self._positions.known
        case.decisions |= {tp: decide(tp, known(tp), case.facts[tp], case.rules) for tp in partitions}

    def _look_up(self, need: Need, partitions: Collection[TopicPartition], case: _Case) -> None:
        """Add the facts that partitions need, except for partitions without a leader."""
        facts, look, leaderless = case.facts, self._look, case.scope.leaderless
        if need is Need.GROUP:
            committed = self._committed(partitions, case)
            facts |= {tp: Facts(GroupFacts(committed.get(tp), self._own_ahead.get(tp))) for tp in partitions}
        elif need is Need.START:
            starts = self._begin(partitions, case)
            facts |= {tp: Facts(facts[tp].group, start) for tp, start in starts.items()}
        elif need is Need.LATEST:
            listed = look.latest([tp for tp in partitions if tp not in leaderless])
            seconds = self._short_logs.seconds
            for tp, one in listed.items():
                before = facts[tp]
                facts[tp] = Facts(
                    before.group, before.start, LogFacts(one.offset, one.leader_epoch, short_seconds=seconds(tp))
                )
        elif need is Need.EPOCH_END:
            ends = look.epoch_ends({tp: case.decisions[tp].known.epoch for tp in partitions})
            facts |= {tp: facts[tp].with_log(epoch_end=end) for tp, end in ends.items()}
        else:
            facts |= {tp: facts[tp].with_log(bounds=both) for tp, both in look.bounds(partitions).items()}

    def _committed(self, partitions: Collection[TopicPartition], case: _Case) -> Mapping[TopicPartition, CommitOffset]:
        # If all copies of a partition emit rows, the committed offset describes one copy only.
        if case.scope.owned.copies:
            return {}
        committed = self._look.committed(partitions, case.scope.lost_topics)
        case.ignored = self._positions.ignored(partitions)
        self._check_topics({tp.topic for tp in case.ignored})
        return committed

    def _check_topics(self, doubtful: Collection[str]) -> None:
        """Check that these topics were not created again since they were described; raises RefreshRetriableError."""
        if doubtful and self._are_replaced(doubtful):
            # No record is lost, because the next attempt reads the new topics from their start.
            raise RefreshRetriableError(f"Topics were deleted or created again: {', '.join(sorted(doubtful))}.")

    def _begin(self, partitions: Collection[TopicPartition], case: _Case) -> dict[TopicPartition, int]:
        """Return the known starts of partitions that neither the query nor its group has read."""
        scope, options = case.scope, self._options
        given = Beginning(
            has_read=bool(scope.start.partitions),
            words=case.words,
            subscribed=self._subscribed,
            replaced=case.ignored.union(tp for tp in partitions if tp.topic in scope.lost_topics),
            later=self._starts_later,
            shares=options.in_group,
        )
        begins = {tp: begin(tp, given) for tp in partitions}
        by_options = [tp for tp, one in begins.items() if one is Start.BY_OPTIONS]
        bounds = starting_bounds(options, by_options, subscribed=self._subscribed, default="latest")
        # `latest` and times have to be looked up before new records are written; the first offset stays.
        case.later = frozenset(tp for tp, bound in bounds.items() if tp in scope.leaderless and bound == EARLIEST)
        case.at_latest = frozenset(tp for tp in by_options if case.words.get(tp.topic) == "latest")
        return self._look.starts(
            {tp: bound for tp, bound in bounds.items() if tp not in case.later},
            {tp: one for tp, one in begins.items() if tp not in scope.leaderless},
        )

    def _act(self, case: _Case) -> None:
        """Report losses, note the positions, and rewind the group where the query steps back."""
        decisions, scope = case.decisions, case.scope
        start_and_end.report(self._options, decisions)
        for tp, one in decisions.items():
            if one.waits:
                self._short_logs.wait_for(tp)
        if any(one.group is not None for one in case.facts.values()):
            self._report_start(case)
        self._positions.follow(decisions)
        back = start_and_end.steps_back(decisions)
        if back:
            self._positions.step_back(back, rewinds=self.marks_steps_back)
            self._offsets.rewind(back)
        if case.rules.asks_group:
            self._positions.keep(scope.partitions)
            self._own_ahead = {tp: offset for tp, offset in self._own_ahead.items() if tp not in decisions}
            self._resolved_join = scope.owned.joins

    def _report_start(self, case: _Case) -> None:
        """Log the partitions that continue at the group's offsets; commit the starts of all other partitions."""
        facts, start, options = case.facts, case.scope.start, self._options
        entries = [one.group.entry for one in facts.values() if one.group is not None and one.group.entry is not None]
        begun = {tp: one.start for tp, one in facts.items() if one.start is not None}
        continued = {
            tp: at for tp, one in case.decisions.items() if tp not in begun and (at := one.known.next) is not None
        }
        if self._resolved_join is None and not start.partitions:
            if self._policy.signs and not self._policy.is_output:
                start_and_end.warn_of_new_checkpoint(options, entries)
            start_and_end.log_committed_start(options, continued, commits=self._policy.keeps)
        self._log_moves(start, case.decisions)
        # Other clients ignore the metadata of offsets, and would continue at the ignored offsets.
        ignored = {tp: at for tp, at in continued.items() if tp in case.ignored}
        self._offsets.remember(ignored | begun)
        self._starts_later |= case.later
        self._start_at_latest |= case.at_latest

    def are_durable(self, start: StreamOffset, starts: Mapping[TopicPartition, int]) -> bool:
        """Return whether a query that restarts before its next micro-batch would resolve the same positions.

        Args:
            start: The start offset of the micro-batch. The checkpoint keeps the positions of its partitions.
            starts: The positions.
        """
        if not starts:
            return True
        if any(starts[tp] != start.ends.get(tp) for tp in self._positions.replaced(starts)):
            # If the group's offsets match the output, the group keeps the positions.
            return self._policy.is_output and (start.by_sink or not start.partitions)
        if start.partitions:
            return self._start_at_latest & starts.keys() <= start.partitions.keys()
        return self._options.starting_offsets == "earliest" and not starts_by_time(self._options)

    def _log_moves(self, start: StreamOffset, decisions: Mapping[TopicPartition, Decision]) -> None:
        """Log the rewinds that the query follows, and the partitions in which its group is ahead."""
        moves: dict[TopicPartition, tuple[int, int]] = {}
        for tp, one in sorted(decisions.items()):
            before, to = self._positions.known(tp).next, one.known.next
            if one.rewound_from is not None:
                log.warning("rewound %s-%d from=%d to=%d", tp.topic, tp.partition, one.rewound_from, to)
            elif before is not None and to is not None and to > before:
                moves[tp] = (before, to)
        # Partitions outside of the last batch belonged to another query, and rewinds are followed on purpose.
        surprising = {
            tp: move for tp, move in moves.items() if tp in start.partitions and not decisions[tp].known.is_replaced
        }
        start_and_end.log_moves(self._options, surprising, of_spark=start.of_spark)
        others = {tp: move for tp, move in moves.items() if tp not in surprising}
        if others:
            log.info("group=%s: other members have read on: %s", self._options.group_id, format_moves(others))

    def _start_by_word(self, start: StreamOffset) -> dict[str, TopicWord]:
        """Return the topics that a starting query has not read and for which `startingOffsets` has a word."""
        if self._resolved_join is not None:
            return {}
        read = {tp.topic for tp in start.partitions}
        return {topic: word for topic, word in starting_words(self._options).items() if topic not in read}
