"""Decide where a query continues in a partition, by its position, its group's offset and the partition's log. Pure.

Spark writes the end offset of a batch to its offset log, runs the batch's tasks, lets the sink commit, and records the
batch in its commit log. After that, Spark requests the next end offset, and the driver commits the previous end offset.
A task or the sink commits at most the end of its batch. So the query's own commits are never ahead of the newest batch
in the offset log; commits of other members may be ahead. After a `kill -9` a commit may be missing: with `commit=batch`
the second newest batch's commit, with `commit=task` or `commit=sink` the newest batch's commit.

| offsets that are known at a start or after a rebalance | the partition continues at |
| --- | --- |
| only the checkpoint's offset, or only the group's | that offset |
| both, the group's is lower | the checkpoint's; with `commit=sink` the group's, which matches the output |
| both, the group's is higher by commits of other members | the group's, with a warning that the members have read on |
| both, the group's is higher by own commits | by `group.on.older.checkpoint`: the checkpoint was put back, and \
only the user knows whether the output was put back too |
| the group's has the mark of a rewind that the query does not follow yet | the group's, higher or lower |
| a position beyond the end of the log | the log's end or, if lower, the other known offset (`failOnDataLoss=false`). \
The group is rewound there, so that its previous offset does not count |
| a position before which leader epochs show a loss | the offset where the logs diverge; the group is rewound there |
| offsets of a topic that was created again | the group's, if its metadata name the new topic, or have no id \
and the request had the new id (from Kafka 4.1 on); else the new topic's first offset |
| the metadata of the group's offset name another topic of this name in this cluster | as if the group had no offset; \
without any other position, the topic's first offset, not the options' start |
| no offset | the options' start; if the partition was added while the query ran, its first offset |

Between two rebalances a partition continues at the end of the last micro-batch.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum

from assignors.model import TopicPartition
from kafka_source.errors import DataLossError
from kafka_source.model.commits import CommitOffset


@dataclass(frozen=True, slots=True)
class Known:
    """The query's own position of a partition.

    Attributes:
        next: The offset that the query reads next; None: not resolved.
        other: The lower of the query's and the group's offset; None unless both are known.
        is_replaced: Whether a restart would find another offset than `next`.
        rewind: The id of the last rewind that the query follows; None: there was none.
        epoch: The epoch of the leader whose log had all records before `next` (KIP-320); -1: unknown.
        checked: The epoch of the newest leader whose log is known to have the records before `next`.
    """

    next: int | None = None
    other: int | None = None
    is_replaced: bool = False
    rewind: str | None = None
    epoch: int = -1
    checked: int = -1

    def at(self, offset: int | None, epoch: int) -> "Known":
        """Return the position at an offset with this leader epoch."""
        return replace(self, next=offset, epoch=epoch, checked=self.checked if epoch == self.epoch else epoch)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The group's offset of a partition.

    Attributes:
        entry: The group's committed offset, if it counts; None: there is none.
        own_ahead: The query's own commit that was ahead of the checkpoint when the query started; None: there is none.
    """

    entry: CommitOffset | None = None
    own_ahead: int | None = None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The leader's offsets of a partition.

    Attributes:
        latest: The latest offset; with `read_committed` the last stable offset.
        leader_epoch: The leader's epoch; -1: unknown.
        epoch_end: The offset at which `Known.epoch` ends in the leader's log; -1: unknown; None: not looked up.
        bounds: The log's first offset and its end, open transactions included; None: not looked up.
        short_seconds: The time for which the log has been known to end before the position.
    """

    latest: int
    leader_epoch: int = -1
    epoch_end: int | None = None
    bounds: tuple[int, int] | None = None
    short_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules from the query's options and its commit policy.

    Attributes:
        counts: Returns which of the query's and the group's offset counts.
        asks_group: Whether the group's offset counts even if a position is known: at a start, and after a rebalance.
        replays: Whether a query with an older checkpoint reads its committed records again; else it follows the group.
        is_output: Whether the group's offset matches the output, so that no record below this offset is read again.
        moves_to_first: Whether a position below the log's first offset moves to it; if not, the task detects the loss.
        fails_on_loss: `failOnDataLoss`.
        patience_seconds: The time for which a leader may be behind (`data.loss.patience.ms`).
    """

    counts: Callable[[int | None, int | None], int | None]
    asks_group: bool = False
    replays: bool = False
    is_output: bool = False
    moves_to_first: bool = False
    fails_on_loss: bool = True
    patience_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """The looked-up facts of a partition.

    Attributes:
        group: The facts of the query's group; None: not looked up.
        start: The start of a partition that neither query nor group has read; None: not looked up, or without a leader.
        log: The facts of the partition's log; None: not looked up, or no broker leads the partition.
    """

    group: GroupFacts | None = None
    start: int | None = None
    log: LogFacts | None = None

    def with_log(self, *, epoch_end: int | None = None, bounds: tuple[int, int] | None = None) -> "Facts":
        """Return the facts with further facts of the log."""
        assert self.log is not None, "the latest offset is looked up first"
        epoch_end = self.log.epoch_end if epoch_end is None else epoch_end
        return replace(self, log=replace(self.log, epoch_end=epoch_end, bounds=bounds))


class Need(Enum):
    """The facts that a decision may lack, in the order of their lookups."""

    GROUP = "the group's committed offset"
    START = "where the partition begins"
    LATEST = "the latest offset of the log"
    EPOCH_END = "the end of the known epoch in the leader's log"
    BOUNDS = "the bounds of the log"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a partition.

    Attributes:
        known: The query's new position.
        need: The fact that the decision still lacks, perhaps because no broker leads the partition; None: the decision
            is final.
        rewound_from: The position before the query followed a rewind of its group; None: no rewind, or no position.
        stepped_from: The offset from which the query and its group rewind to `known.next`; None: no rewind.
        loss: The loss of records to report, which ends the query with `failOnDataLoss`; None: there is none.
        waits: Whether the query waits until the log is longer, because the log's leader may be behind.
    """

    known: Known
    need: Need | None = None
    rewound_from: int | None = None
    stepped_from: int | None = None
    loss: DataLossError | None = None
    waits: bool = False

    @property
    def doubts_topic(self) -> bool:
        """Whether the position may lie outside the log, perhaps because the topic was created again."""
        return self.need is Need.BOUNDS or self.loss is not None


def decide(tp: TopicPartition, known: Known, facts: Facts, rules: Rules) -> Decision:
    """Decide where a partition continues, first by the group's offset, then by the partition's log.

    Args:
        tp: The partition.
        known: The query's position.
        facts: The known facts. A decision that lacks a fact names the fact.
        rules: The query's rules.
    """
    if facts.group is not None:
        continued = _by_group(known, facts.group, rules)
    elif rules.asks_group or known.next is None:
        return Decision(known, Need.GROUP)
    else:
        continued = Decision(known)
    if continued.known.next is None:
        if facts.start is None:
            return replace(continued, need=Need.START)
        continued = replace(continued, known=replace(continued.known, next=facts.start))
    if facts.log is None:
        return replace(continued, need=Need.LATEST)
    return _by_log(tp, continued, facts.log, rules)


def _by_group(known: Known, facts: GroupFacts, rules: Rules) -> Decision:
    entry, known = facts.entry, replace(known, other=None)
    if entry is not None and entry.offset == facts.own_ahead:
        known = replace(known, is_replaced=True)
        if rules.replays and known.next is not None:
            return Decision(known, stepped_from=entry.offset)
    rewound_from = None
    if entry is not None and (rewind := entry.unfollowed_rewind(known.rewind)) is not None:
        rewound_from = known.next
        known = replace(known, next=None, rewind=rewind)
    own, group = known.next, None if entry is None else entry.offset
    chosen = rules.counts(own, group)
    epochs = {known.epoch} if own == chosen else set()
    if entry is not None and group == chosen:
        epochs.add(entry.leader_epoch)
    if own is not None and group is not None:
        known = replace(known, other=min(own, group))
    return Decision(known.at(chosen, -1 if chosen is None else max(epochs)), rewound_from=rewound_from)


def _by_log(tp: TopicPartition, continued: Decision, log: LogFacts, rules: Rules) -> Decision:
    known = continued.known
    position = known.next
    assert position is not None, f"{tp} has no position yet"
    if 0 <= known.checked < log.leader_epoch:
        if log.epoch_end is None:
            return replace(continued, need=Need.EPOCH_END)
        if 0 <= log.epoch_end < position:
            # Before this end the log still has the records that were read.
            loss = DataLossError.of_diverged(
                tp, planned=position, end=log.epoch_end, epoch=known.epoch, leader_epoch=log.leader_epoch
            )
            return _move(continued, log.epoch_end, loss, log, rules)
    if position <= log.latest and not rules.moves_to_first:
        epoch = log.leader_epoch if known.epoch < 0 else known.epoch
        checked = max(known.checked, log.leader_epoch)
        # In most triggers no position changes, and copying every position takes longer than the rest of the decision.
        if (known.other, known.epoch, known.checked) == (None, epoch, checked):
            return continued
        return replace(continued, known=replace(known, other=None, epoch=epoch, checked=checked))
    if log.bounds is None:
        return replace(continued, need=Need.BOUNDS)
    first, end = log.bounds
    settled = replace(continued, known=replace(known, other=None))
    if first <= position <= end:
        # The position is beyond the last stable offset, but not beyond the log's end.
        return settled
    # If no leader is known to have had the records, the offset may be wrong, and new records would hide the error.
    if position > end and known.epoch >= 0 and log.short_seconds < rules.patience_seconds:
        return replace(settled, waits=True)
    loss = DataLossError(
        topic=tp.topic,
        partition=tp.partition,
        planned=position,
        available=log.bounds,
        condition="COULD_NOT_READ_OFFSET_RANGE" if position < first else "PARTITION_OFFSET_CHANGED",
    )
    # At the lower offset records may be read twice, but no record is left out. If the group's offset matches the
    # output, no record may be written twice.
    others = () if rules.is_output or known.other is None else (known.other,)
    # Without another request, the tasks detect a position before the first offset.
    to = position if position < first else min((end, *others))
    return _move(settled, to, loss, log, rules)


def _move(continued: Decision, to: int, loss: DataLossError, log: LogFacts, rules: Rules) -> Decision:
    known = replace(continued.known, other=None)
    position = known.next
    if rules.moves_to_first and log.bounds is not None:
        to = max(to, log.bounds[0])
    if position is None or rules.fails_on_loss or to == position:
        return replace(continued, known=known, loss=loss)
    stepped_from = position if continued.stepped_from is None and to < position else continued.stepped_from
    return replace(continued, known=replace(known, next=to, is_replaced=True), stepped_from=stepped_from, loss=loss)


# ---- the start of a partition that neither the query nor its group has read


class Start(Enum):
    """The start of a partition."""

    BY_OPTIONS = "the options' start"
    FIRST = "at its first offset"
    ADDED = "at its first offset, and earlier records are lost: the partition is newer than the query"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The conditions for the starts of partitions.

    Attributes:
        has_read: Whether the query has read, or planned, anything.
        words: The topics for which `startingOffsets` has a word (`earliest` or `latest`), and that the query had not
            read when it started.
        subscribed: The partitions of the subscription when the query started.
        replaced: The partitions of topics that were created again.
        later: Partitions that had no leader when the query started, and begin at their first offset.
        shares: Whether other members may have read partitions of the subscription earlier.
    """

    has_read: bool
    words: Collection[str]
    subscribed: Collection[TopicPartition]
    replaced: Collection[TopicPartition]
    later: Collection[TopicPartition]
    shares: bool


def begin(tp: TopicPartition, given: Beginning) -> Start:
    """Decide where a partition begins.

    A partition that was added while the query runs begins at its first offset, so that no record is missed. A topic
    that the query has not read yet may begin at its word (`earliest`, `latest`) in `startingOffsets`.
    """
    if tp in given.replaced:
        # Another check reports such a topic.
        return Start.FIRST
    if tp in given.subscribed and (not given.has_read or tp.topic in given.words):
        return Start.BY_OPTIONS
    # In a group a partition can be new to this query, but not to the group.
    may_be_read = (given.shares and tp in given.subscribed) or tp in given.later
    return Start.FIRST if may_be_read else Start.ADDED
