"""The owners of a query's partitions and offsets.

The readers use only `PartitionOwner`. The subclasses of `PartitionOwner` are `Standalone` without a group,
`StaticPartitions` for `assign` with a group, and `GroupMemberOwner` (`group_member_owner`) for members of a group.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.offsets import Offsets
from kafka_source.commits.without_members import WithoutMembers
from kafka_source.group.model import OwnedPartitions
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Commit, Rebalance
from kafka_source.model.topic_selection import TopicSelection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnerEvents:
    """The events since the last planned micro-batch; see `DriverFigures`."""

    commits: tuple[Commit, ...] = ()
    failed_commits: int = 0
    rebalances: tuple[Rebalance, ...] = ()


class PartitionOwner:
    """Decides which partitions a query owns, and commits finished offsets.

    The base class has the behaviour without a group: the query owns its selection, and nothing is committed.
    """

    offsets: Offsets = Offsets()
    """The offsets of the query's group."""

    has_joined = False
    """Whether the query is a member of a group."""

    def rebalance_paused(self) -> AbstractContextManager[None]:
        """Return a context in which the query's members rejoin only by calls within it."""
        return nullcontext()

    def join(self) -> None:
        """Join the group, if there is one and the query has not joined yet."""

    def commit(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit `finished` before a rebalance gives partitions away; retry a failed commit until the rebalance.

        Args:
            finished: The next offsets to read; all records before these offsets are durable.
        """

    def rejoin_if_due(self) -> OwnedPartitions:
        """Rejoin the group if a rebalance is due, and return the query's current partitions."""
        raise NotImplementedError

    def still_owned(self) -> bool:
        """Return False if this process knows that it has lost partitions that `rejoin_if_due` returned."""
        return True

    def batch_planned(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> None:
        """Note the micro-batch that was just planned; see `Pace.planned` for the arguments."""

    def tasks_made(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note that tasks have the slots' credentials, in a micro-batch with these ends."""

    def ask(self) -> None:
        """After a failed commit, check whether the query still owns its partitions."""

    def rebalance_due(self) -> bool:
        """Return whether `rejoin_if_due` would rejoin the group."""
        return False

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit `finished`; all records before these offsets are durable."""

    def credentials(self, slot: int) -> SlotCredentials | None:
        """Return the credentials with which a task acts as this slot; None without a group."""
        return None

    def take_events(self) -> OwnerEvents:
        """Return the commits and rebalances since the last call."""
        return OwnerEvents(*self.offsets.take_commits())

    def close(self) -> None:
        """Give the partitions up."""


class Standalone(PartitionOwner):
    """The owner without a group: the query owns all partitions that it selects.

    Args:
        cluster: Looks up the existing partitions.
        subscription: The selection of the query.
    """

    def __init__(self, cluster: Cluster, subscription: TopicSelection) -> None:
        self._cluster = cluster
        self._subscription = subscription

    def rejoin_if_due(self) -> OwnedPartitions:
        """Return all partitions that exist."""
        return OwnedPartitions(dict.fromkeys(self._cluster.partitions(self._subscription), -1))


class StaticPartitions(PartitionOwner):
    """The owner for `assign` with a group.

    As with Java's `KafkaConsumer.assign` and a group id, the query starts at the group's committed offsets, commits
    offsets to the group, and does not join it.

    Args:
        offsets: The group's offsets.
        cluster: Looks up the existing partitions.
        subscription: The partitions of `assign`.
    """

    def __init__(self, offsets: WithoutMembers, cluster: Cluster, subscription: TopicSelection) -> None:
        self.offsets: WithoutMembers = offsets
        self._all = Standalone(cluster, subscription)

    def commit(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit `finished`, and repeat older commits before they expire.

        Raises:
            InvalidConfigurationError: The group has members when the query starts.
            FencedError: Members have joined the group since the start.
        """
        self.offsets.check_has_no_members()
        self.finish(finished)
        self.offsets.repeat_old()

    def rejoin_if_due(self) -> OwnedPartitions:
        """Return the partitions of `assign` that exist; raises as `commit`."""
        self.offsets.check_has_no_members()
        return self._all.rejoin_if_due()

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets that the group does not have; raises as `commit`."""
        self.offsets.finish(finished)
