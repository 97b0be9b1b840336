"""The offsets of a read's group: the driver fetches them, and commits the offsets that the commit policy chooses.

`without_members` has the commits of queries with `assign`, and `as_members` those of members.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.commits.policy import CommitPolicy
from kafka_source.model.commits import CommitOffset
from kafka_source.model.driver_figures import Commit

# The number of commits that are kept until the query's progress shows them.
_MAX_COMMITS = 32


class ReadPositions(Protocol):
    """The positions of a read, as its commits use them; see `source.positions`."""

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Record the ids of the topics that are read now, and their cluster's id (None: unknown)."""

    def of_these_topics(self, committed: Mapping[TopicPartition, CommitOffset]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's offsets that belong to the current topics, and record which offsets are ignored."""

    def ignored(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions whose last fetched group offset is of another topic of the same name."""

    def missing(self, finished: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets of `finished` that the group is not known to have."""

    def has_compared(self, tp: TopicPartition) -> bool:
        """Return whether the group's offset is known."""

    def not_behind(
        self, missing: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommitOffset]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of `missing` that do not set the group back."""

    def with_notes(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommitOffset]:
        """Return offsets with the metadata with which they are committed."""

    def as_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record these offsets as the group's offsets."""

    def old(self) -> dict[TopicPartition, int]:
        """Return the offsets to commit again before brokers discard them."""


class Offsets:
    """The offsets of a group; this class has the behaviour without a group."""

    keeps = False
    """Whether the group's offsets are kept; see `CommitPolicy`."""

    def commit(self, offsets: Mapping[TopicPartition, int], *, has_looked: bool = True) -> None:
        """Commit these offsets now, or raise the error; only for members of a group.

        Args:
            offsets: The next offset to read, by partition.
            has_looked: Whether the caller has compared the topics with the topics that were read. If neither the caller
                nor the coordinator compares the topics, UnknownTopicError is raised before the commit.
        """
        raise NotImplementedError("this query is no member of a group")

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit starting offsets, so that later owners of the partitions start there too."""

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back to these starts, if the policy keeps the group's offsets.

        If the group's offset is lower than the start, it stays. If they are equal, commit again with the rewind's id.
        """

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's committed offsets; a partition without an offset is left out.

        Wait for open transactions that commit offsets. Offsets of another topic of the same name do not count.
        """
        return {}

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Record the ids of the topics that are read, and their cluster's id, before `committed` is called."""

    def ignored(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions where `committed` has last found an offset of another topic of the same name."""
        return frozenset()

    def take_commits(self) -> tuple[tuple[Commit, ...], int]:
        """Return the driver's commits since the last call, and the number of failed commits."""
        return (), 0

    def close(self) -> None:
        """Commit nothing more."""


class KeptOffsets(Offsets, ABC):
    """The common base class of `AsMembers` and `WithoutMembers`."""

    def __init__(self, policy: CommitPolicy, known: ReadPositions) -> None:
        self.keeps = policy.keeps
        self._policy, self._known = policy, known
        self._done: deque[Commit] = deque(maxlen=_MAX_COMMITS)
        self._failures = 0

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit starting offsets; see `Offsets`."""
        if self.keeps and starts:
            self._commit_patiently(starts)

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back; see `Offsets`."""
        lowered = not_below(starts, self.committed(sorted(starts))) if self.keeps else {}
        if lowered:
            self._commit_patiently(lowered)

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's committed offsets; see `Offsets`."""
        return self._known.of_these_topics(self._entries(partitions))

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Note the ids of topics; see `Offsets`."""
        self._known.note_topics(ids, cluster)

    def ignored(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions in which the group has offsets of other topics; see `Offsets`."""
        return self._known.ignored(partitions)

    def take_commits(self) -> tuple[tuple[Commit, ...], int]:
        """Return the driver's commits since the last call; see `Offsets`."""
        taken = tuple(self._done), self._failures
        self._done.clear()
        self._failures = 0
        return taken

    @abstractmethod
    def _entries(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's entries; wait for open transactions that commit offsets."""

    @abstractmethod
    def _commit_patiently(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, and wait for a coordinator that is unreachable or is loading the group."""

    def _count_commit(self, began: float) -> None:
        """Count a commit that began at this time of the monotonic clock, and has just succeeded."""
        self._done.append(Commit(round(time.time() * 1000), round((time.monotonic() - began) * 1000, 1)))

    def _count_failure(self) -> None:
        self._failures += 1


def not_below(
    starts: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommitOffset]
) -> dict[TopicPartition, int]:
    """Return the starts to which the group can be set back: its offset is unknown, or at or above the start."""
    return {tp: start for tp, start in starts.items() if tp not in committed or committed[tp].offset >= start}
