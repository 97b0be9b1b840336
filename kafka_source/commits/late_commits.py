"""Late commits without a transaction: if a coordinator handles them after the next commit, they set the group back.

OffsetCommit names the member and its generation, but not the offset to replace. So as long as the generation lasts, a
coordinator accepts a late request, for example of a closed connection, or of a task's attempt that has outlived its
job. In a transaction, the producer's epoch fences late requests.
"""

from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.model.commits import CommitOffset

# The pause between two fetches of the group's offsets while such a commit may be in flight.
_PAUSE_SECONDS = 1.0


class LateCommits:
    """The commits that may still reach the group.

    Args:
        patience: The seconds for which a request may be in flight: `request.timeout.ms`.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._commits: list[tuple[float, Mapping[TopicPartition, CommitOffset]]] = []
        self._done: dict[TopicPartition, CommitOffset] = {}
        self._next_look = 0.0

    def add(self, entries: Mapping[TopicPartition, CommitOffset], at: float) -> None:
        """Note a commit at this time, in seconds."""
        self._commits.append((at + self._patience, entries))
        self._done |= entries

    def due(self, at: float) -> set[TopicPartition]:
        """Return the partitions to check at this time."""
        return {tp for _, entries in self._commits for tp in entries} if at >= self._next_look else set()

    def looked(self, at: float) -> None:
        """Record that the partitions have the expected offsets; checks continue while a request may be in flight."""
        self._next_look = at + _PAUSE_SECONDS
        self._commits = [(until, entries) for until, entries in self._commits if until > at]

    def set_back(
        self, committed: Mapping[TopicPartition, CommitOffset], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """Return the offsets to commit again, because a late commit has overwritten them in the group.

        A commit of a rewind, a tool or another member has other metadata or another offset, and stays. So does a commit
        of a topic that was deleted or created again since: a repetition would name the current topic, or no topic.

        Args:
            committed: The group's offsets.
            topic_ids: The known ids of the current topics; brokers before 2.8 return none.
        """
        return {
            tp: done.offset
            for tp, entry in committed.items()
            if (done := self._done.get(tp)) is not None
            and done.topic_id == topic_ids.get(tp.topic)
            and entry.offset < done.offset
            and self._has(tp, entry)
        }

    def _has(self, tp: TopicPartition, entry: CommitOffset) -> bool:
        """Return whether these commits have the entry; an entry without metadata may be of another client."""
        own = (one[tp] for _, one in self._commits if tp in one)
        return bool(entry.metadata) and any((e.offset, e.metadata) == (entry.offset, entry.metadata) for e in own)
