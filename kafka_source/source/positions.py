"""The rules by which partitions continue, and what their group has of them. Pure: callers look up and commit.

One object keeps all that a query knows of its partitions. The readers, the owners and the tasks' commits ask it.

Spark writes the end offset of a batch to its offset log, runs the batch's tasks, lets the sink commit, and notes the
batch in its commit log. Only then it asks for the next end offset, and the driver commits. So the group's offset may be
ahead of the end of the newest batch in the offset log by commits of others, but never by the query's own: the driver
commits when the batch is in the commit log, a task or the sink commits at most that end. And after a `kill -9` at any
moment the group's offset may be behind that end, with `commit=batch` by the batch whose commit was in flight, with
`task` and `sink` by the batch that Spark replays.

| known of a partition, at a start or after a rebalance | it continues at |
| --- | --- |
| only the checkpoint's offset, or only the group's | that one |
| both, the group's is behind | the checkpoint's; with `commit=sink` the group's, because it is what the output has |
| both, the group's is ahead by commits of others | the group's: these have read what is in between. A warning says so |
| both, the group's is ahead by own commits | what `group.on.older.checkpoint` says: the checkpoint was put back, and \
nobody but the user knows whether the output was too |
| the group's has the mark of a rewind that the query does not follow yet | the group's, wherever it is |
| a position beyond the end of the log | what is left within the log, else its end (`failOnDataLoss=false`). The group \
follows by a rewind, so that the offset from before counts nowhere |
| a position in a log that has lost records before it, as the leader epochs tell | where the logs diverge, likewise |
| its topic was created again | the group's offset, if its note names the new topic, or has no id and the \
coordinator was asked by the new one (from Kafka 4.1 on); else the new topic's first offset |
| the group's note names another topic of this name and cluster | as if the group had none; where nothing else is \
known, the topic's first offset, and not where the options say |
| nothing | where the starting options say; if it was added while the query ran, its first offset |

Between two rebalances it continues at the end of the last micro-batch.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.group.classic import strategies
from kafka_source.model.commits import (
    RENEW_SECONDS,
    CommitOffset,
    OffsetNote,
    is_of_other_topic,
    rewinds_in,
    with_notes,
)
from kafka_source.model.stream_offset import StreamOffset


@dataclass(slots=True)
class _Partition:
    """What is known of one partition.

    Attributes:
        next: The offset that the query reads next; None: not resolved.
        other: Of the query's offset and the group's the one that does not count, because it is lower; None: none.
        is_replaced: Whether a restart would find another offset than `next` by itself.
        in_flight: The end of a micro-batch that is planned and, as far as this driver knows, not committed.
        committed: The group's offset, as far as this driver has committed or compared it; None: unknown.
        committed_at: When that was, by the clock.
        rewind: The id of the last rewind that the query follows; None: there was none.
        epoch: The epoch of the leader whose log had everything before `next` (KIP-320); -1: unknown.
        checked: The epoch of the last leader whose log is known to have it, too.
        is_ignored: Whether the group's offset, as last looked up, is of another topic of this name.
    """

    next: int | None = None
    other: int | None = None
    is_replaced: bool = False
    in_flight: int | None = None
    committed: int | None = None
    committed_at: float = 0.0
    rewind: str | None = None
    epoch: int = -1
    checked: int = -1
    is_ignored: bool = False


class Positions:
    """The positions of a query's partitions; see the table above.

    Args:
        clock: The time in seconds; only differences count.

    Attributes:
        stream: The stream's id, which its commits carry; None: no batch of it is planned yet, or it has none.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._partitions: defaultdict[TopicPartition, _Partition] = defaultdict(_Partition)
        # The ids of the topics as last described, and of their cluster.
        self._topics: dict[str, str] = {}
        self._cluster: str | None = None
        self._start: StreamOffset | None = None
        self._newest = StreamOffset()
        self.stream: str | None = None

    # ---- where the query continues

    def next_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset that the query reads next, of those of the partitions where it is resolved."""
        return {tp: at for tp in partitions if (at := self._get(tp).next) is not None}

    def learn(self, offset: StreamOffset, *, newest: bool = False) -> None:
        """Note whose offset of the checkpoint this is, which rewinds it follows, and its leader epochs.

        Args:
            offset: The offset.
            newest: Whether the checkpoint has no newer one. Else what this process knows is newer.
        """
        self.stream = offset.stream or self.stream
        self._newest = offset
        for tp, rewind_id in offset.rewinds.items():
            if newest or self._get(tp).rewind is None:
                self._partitions[tp].rewind = rewind_id

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Note the ids of the topics that are read now, and of their cluster; None: unknown."""
        self._topics |= ids
        self._cluster = cluster

    def begin(self, start: StreamOffset) -> None:
        """Continue at the end of a micro-batch, where the next one starts; what is known of it already is kept.

        A partition that another query has owned since then has been read up to there too, unless it was rewound.
        """
        if start == self._start:
            for tp, end in self.current_ends(start).items():
                known = self._partitions[tp]
                known.next = end if known.next is None else known.next
            return
        for tp, end in start.ends.items():
            known = self._partitions[tp]
            epoch = start.epochs.get(tp, -1)
            if (known.next, known.epoch) != (end, epoch):
                known.epoch = known.checked = epoch
            known.next, known.is_replaced = end, False
        self._start = start

    def replace(self, positions: Mapping[TopicPartition, int]) -> None:
        """Continue at these offsets, and nowhere else: what another query owns now is resolved when it comes back."""
        for known in self._partitions.values():
            known.next = None
        for tp, offset in positions.items():
            self._partitions[tp].next = offset

    def merge(
        self,
        partitions: Iterable[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset],
        rule: Callable[[int | None, int | None], int | None],
    ) -> dict[TopicPartition, int]:
        """Return where partitions continue by the query's own offset and the group's, where there is one of them.

        Args:
            partitions: The partitions.
            committed: The group's offsets that count.
            rule: Returns the offset that counts, of the query's own and the group's; None: unknown.
        """
        merged = {}
        for tp in partitions:
            known = self._partitions[tp]
            own, group = known.next, committed[tp].offset if tp in committed else None
            known.other = None
            if own is not None and group is not None:
                known.other = min(own, group)
            chosen = rule(own, group)
            epochs = {known.epoch} if own == chosen else set()
            if tp in committed and group == chosen:
                epochs.add(committed[tp].leader_epoch)
            epoch = -1 if chosen is None else max(epochs)
            if epoch != known.epoch:
                known.epoch = known.checked = epoch
            if chosen is not None:
                merged[tp] = chosen
        return merged

    def within_log(self, tp: TopicPartition, end: int) -> int:
        """Return where a partition continues whose position is beyond the end of its log.

        What the query or the group has not read is read, also if the other one had.
        """
        other = self._get(tp).other
        return end if other is None else min(other, end)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets that do not count: the positions in these partitions are within their logs."""
        for tp in partitions:
            self._partitions[tp].other = None

    def step_back(self, offsets: Mapping[TopicPartition, int], *, rewinds: bool) -> None:
        """Continue at earlier offsets.

        Args:
            offsets: The offsets.
            rewinds: Whether this begins a rewind, which the query follows. What it commits from now on has the mark,
                so that the positions from before count nowhere: not those of its own checkpoint, and not those of
                other queries of the group that get the partitions.
        """
        mark = strategies.new_id() if rewinds else None
        for tp, offset in offsets.items():
            known = self._partitions[tp]
            known.next, known.is_replaced = offset, True
            known.rewind = mark or known.rewind

    def set_replaced(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a restart would find other offsets in these partitions by itself."""
        for tp in partitions:
            self._partitions[tp].is_replaced = True

    def replaced(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions in which a restart would find another offset by itself."""
        return frozenset(tp for tp in partitions if self._get(tp).is_replaced)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget the offsets in topics that were deleted or created again."""
        self._topics = {name: topic_id for name, topic_id in self._topics.items() if name not in topics}
        for tp, known in self._partitions.items():
            if tp.topic in topics:
                known.next = known.committed = None

    # ---- leader epochs

    def to_check(self, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the epochs of the positions whose partitions have a new leader, which may not have what was read.

        Args:
            leaders: The epoch of each partition's leader of now; -1: unknown.
        """
        return {tp: known.epoch for tp, now in leaders.items() if 0 <= (known := self._get(tp)).checked < now}

    def in_log_of(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Note that the logs of leaders of these epochs have everything before the positions."""
        for tp, now in leaders.items():
            known = self._partitions[tp]
            known.epoch = now if known.epoch < 0 else known.epoch
            known.checked = max(known.checked, now)

    def has_epoch(self, tp: TopicPartition) -> bool:
        """Return whether the leader whose log had everything before a position is known."""
        return self._get(tp).epoch >= 0

    def end_epochs(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the leader epochs of the ends of a micro-batch, as far as they are known.

        A partition with nothing to read keeps its epoch, so that an election alone changes no offset of a checkpoint.

        Args:
            starts: Where the micro-batch starts, which are the positions.
            ends: Where it ends.
            leaders: The epoch of the leader that has told each end; -1: unknown.
        """
        epochs = {tp: leaders.get(tp, -1) if end > starts[tp] else self._get(tp).epoch for tp, end in ends.items()}
        return {tp: epoch for tp, epoch in epochs.items() if epoch >= 0}

    # ---- rewinds of the group

    def unfollowed_rewinds(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
        """Return the rewinds that the query has not followed yet: their ids, by partition."""
        return {tp: rewind_id for tp, rewind_id in rewinds_in(committed).items() if self._get(tp).rewind != rewind_id}

    def note_rewinds(self, rewinds: Mapping[TopicPartition, str]) -> None:
        """Note that the query starts with these rewinds done."""
        for tp, rewind_id in rewinds.items():
            self._partitions[tp].rewind = rewind_id

    def follow_rewinds(self, rewinds: Mapping[TopicPartition, str]) -> dict[TopicPartition, int]:
        """Forget the offsets from before these rewinds, and return where the query would have continued."""
        before = self.next_of(rewinds)
        for tp, rewind_id in rewinds.items():
            known = self._partitions[tp]
            known.rewind, known.next, known.committed = rewind_id, None, None
        return before

    def rewinds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the rewinds that these partitions follow; without partitions that were never rewound."""
        return {tp: rewind_id for tp in partitions if (rewind_id := self._get(tp).rewind) is not None}

    def current_ends(self, offset: StreamOffset) -> dict[TopicPartition, int]:
        """Return the ends of an offset without those from before a rewind, which must not be committed over it."""
        return {tp: end for tp, end in offset.ends.items() if offset.rewinds.get(tp) == self._get(tp).rewind}

    def is_own(self, entry: CommitOffset) -> bool:
        """Return whether this stream has committed an offset of the group."""
        return self.stream is not None and OffsetNote.parse(entry.metadata).stream == self.stream

    # ---- which topic the group's offsets are about

    def of_these_topics(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, CommitOffset]:
        """Return the offsets of the group that count, and note where it has one of another topic of this name."""
        ids = self._ids()
        for tp, entry in committed.items():
            self._partitions[tp].is_ignored = is_of_other_topic(entry, ids.get(tp.topic), self._cluster)
        return {tp: entry for tp, entry in committed.items() if not self._get(tp).is_ignored}

    def ignored(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions where the group's offset, as last looked up, is of another topic of this name."""
        return frozenset(tp for tp in partitions if self._get(tp).is_ignored)

    def is_of_new_topic(self, tp: TopicPartition, entry: CommitOffset) -> bool:
        """Return whether an offset is of the topic of now, for a topic that was created again.

        An offset without an id may still be one of the topic before, unless the coordinator was asked by the new id.
        """
        note = OffsetNote.parse(entry.metadata)
        topic_id = note.topic if note.topic is not None and note.cluster == self._cluster else entry.topic_id
        return topic_id is not None and topic_id == self._topics.get(tp.topic)

    def _ids(self) -> dict[str, str]:
        return {**self._topics, **self._newest.topics}

    # ---- what the driver commits

    def with_notes(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommitOffset]:
        """Return offsets as they are committed: with the stream's id, rewinds' marks, leader epochs and topic ids."""
        epochs = {tp: self._epoch_of(tp, offset) for tp, offset in offsets.items()}
        return with_notes(offsets, self.rewinds(offsets), self.stream, epochs, self._ids(), self._cluster)

    def _epoch_of(self, tp: TopicPartition, offset: int) -> int:
        known = self._get(tp)
        return known.epoch if known.next == offset else self._newest.epoch_of(tp, offset)

    def missing(self, finished: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of `finished` that the group does not have, as far as known."""
        return {tp: offset for tp, offset in finished.items() if self._get(tp).committed != offset}

    def has_compared(self, tp: TopicPartition) -> bool:
        """Return whether the group's offset is known."""
        return self._get(tp).committed is not None

    def not_behind(
        self, missing: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommitOffset]
    ) -> dict[TopicPartition, int]:
        """Return the offsets to commit of `missing`, without those that would set the group back.

        Another application may have read on before the partitions came back, or the group was rewound while this
        micro-batch was read. These count as committed; the next micro-batch begins at the group's offset.

        Args:
            missing: The offsets that the group does not have, as far as known.
            committed: What it has now.
        """
        rewound = self.unfollowed_rewinds(committed)
        kept = {tp for tp, entry in committed.items() if tp in rewound or entry.offset >= missing[tp]}
        self.as_committed({tp: missing[tp] for tp in kept})
        return {tp: offset for tp, offset in missing.items() if tp not in kept}

    def as_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note what the group has, or what counts as if it had it."""
        now = self._clock()
        for tp, offset in offsets.items():
            known = self._partitions[tp]
            known.committed, known.committed_at = offset, now

    def old(self) -> dict[TopicPartition, int]:
        """Return the offsets that were committed long ago, which a broker forgets if nobody commits them again."""
        oldest = self._clock() - RENEW_SECONDS
        return {
            tp: known.committed
            for tp, known in self._partitions.items()
            if known.committed is not None and known.committed_at <= oldest
        }

    # ---- the micro-batch in flight

    @property
    def in_flight(self) -> dict[TopicPartition, int]:
        """The ends of the micro-batches that are planned and, as far as this driver knows, not committed."""
        return {tp: known.in_flight for tp, known in self._partitions.items() if known.in_flight is not None}

    def add_in_flight(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the ends of a micro-batch that is planned."""
        for tp, end in ends.items():
            self._partitions[tp].in_flight = end

    def clear_in_flight(self) -> None:
        """Note that nothing is in flight any more."""
        for known in self._partitions.values():
            known.in_flight = None

    def _get(self, tp: TopicPartition) -> _Partition:
        return self._partitions.get(tp, _NOTHING)


_NOTHING = _Partition()
