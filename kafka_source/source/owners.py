"""Which partitions a query reads, and what it commits: no group, or `assign`; in a group: `group_member_owner`.

The readers see `PartitionOwner` only, so their path is the same for a query without a group (`Standalone`), for
partitions of `assign` whose offsets a group keeps (`StaticPartitions`) and for members of a group
(`group_member_owner`).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.policy import CommitPolicy
from kafka_source.errors import (
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    RefreshRetriableError,
    UnknownTopicError,
)
from kafka_source.group.requests import commit_offsets, describe, fetch_entries
from kafka_source.kafka_client import cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Commit, Rebalance
from kafka_source.model.identity import is_recreated
from kafka_source.model.stream_offset import Copies
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.runtime.deadline import Deadline
from kafka_source.source.positions import Positions, not_below

log = logging.getLogger(__name__)

_COMMIT_SECONDS = 30.0
# A query without new records commits nothing, so this is more than a micro-batch ever has.
_MAX_COMMITS = 32


class SlotsRemovedError(RefreshRetriableError):
    """The group has removed the query's slots, so the trigger begins again in the generation that they join next."""


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """The partitions that a query may read in one generation of the group.

    Attributes:
        slots: The slot of each partition; -1 without a group.
        count: The number of slots; 0 without a group.
        generation: The group's generation; -1 without a group. Its numbers begin again if the group was deleted.
        copies: With `redundant.emit=all` each partition's (slot, replica) pairs, else empty. Then each query keeps its
            own positions, and the group's offsets are those of the first copies, for lag monitors.
        joins: How often the query has been assigned partitions so far; 0 without a group. Others may have read the same
            partitions between two joins, also where the generation has the same number.
        topic_ids: The id of the topic of each partition, where the group assigns by id.
    """

    slots: Mapping[TopicPartition, int]
    count: int = 0
    generation: int = -1
    copies: Mapping[TopicPartition, Copies] = field(default_factory=dict)
    joins: int = 0
    topic_ids: Mapping[TopicPartition, str] = field(default_factory=dict)

    def slots_of(self, topics: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Return the slots of the partitions that are assigned of these topics, which have these ids now.

        A member learns later than the brokers that a topic was created again.
        """
        return {
            tp: slot
            for tp, slot in self.slots.items()
            if not is_recreated(self.topic_ids.get(tp), topics.get(tp.topic))
        }

    def commits(self, tp: TopicPartition) -> bool:
        """Return whether this query commits the group's offset of this partition."""
        return tp in self.slots and (tp not in self.copies or self.copies[tp][0][1] == 0)


@dataclass(frozen=True, slots=True)
class OwnerEvents:
    """What happened since the last planned micro-batch; see `DriverFigures`."""

    commits: tuple[Commit, ...] = ()
    failed_commits: int = 0
    rebalances: tuple[Rebalance, ...] = ()


class PartitionOwner:
    """Decides which partitions a query owns, and commits what it has finished.

    What is defined here is the behaviour without a group: the query owns what it selects, and nobody commits.
    """

    @property
    def keeps(self) -> bool:
        """Whether the group's offsets are kept; see `CommitPolicy`."""
        return False

    def rebalance_paused(self) -> AbstractContextManager[None]:
        """Return a block in which the query's members rejoin only if the block itself says so."""
        return nullcontext()

    def join(self) -> None:
        """Join the group, if there is one and the query has not joined yet."""

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Commit `finished`, rejoin the group if a rebalance is due, and return what the query owns now.

        Args:
            finished: The next offset to read; everything before it is durable.
        """
        raise NotImplementedError

    def still_owned(self) -> bool:
        """Return whether the query still owns what `commit_and_rejoin` returned, as far as this process knows."""
        return True

    def batch_planned(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> None:
        """Note the micro-batch that was just planned; see `Pace.planned` for the arguments."""

    def tasks_made(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note that the tasks of a micro-batch, with these ends, have the slots' credentials."""

    def ask(self) -> None:
        """Ask whether the query still owns its partitions, because a commit in its name has failed."""

    def rebalance_due(self) -> bool:
        """Return whether `commit_and_rejoin` would rejoin the group now."""
        return False

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit `finished`; everything before these offsets is durable."""

    def commit(self, offsets: Mapping[TopicPartition, int], *, has_looked: bool = True) -> None:
        """Commit these offsets now, or raise the error; only members of a group are told to.

        Args:
            offsets: The next offset to read, by partition.
            has_looked: Whether the caller has looked that the topics are still those that were read. Else it gets
                UnknownTopicError where no coordinator says so; nothing is committed, and it looks.
        """
        raise NotImplementedError

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit starting offsets, so that others of the group which get the partitions start there too."""

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back to these, unless they are lower, if the query, its tasks or its sink commit.

        The records in between were lost, or are read again. An offset that is the same gets the rewind's mark.
        """

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return what the group has committed, without partitions for which it has nothing; empty without a group.

        Open transactions over the offsets are waited for. Offsets of another topic of the same name do not count.
        """
        return {}

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Note the ids of the topics that are read, and of their cluster, before `committed` is asked."""

    def ignored(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions where `committed` has last found an offset of another topic of the same name."""
        return frozenset()

    def credentials(self, slot: int) -> SlotCredentials | None:
        """Return the credentials with which a task acts as this slot; None without a group."""
        return None

    def take_events(self) -> OwnerEvents:
        """Return the commits and rebalances since the last call."""
        return OwnerEvents()

    def close(self) -> None:
        """Give the partitions up."""


class Standalone(PartitionOwner):
    """The owner without a group: the query owns all partitions that it selects.

    Args:
        cluster: Where to look up which partitions exist.
        subscription: What the query selects.
    """

    def __init__(self, cluster: Cluster, subscription: TopicSelection) -> None:
        self._cluster = cluster
        self._subscription = subscription

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Return all partitions that exist."""
        return OwnedPartitions(dict.fromkeys(self._cluster.partitions(self._subscription), -1))


class CommittingOwner(PartitionOwner):
    """What the owners have in common whose group keeps offsets.

    Args:
        policy: The query's commit policy.
        positions: Its positions.
    """

    def __init__(self, policy: CommitPolicy, positions: Positions) -> None:
        self._policy, self._positions = policy, positions
        self._done: deque[Commit] = deque(maxlen=_MAX_COMMITS)
        self._failures = 0

    @property
    def keeps(self) -> bool:
        """Whether the group's offsets are kept."""
        return self._policy.keeps

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit starting offsets; see `PartitionOwner`."""
        if self._policy.keeps and starts:
            self._commit_patiently(starts)

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back; see `PartitionOwner`."""
        lowered = not_below(starts, self.committed(sorted(starts))) if self._policy.keeps else {}
        if lowered:
            self._commit_patiently(lowered)

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return what the group has committed; see `PartitionOwner`."""
        return self._positions.of_these_topics(self._entries(partitions))

    def note_topics(self, ids: Mapping[str, str], cluster: str | None) -> None:
        """Note the ids of topics; see `PartitionOwner`."""
        self._positions.note_topics(ids, cluster)

    def ignored(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return where the group has offsets of other topics; see `PartitionOwner`."""
        return self._positions.ignored(partitions)

    def _entries(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return the group's entries; open transactions over them are waited for."""
        raise NotImplementedError

    def take_events(self) -> OwnerEvents:
        """Return the driver's commits since the last call."""
        events = OwnerEvents(tuple(self._done), self._failures)
        self._done.clear()
        self._failures = 0
        return events

    def _commit_patiently(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, and wait for a coordinator that is away or loads the group."""
        raise NotImplementedError

    def _count_commit(self, began: float) -> None:
        """Count a commit that began at this time of the monotonic clock, and has just succeeded."""
        self._done.append(Commit(round(time.time() * 1000), round((time.monotonic() - began) * 1000, 1)))

    def _count_failure(self) -> None:
        self._failures += 1


class StaticPartitions(CommittingOwner):
    """The owner with `assign` and a group: it owns partitions as without a group, and the group keeps their offsets.

    It is what Java's `KafkaConsumer.assign` with a group id is: the query starts at the group's committed offsets and
    commits there, and joins nothing. The coordinator takes such commits only while the group has no members.

    Args:
        options: Of the query; with `assign` and a group.
        policy: Its commit policy.
        cluster: Where to look up which partitions exist.
        subscription: The partitions of `assign`.
        positions: The query's positions; None: it has no checkpoint.
    """

    def __init__(
        self,
        options: ReadOptions,
        policy: CommitPolicy,
        cluster: Cluster,
        subscription: TopicSelection,
        positions: Positions | None = None,
    ) -> None:
        if options.group_id is None:
            raise ValueError("the query has no group")
        super().__init__(policy, positions or Positions())
        self._all = Standalone(cluster, subscription)
        self._group = options.group_id
        self._patience = options.coordinator_timeout_ms / 1000
        self._client = cached_client(options.settings, "commit")
        self._has_checked = False

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Commit `finished`, and return the partitions of `assign` that exist.

        Raises:
            InvalidConfigurationError: The group has members when the query starts.
            FencedError: The group has got members since then.
        """
        self._check_has_no_members()
        self.finish(finished)
        self._repeat_old()
        return self._all.commit_and_rejoin(finished)

    def _entries(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        deadline = Deadline(self._patience)
        return self._client.run(fetch_entries(self._client, self._group, partitions, deadline, learns_ids=True))

    def _check_has_no_members(self) -> None:
        if self._has_checked or not self._policy.keeps:
            return
        found = self._client.run(describe(self._client, self._group, Deadline(self._patience)))
        if found.members:
            raise InvalidConfigurationError(
                f"Group {self._group} has {len(found.members)} members, so a query with assign cannot commit its "
                "offsets. Stop them, use subscribe to share the partitions with them, or give this query a group of "
                "its own. With group.membership=false kafka.group.id is only a label, as in Spark's own source."
            )
        self._has_checked = True

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit what the group does not have yet; raises as `commit_and_rejoin`."""
        missing = self._positions.missing(self._policy.before_plan(finished))
        if not missing:
            return
        try:
            # A rewind counts, or a commit that this driver does not know.
            missing = self._positions.not_behind(missing, self._unknown_entries(missing))
            if not missing:
                return
            began = time.monotonic()
            self._commit(missing, _COMMIT_SECONDS)
            self._count_commit(began)
        except (FencedError, InvalidConfigurationError):
            raise
        except KafkaGroupError as error:
            self._count_failure()
            log.warning("commit group=%s failed, the next micro-batch tries again: %s", self._group, error)

    def _repeat_old(self) -> None:
        """Commit again what nobody has committed for long, as Java's auto commit does.

        A group without members loses the offsets of an idle partition in a few days, while those of the others stay.
        """
        old = self._positions.old()
        if not old:
            return
        try:
            # What somebody has set since then is theirs.
            found = self.committed(sorted(old))
            ours = {tp: offset for tp, offset in old.items() if tp not in found or found[tp].offset == offset}
            if ours:
                self._commit(ours, _COMMIT_SECONDS)
        except (FencedError, InvalidConfigurationError):
            raise
        except KafkaGroupError as error:
            log.warning("commit group=%s of idle partitions failed, it is tried again: %s", self._group, error)
            return
        self._positions.as_committed(old)

    def _unknown_entries(self, missing: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommitOffset]:
        unknown = [tp for tp in sorted(missing) if not self._positions.has_compared(tp)]
        return self.committed(unknown) if unknown else {}

    def _commit_patiently(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._commit(offsets, self._patience)

    def _commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        no_member = SlotCredentials.without_membership(self._group)
        work = commit_offsets(
            self._client, no_member, self._positions.with_notes(offsets), Deadline(seconds), fail_on_unknown_topic=True
        )
        try:
            self._client.run(work)
        except UnknownTopicError as error:
            # The offsets of the other topics are committed.
            log.warning("commit group=%s: %s", self._group, error)
        except FencedError as error:
            raise FencedError(
                f"Members have joined group {self._group} while this query reads it with assign: the coordinator "
                "refuses its commit, and the members may read the same records. The query stops, and its last "
                f"micro-batch is not committed. Stop the members, or give this query a group of its own. ({error})",
                code=error.code,
            ) from error
        self._positions.as_committed(offsets)
