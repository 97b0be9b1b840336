"""What a query notes beside its commits: its stream's id, and the rewinds that it has followed (`group.rewind`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assignors.model import TopicPartition
from kafka_source.group import rewind
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.stream_offset import StreamOffset


class RewindMarks:
    """Which rewind each partition follows, as the checkpoint and this process know it.

    A position in the checkpoint may be ahead of the group's offset, because the last commit has failed. Then the
    checkpoint counts. A mark that was not followed says that the group was rewound on purpose, or that its log has lost
    records. Then the group counts.

    Attributes:
        stream: The stream's id, which its commits carry; None: no batch of it is planned yet, or it commits nothing.
    """

    def __init__(self) -> None:
        self.stream: str | None = None
        self._followed: dict[TopicPartition, str] = {}

    def learn(self, offset: StreamOffset, *, newest: bool = False) -> None:
        """Note whose offset of the checkpoint this is, and which rewinds it follows.

        Args:
            offset: The offset.
            newest: Whether the checkpoint has no newer one. Else what this process knows is newer.
        """
        self.stream = offset.stream or self.stream
        self._followed = {**self._followed, **offset.rewinds} if newest else {**offset.rewinds, **self._followed}

    def news(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
        """Return the rewinds that the query has not followed yet: their ids, by partition."""
        return {tp: rewind_id for tp, rewind_id in marks_in(committed).items() if self._followed.get(tp) != rewind_id}

    def follow(self, news: Mapping[TopicPartition, str]) -> None:
        """Note that the query continues at the offsets of these rewinds."""
        self._followed |= news

    def step_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin a rewind of these partitions, which this query follows.

        What it commits in them from now on has the mark, so that the positions from before count nowhere: not those of
        its own checkpoint, and not those of other queries of the group that get the partitions.
        """
        self._followed |= dict.fromkeys(partitions, rewind.new_id())

    def is_own(self, entry: CommitOffset) -> bool:
        """Return whether this stream has committed an offset of the group."""
        return self.stream is not None and OffsetNote.parse(entry.metadata).stream == self.stream

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the rewinds that these partitions follow; without partitions that were never rewound."""
        return {tp: self._followed[tp] for tp in partitions if tp in self._followed}

    def current_ends(self, offset: StreamOffset) -> dict[TopicPartition, int]:
        """Return the ends of an offset without those from before a rewind, which must not be committed over it."""
        return {tp: end for tp, end in offset.ends.items() if offset.rewinds.get(tp) == self._followed.get(tp)}

    def marked(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommitOffset]:
        """Return the offsets as they are committed, each with the stream's id and the mark that it follows."""
        return with_marks(offsets, self._followed, self.stream)


def marks_in(committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
    """Return the ids of the rewinds that committed offsets have marks of.

    A read without a checkpoint begins at the group's offsets, so it follows all of them. Its commits carry them on, for
    queries with a checkpoint that are stopped meanwhile.
    """
    return {tp: rewind_id for tp, entry in committed.items() if (rewind_id := OffsetNote.parse(entry.metadata).rewound)}


def with_marks(
    offsets: Mapping[TopicPartition, int], rewinds: Mapping[TopicPartition, str], stream: str | None
) -> dict[TopicPartition, CommitOffset]:
    """Return offsets to commit, each with the stream's id and the mark of its partition's rewind, if there was one."""
    return {
        tp: CommitOffset(offset, metadata=OffsetNote(stream, rewinds.get(tp)).metadata)
        for tp, offset in offsets.items()
    }
