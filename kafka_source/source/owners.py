"""The owner of a query's partitions: the query itself.

The subclass `GroupMemberOwner` (`group_member_owner`) is for members of a group.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.offsets import Offsets
from kafka_source.group.model import OwnedPartitions
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Commit, Rebalance
from kafka_source.model.topic_selection import TopicSelection


@dataclass(frozen=True, slots=True)
class OwnerEvents:
    """The events since the last planned micro-batch; see `DriverFigures`."""

    commits: tuple[Commit, ...] = ()
    failed_commits: int = 0
    rebalances: tuple[Rebalance, ...] = ()


class PartitionOwner:
    """Determines which partitions a query owns: without members, all partitions that it selects.

    Args:
        cluster: Looks up the existing partitions.
        selection: The selection of the query.
        offsets: The offsets of the query's group.
    """

    has_joined = False
    """Whether the query is a member of a group."""

    def __init__(self, cluster: Cluster, selection: TopicSelection, offsets: Offsets | None = None) -> None:
        self._cluster, self._selection = cluster, selection
        self.offsets = Offsets() if offsets is None else offsets

    def rebalance_paused(self) -> AbstractContextManager[None]:
        """Return a context in which the query's members rejoin only by calls within it."""
        return nullcontext()

    def join(self) -> None:
        """Join the group, if there is one and the query has not joined yet."""

    def commit(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit `finished`, and check earlier commits; call this in each trigger.

        Args:
            finished: The next offsets to read; all records before these offsets are durable.
        """
        self.offsets.finish(finished)
        self.offsets.check_late(now=False)

    def rejoin_if_due(self) -> OwnedPartitions:
        """Rejoin the group if a rebalance is due, and return the query's current partitions.

        Before a rejoin, commit what the last call of `commit` has not committed.
        """
        return OwnedPartitions(dict.fromkeys(self._cluster.partitions(self._selection), -1))

    @property
    def joins(self) -> int:
        """The number of joins of the group; see `OwnedPartitions`."""
        return 0

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

    def credentials(self, slot: int) -> SlotCredentials | None:
        """Return the credentials with which a task acts as this slot; None without a group."""
        return None

    def take_events(self) -> OwnerEvents:
        """Return the commits and rebalances since the last call."""
        return OwnerEvents(*self.offsets.take_commits())

    def leave(self) -> None:
        """Leave the group immediately, even if the user has set instance ids."""

    def close(self) -> None:
        """Give the partitions up."""
