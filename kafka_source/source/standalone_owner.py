"""The owner without a group."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.model.commits import CommitOffset
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.source.owner_events import OwnerEvents
from kafka_source.source.partition_owner import OwnedPartitions


class Standalone:
    """The owner without a group: the query owns all partitions that it selects, and commits nothing."""

    def __init__(self, cluster: Cluster, subscription: TopicSelection) -> None:
        self._cluster = cluster
        self._subscription = subscription

    def undisturbed(self) -> AbstractContextManager[None]:
        """Return a block that does nothing."""
        return nullcontext()

    def batch_planned(self, ends: Mapping[TopicPartition, int]) -> None:
        """Do nothing."""

    def measure(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> None:
        """Do nothing."""

    def tasks_made(self, ends: Mapping[TopicPartition, int]) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Do nothing."""

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Return all partitions that exist."""
        return OwnedPartitions(dict.fromkeys(self._cluster.partitions(self._subscription), -1))

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Do nothing."""

    def still_owned(self) -> bool:
        """Return True: nobody else takes the partitions."""
        return True

    @property
    def keeps_positions(self) -> bool:
        """Whether this driver commits offsets: False."""
        return False

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Do nothing."""

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Do nothing."""

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return an empty dictionary."""
        return {}

    def credentials(self, slot: int) -> None:
        """Return None."""
        return

    def take_events(self) -> OwnerEvents:
        """Return that nothing has happened."""
        return OwnerEvents()

    def close(self) -> None:
        """Do nothing."""
