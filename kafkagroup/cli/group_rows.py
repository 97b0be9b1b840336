"""What `kafkagroup group` shows of a group's lag: by partition, by topic or by member. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kafkagroup.admin.model import Group, PartitionLag
from kafkagroup.admin.rows import Rows


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group in one row.

    Attributes:
        group: The group id.
        type: classic or consumer.
        state: Kafka's group state.
        assignor: The assignor; empty without members.
        coordinator: The coordinator's host:port.
        epoch: The group epoch of the consumer protocol (KIP-848).
        members: The number of members.
        topics: The number of topics with a committed offset or an owner.
        partitions: The number of partitions with a committed offset or an owner.
        uncommitted: How many of them have no committed offset.
        lag: The sum of their lag; a partition without a committed offset counts with all its offsets.
        greatest: The greatest lag of a partition.
    """

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    epoch: int | None
    members: int
    topics: int
    partitions: int
    uncommitted: int
    lag: int
    greatest: int


@dataclass(frozen=True, slots=True)
class LagOf:
    """The lag of a topic or of a member.

    Attributes:
        name: The topic or the member; None: partitions that no member owns.
        partitions: The number of its partitions.
        uncommitted: How many of them have no committed offset.
        lag: The sum of their lag; a partition without a committed offset counts with all its offsets.
        greatest: The greatest lag of a partition.
    """

    name: str | None
    partitions: int
    uncommitted: int
    lag: int
    greatest: int


def overview(group: Group, lag: Iterable[PartitionLag]) -> GroupOverview:
    """Return a group in one row."""
    rows = list(lag)
    return GroupOverview(
        group.group,
        group.type,
        group.state,
        group.assignor,
        group.coordinator,
        group.epoch,
        len(group.members),
        len({row.topic for row in rows}),
        len(rows),
        sum(row.committed is None for row in rows),
        total(rows),
        max((row.behind for row in rows), default=0),
    )


def total(lag: Iterable[PartitionLag]) -> int:
    """Return the lag of all partitions together."""
    return sum(row.behind for row in lag)


def by_topic(lag: Iterable[PartitionLag]) -> Rows[LagOf]:
    """Return the lag of each topic."""
    return _by(lag, lambda row: row.topic)


def by_member(lag: Iterable[PartitionLag]) -> Rows[LagOf]:
    """Return the lag of each member, and of partitions that nobody owns."""
    return _by(lag, lambda row: row.member)


def _by(lag: Iterable[PartitionLag], name_of: Callable[[PartitionLag], str | None]) -> Rows[LagOf]:
    grouped: dict[str | None, list[PartitionLag]] = {}
    for row in lag:
        grouped.setdefault(name_of(row), []).append(row)
    return Rows(
        LagOf,
        (
            LagOf(
                name,
                len(rows),
                sum(row.committed is None for row in rows),
                total(rows),
                max(row.behind for row in rows),
            )
            for name, rows in sorted(grouped.items(), key=lambda item: (item[0] is None, item[0] or ""))
        ),
    )
