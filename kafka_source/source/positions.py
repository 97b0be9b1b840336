"""The positions of a query in its partitions, and the group's offsets there. No I/O: callers look up and commit.

The readers, the owners and the tasks' commits share one `Positions`; `decision` has the rules.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from assignors.model import TopicPartition
from kafka_source.group.classic import strategies
from kafka_source.model.commits import RENEW_SECONDS, CommitOffset, OffsetNote, is_of_other_topic, with_notes
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source.decision import Decision, Known


@dataclass(slots=True)
class _Partition:
    """The known facts of one partition.

    Attributes:
        known: The query's position.
        in_flight: The end of a planned micro-batch, until this driver knows that the end is committed.
        committed: The group's offset, if this driver has committed or compared it; None: unknown.
        committed_at: The time at which this driver committed or compared that offset.
        is_ignored: Whether the last looked-up offset of the group is of another topic of this name.
    """

    known: Known = field(default_factory=Known)
    in_flight: int | None = None
    committed: int | None = None
    committed_at: float = 0.0
    is_ignored: bool = False


class Positions:
    """The positions of a query's partitions; see the table of `decision`.

    Args:
        clock: The time in seconds; only differences count.

    Attributes:
        stream: The stream's id, which commits carry; None: no batch is planned yet, or the stream has no id.
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
        """Return the next offset of each of these partitions whose position is resolved."""
        return {tp: at for tp in partitions if (at := self.known(tp).next) is not None}

    def known(self, tp: TopicPartition) -> Known:
        """Return the query's position in a partition."""
        return self._get(tp).known

    def follow(self, decisions: Mapping[TopicPartition, Decision]) -> None:
        """Continue as decided. Commits do not count after a rewind of the group, or a step back behind them."""
        for tp, one in decisions.items():
            partition, at = self._partitions[tp], one.known.next
            steps_back = at is not None and partition.committed is not None and at < partition.committed
            if one.known.rewind != partition.known.rewind or steps_back:
                partition.committed = None
            partition.known = one.known

    def learn(self, offset: StreamOffset, *, newest: bool = False) -> None:
        """Record the stream, the followed rewinds and the leader epochs of an offset of the checkpoint.

        Args:
            offset: The offset.
            newest: Whether `offset` is the newest offset of the checkpoint. An older offset keeps the known rewinds.
        """
        self.stream = offset.stream or self.stream
        self._newest = offset
        for tp, rewind_id in offset.rewinds.items():
            if newest or self.known(tp).rewind is None:
                self._partitions[tp].known = replace(self.known(tp), rewind=rewind_id)

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Record the ids of the topics that are read now, and their cluster's id (None: unknown)."""
        self._topics |= ids
        self._cluster = cluster

    def begin(self, start: StreamOffset) -> None:
        """Continue where the next micro-batch starts; keep the other known facts."""
        if start == self._start:
            for tp, end in self.current_ends(start).items():
                if self.known(tp).next is None:
                    self._partitions[tp].known = replace(self.known(tp), next=end)
            return
        for tp, end in start.ends.items():
            known, epoch = self.known(tp), start.epochs.get(tp, -1)
            if (known.next, known.epoch) != (end, epoch):
                self._partitions[tp].known = replace(self.known(tp), epoch=epoch, checked=epoch)
            self._partitions[tp].known = replace(self.known(tp), next=end, is_replaced=False)
        self._start = start

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Continue in these partitions only; a partition that comes back from another query later is resolved again."""
        for tp in self._partitions.keys() - set(partitions):
            self._partitions[tp].known = replace(self.known(tp), next=None)

    def step_back(self, offsets: Mapping[TopicPartition, int], *, rewinds: bool) -> None:
        """Continue at earlier offsets.

        Args:
            offsets: The offsets.
            rewinds: Whether the step is a rewind. In a rewind, the query's later commits carry the rewind's mark, so
                that earlier positions of the group's queries no longer count.
        """
        mark = strategies.new_id() if rewinds else None
        for tp, offset in offsets.items():
            self._partitions[tp].known = replace(
                self.known(tp), next=offset, is_replaced=True, rewind=mark or self.known(tp).rewind
            )

    def replaced(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions in which a restart would find an offset other than the position."""
        return frozenset(tp for tp in partitions if self.known(tp).is_replaced)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Discard the offsets in topics that were deleted or created again."""
        self._topics = {name: topic_id for name, topic_id in self._topics.items() if name not in topics}
        for tp, partition in self._partitions.items():
            if tp.topic in topics:
                partition.committed = None
                partition.known = replace(partition.known, next=None)

    # ---- leader epochs

    def end_epochs(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return, for each end of a micro-batch, the leader epoch, if it is known.

        A partition without new records keeps its epoch, so that an election alone changes no offset of a checkpoint.

        Args:
            starts: The starts of the micro-batch, which are the positions.
            ends: The ends of the micro-batch.
            leaders: The epoch of the leader that has returned each end; -1: unknown.
        """
        epochs = {tp: leaders.get(tp, -1) if end > starts[tp] else self.known(tp).epoch for tp, end in ends.items()}
        return {tp: epoch for tp, epoch in epochs.items() if epoch >= 0}

    # ---- rewinds of the group

    def unfollowed_rewinds(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
        """Return, by partition, the ids of rewinds that the query has not followed yet."""
        found = {tp: entry.unfollowed_rewind(self.known(tp).rewind) for tp, entry in committed.items()}
        return {tp: rewind for tp, rewind in found.items() if rewind is not None}

    def note_rewinds(self, rewinds: Mapping[TopicPartition, str]) -> None:
        """Note the rewinds that the query already follows at its start."""
        for tp, rewind_id in rewinds.items():
            self._partitions[tp].known = replace(self.known(tp), rewind=rewind_id)

    def rewinds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the id of each partition's last followed rewind; a partition that was never rewound is left out."""
        return {tp: rewind_id for tp in partitions if (rewind_id := self.known(tp).rewind) is not None}

    def current_ends(self, offset: StreamOffset) -> dict[TopicPartition, int]:
        """Return the ends of an offset, except ends from before a rewind: their commit would undo the rewind."""
        return {tp: end for tp, end in offset.ends.items() if offset.rewinds.get(tp) == self.known(tp).rewind}

    def is_own(self, entry: CommitOffset) -> bool:
        """Return whether this offset of the group was committed by this stream."""
        return self.stream is not None and OffsetNote.parse(entry.metadata).stream == self.stream

    # ---- the topics of the group's offsets

    def of_these_topics(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's offsets that belong to the current topics, and record which offsets are ignored."""
        ids = self.topic_ids()
        for tp, entry in committed.items():
            self._partitions[tp].is_ignored = is_of_other_topic(entry, ids.get(tp.topic), self._cluster)
        return {tp: entry for tp, entry in committed.items() if not self._get(tp).is_ignored}

    def ignored(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions where the last looked-up offset of the group is of another topic of this name."""
        return frozenset(tp for tp in partitions if self._get(tp).is_ignored)

    def is_of_new_topic(self, tp: TopicPartition, entry: CommitOffset) -> bool:
        """Return whether an offset belongs to the new topic, if a topic was created again.

        An offset without an id may belong to the deleted topic, unless the request for the offset had the new id.
        """
        note = OffsetNote.parse(entry.metadata)
        topic_id = note.topic if note.topic is not None and note.cluster == self._cluster else entry.topic_id
        return topic_id is not None and topic_id == self._topics.get(tp.topic)

    def topic_ids(self) -> dict[str, str]:
        """Return the known ids of the current topics."""
        return {**self._topics, **self._newest.topics}

    # ---- the driver's commits

    def with_notes(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommitOffset]:
        """Return offsets to commit, with the stream's id, the marks of rewinds, leader epochs and topic ids."""
        epochs = {tp: self._epoch_of(tp, offset) for tp, offset in offsets.items()}
        return with_notes(offsets, self.rewinds(offsets), self.stream, epochs, self.topic_ids(), self._cluster)

    def note_epochs(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        """Record the leader epochs of these positions."""
        for tp, position in positions.items():
            self._partitions[tp].known = replace(self.known(tp), next=position, epoch=epochs[tp])

    def _epoch_of(self, tp: TopicPartition, offset: int) -> int:
        known = self.known(tp)
        return known.epoch if known.next == offset else self._newest.epoch_of(tp, offset)

    def missing(self, finished: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of `finished` that the group is not known to have."""
        return {tp: offset for tp, offset in finished.items() if self._get(tp).committed != offset}

    def has_compared(self, tp: TopicPartition) -> bool:
        """Return whether the group's offset is known."""
        return self._get(tp).committed is not None

    def not_behind(
        self, missing: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommitOffset]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of `missing` that do not set the group back.

        A missing offset that is left out counts as committed, and the group keeps its own offset: another application
        has read on, or the group was rewound while this micro-batch was read.

        Args:
            missing: The offsets that the group is not known to have.
            committed: The group's current offsets.
        """
        rewound = self.unfollowed_rewinds(committed)
        kept = {tp for tp, entry in committed.items() if tp in rewound or entry.offset >= missing[tp]}
        self.as_committed({tp: missing[tp] for tp in kept})
        return {tp: offset for tp, offset in missing.items() if tp not in kept}

    def as_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record the group's offsets, or offsets that count as the group's."""
        now = self._clock()
        for tp, offset in offsets.items():
            known = self._partitions[tp]
            known.committed, known.committed_at = offset, now

    def old(self) -> dict[TopicPartition, int]:
        """Return the offsets that were committed long ago, which a broker discards unless they are committed again."""
        oldest = self._clock() - RENEW_SECONDS
        return {
            tp: known.committed
            for tp, known in self._partitions.items()
            if known.committed is not None and known.committed_at <= oldest
        }

    # ---- the micro-batch in flight

    @property
    def in_flight(self) -> dict[TopicPartition, int]:
        """The ends of the planned micro-batches that this driver does not know to be committed."""
        return {tp: known.in_flight for tp, known in self._partitions.items() if known.in_flight is not None}

    def add_in_flight(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the ends of a micro-batch that is planned."""
        for tp, end in ends.items():
            self._partitions[tp].in_flight = end

    def clear_in_flight(self) -> None:
        """Record that no micro-batch is in flight."""
        for known in self._partitions.values():
            known.in_flight = None

    def _get(self, tp: TopicPartition) -> _Partition:
        return self._partitions.get(tp, _NOTHING)


_NOTHING = _Partition()
