"""The offsets of a read's group: the driver fetches them, and commits the offsets that the commit policy chooses.

`KeptOffsets` decides what to commit. `without_members` sends the commits of queries with `assign`, and `as_members`
those of members; `kept` chooses.
"""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.commits.late_commits import LateCommits
from kafka_source.commits.policy import CommitPolicy
from kafka_source.errors import FencedError, InvalidConfigurationError, KafkaGroupError
from kafka_source.model.commits import CommitOffset
from kafka_source.model.driver_figures import Commit
from kafka_source.model.partition_runs import format_partitions
from kafka_source.options import ReadOptions
from kafka_source.runtime.failpoints import failpoint

log = logging.getLogger(__name__)

# The number of commits that are kept until the query's progress shows them.
_MAX_COMMITS = 32


class ReadPositions(Protocol):
    """The positions of a read, as its commits use them; see `source.positions`."""

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Record the ids of the topics that are read now, and their cluster's id (None: unknown)."""

    def topic_ids(self) -> Mapping[str, str]:
        """Return the known ids of the current topics."""

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

    def note_epochs(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        """Record the leader epochs of these positions."""

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

    def begin_generation(self) -> None:
        """Commit in a new generation of the group from now on."""

    def finish(self, finished: Mapping[TopicPartition, int]) -> bool:
        """Commit the offsets that the policy chooses and the group lacks; return False if another attempt may succeed.

        Args:
            finished: The next offsets to read; all records before these offsets are durable.

        Raises:
            FencedError: Other members own the partitions.
            InvalidConfigurationError: The coordinator refuses the commit, and would refuse a retry.
        """
        return True

    def check_late(self, *, now: bool) -> None:
        """Commit again where a late commit without a transaction has set the group back; other clients' commits stay.

        Args:
            now: Check regardless of the time of the last check.
        """

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

    def of_group(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's offsets, also of other topics of these names, and before the query is a member."""
        return {}

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Record the ids of the topics that are read, and their cluster's id, before `committed` is called."""

    def note_epochs(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        """Record the leader epochs of positions that are committed next.

        If an offset is committed without its epoch, a later truncation below the offset is not detected (KIP-320).
        """

    def ignored(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions where `committed` has last found an offset of another topic of the same name."""
        return frozenset()

    def take_commits(self) -> tuple[tuple[Commit, ...], int]:
        """Return the driver's commits since the last call, and the number of failed commits."""
        return (), 0

    def close(self) -> None:
        """Commit nothing more."""


class KeptOffsets(Offsets, ABC):
    """The common base class of `AsMembers` and `WithoutMembers`: a subclass fetches and sends a group's offsets.

    A subclass adds each commit without a transaction to `_late`.

    Args:
        options: The query's options, with a group.
        policy: The query's commit policy.
        known: The positions of the query's partitions.
    """

    def __init__(self, options: ReadOptions, policy: CommitPolicy, known: ReadPositions) -> None:
        if options.group_id is None:
            raise ValueError("the query has no group")
        self.keeps = policy.keeps
        self._group, self._policy, self._known = options.group_id, policy, known
        self._late = LateCommits(options.settings.seconds("request.timeout.ms", 30_000))
        self._done: deque[Commit] = deque(maxlen=_MAX_COMMITS)
        self._failures = 0

    def finish(self, finished: Mapping[TopicPartition, int]) -> bool:
        """Commit the offsets that the policy chooses; see `Offsets`."""
        try:
            missing = self._not_committed(finished)
            began = time.monotonic()
            committed = self._send(missing) if missing else {}
        except FencedError:
            self._failures += 1
            raise
        except InvalidConfigurationError:
            raise
        except KafkaGroupError as error:
            self._failures += 1
            log.warning("commit group=%s failed, the next micro-batch retries: %s", self._group, error)
            return False
        if committed:
            self._done.append(Commit(round(time.time() * 1000), round((time.monotonic() - began) * 1000, 1)))
            failpoint("offsets-committed")
        self._known.as_committed(committed)
        return True

    def check_late(self, *, now: bool) -> None:
        """Commit again where a late commit has set the group back; see `Offsets`."""
        at = time.monotonic()
        partitions = list(self._committable(dict.fromkeys(self._late.due(math.inf if now else at), 0)))
        if not partitions:
            return
        try:
            again = self._late.set_back(self._fetch(partitions, stable=False), self._known.topic_ids())
            if again:
                log.warning(
                    "group=%s was set back in %s by a late commit; committing again",
                    self._group,
                    format_partitions(sorted(again)),
                )
                self._send(again)
            self._late.looked(at)
        except KafkaGroupError as error:
            log.warning("looking for late commits group=%s failed, retrying: %s", self._group, error)

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit starting offsets; see `Offsets`."""
        if self.keeps and starts:
            self._set(starts)

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back; see `Offsets`."""
        lowered = not_below(starts, self.committed(sorted(starts))) if self.keeps else {}
        if lowered:
            self._set(lowered)

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's committed offsets; see `Offsets`."""
        return self._known.of_these_topics(self._fetch(partitions))

    def of_group(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's offsets; see `Offsets`."""
        return {tp: entry.offset for tp, entry in self._fetch(sorted(partitions)).items()}

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Note the ids of topics; see `Offsets`."""
        self._known.note_topics(ids, cluster)

    def note_epochs(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        """Note the leader epochs of positions; see `Offsets`."""
        self._known.note_epochs(positions, epochs)

    def ignored(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions in which the group has offsets of other topics; see `Offsets`."""
        return self._known.ignored(partitions)

    def take_commits(self) -> tuple[tuple[Commit, ...], int]:
        """Return the driver's commits since the last call; see `Offsets`."""
        taken = tuple(self._done), self._failures
        self._done.clear()
        self._failures = 0
        return taken

    def _not_committed(self, finished: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the part of `finished` that the driver has to commit."""
        missing = self._known.missing(self._committable(self._policy.before_plan(finished)))
        return self._compared(missing) if missing else {}

    def _not_behind(
        self, missing: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return `missing` without the offsets that would set the group back in these partitions."""
        return self._known.not_behind(missing, self.committed(sorted(partitions)) if partitions else {})

    def _set(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._send_patiently(offsets)
        self._known.as_committed(offsets)

    def _committable(self, due: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets of partitions in which this query may commit."""
        return due

    @abstractmethod
    def _compared(self, missing: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return `missing` without offsets that would set the group back; fetch the group's offsets if necessary."""

    @abstractmethod
    def _fetch(self, partitions: list[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, CommitOffset]:
        """Return the group's offsets; if `stable`, wait for open transactions that commit offsets."""

    @abstractmethod
    def _send(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Commit these offsets, and return the committed ones; deleted topics may be left out."""

    @abstractmethod
    def _send_patiently(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, and wait for a coordinator that is unreachable or is loading the group."""


def not_below(
    starts: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, CommitOffset]
) -> dict[TopicPartition, int]:
    """Return the starts to which the group can be set back: its offset is unknown, or at or above the start."""
    return {tp: start for tp, start in starts.items() if tp not in committed or committed[tp].offset >= start}
