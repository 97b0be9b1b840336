"""The rewinds of its group that a query has followed; see `kafka_source.group.rewind`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assignors.model import TopicPartition
from kafka_source.group import rewind
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.model.stream_offset import StreamOffset


class RewindMarks:
    """Which rewind each partition follows, as the checkpoint and this process know it.

    A position in the checkpoint may be ahead of the group's offset, because the last commit has failed. Then the
    checkpoint counts. A mark that was not followed says that the group was rewound on purpose. Then the group counts.
    """

    def __init__(self) -> None:
        self._followed: dict[TopicPartition, str] = {}

    def learn(self, offset: StreamOffset, *, newest: bool = False) -> None:
        """Note which rewinds an offset of the checkpoint follows.

        Args:
            offset: The offset.
            newest: Whether the checkpoint has no newer one. Else what this process knows is newer.
        """
        self._followed = {**self._followed, **offset.rewinds} if newest else {**offset.rewinds, **self._followed}

    def news(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
        """Return the rewinds that the query has not followed yet: their ids, by partition."""
        return {tp: rewind_id for tp, rewind_id in marks_in(committed).items() if self._followed.get(tp) != rewind_id}

    def follow(self, news: Mapping[TopicPartition, str]) -> None:
        """Note that the query continues at the offsets of these rewinds."""
        self._followed |= news

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the rewinds that these partitions follow; without partitions that were never rewound."""
        return {tp: self._followed[tp] for tp in partitions if tp in self._followed}

    def current_ends(self, offset: StreamOffset) -> dict[TopicPartition, int]:
        """Return the ends of an offset without those from before a rewind, which must not be committed over it."""
        return {tp: end for tp, end in offset.ends.items() if offset.rewinds.get(tp) == self._followed.get(tp)}

    def marked(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommitOffset]:
        """Return the offsets as they are committed, each with the mark of the rewind that it follows."""
        return with_marks(offsets, self._followed)


def marks_in(committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, str]:
    """Return the ids of the rewinds that committed offsets have marks of.

    A read without a checkpoint begins at the group's offsets, so it follows all of them. Its commits carry them on, for
    queries with a checkpoint that are stopped meanwhile.
    """
    return {tp: rewind_id for tp, entry in committed.items() if (rewind_id := rewind.id_in(entry.metadata))}


def with_marks(
    offsets: Mapping[TopicPartition, int], rewinds: Mapping[TopicPartition, str]
) -> dict[TopicPartition, CommitOffset]:
    """Return offsets to commit, each with the mark of its partition's rewind, if there was one."""
    return {
        tp: CommitOffset(offset, metadata=rewind.mark(rewinds[tp]) if tp in rewinds else "")
        for tp, offset in offsets.items()
    }
