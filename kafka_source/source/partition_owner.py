"""What an owner of a query's partitions does: it says which partitions the query reads, and keeps their positions.

The readers see this interface only, so their path is the same for a query without a group (`standalone_owner`), for
members of a group (`group_member_owner`) and for partitions of `assign` whose offsets a group keeps
(`static_partitions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from assignors.model import TopicPartition
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.stream_offset import Copies
from kafka_source.source.owner_events import OwnerEvents


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """The partitions that a query may read in one generation of the group.

    Attributes:
        slots: The slot of each partition; -1 without a group.
        count: The number of slots; 0 without a group.
        generation: The group's generation; -1 without a group.
        copies: With `redundant.emit=all` each partition's (slot, replica) pairs, else empty. Then each query keeps its
            own positions, and the group's offsets are those of the first copies, for lag monitors.
    """

    slots: Mapping[TopicPartition, int]
    count: int = 0
    generation: int = -1
    copies: Mapping[TopicPartition, Copies] = field(default_factory=dict)

    def commits(self, tp: TopicPartition) -> bool:
        """Return whether this query commits the group's offset of this partition."""
        return tp in self.slots and (tp not in self.copies or self.copies[tp][0][1] == 0)


class PartitionOwner(Protocol):
    """Decides which partitions the query owns, and keeps their positions."""

    def undisturbed(self) -> AbstractContextManager[None]:
        """Return a block in which the query's members rejoin only if the block itself says so."""
        ...

    def batch_planned(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the next offset after the micro-batch that was just planned, for each partition that it reads."""
        ...

    def measure(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> None:
        """Measure the query's speed by the micro-batch that was just planned; see `Pace.planned`."""
        ...

    def tasks_made(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note that the tasks of this micro-batch have the slots' credentials."""
        ...

    def join(self) -> None:
        """Join the group, if there is one and the query has not joined yet."""
        ...

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Commit `finished`, rejoin the group if a rebalance is due, and return what the query owns now.

        Args:
            finished: The next offset to read; everything before it is durable.
        """
        ...

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit `finished`; everything before these offsets is durable."""
        ...

    def still_owned(self) -> bool:
        """Return whether the query still owns what `commit_and_rejoin` returned, as far as this process knows."""
        ...

    @property
    def keeps_positions(self) -> bool:
        """Whether `remember` makes positions outlive the query."""
        ...

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit the starting offsets of partitions that have no committed offset yet."""
        ...

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back to these, unless they are lower, if the query, its tasks or its sink commit.

        The records in between were lost, or are read again. An offset that is the same gets the rewind's mark.
        """
        ...

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        """Return what the group has committed, without partitions for which it has nothing; empty without a group."""
        ...

    def credentials(self, slot: int) -> SlotCredentials | None:
        """Return the credentials with which a task acts as this slot; None without a group."""
        ...

    def take_events(self) -> OwnerEvents:
        """Return the commits and rebalances since the last call."""
        ...

    def close(self) -> None:
        """Give the partitions up."""
        ...
