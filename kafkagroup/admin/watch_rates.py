"""Compute the figures of `kafkagroup watch` from samples of a group: rates, the time to catch up, rebalances. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from assignors.model import TopicPartition
from kafkagroup.admin.rows import Group, PartitionLag, Rows

SAMPLES = 40
"""The number of samples in the lag's line of bars."""

_WINDOW_SECONDS = 30.0
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group at one moment.

    Attributes:
        at: Seconds of a monotonic clock.
        group: The group id.
        state: Kafka's group state.
        members: The names of the members.
        owners: The member that owns each partition.
        committed: The committed offsets.
        ends: The ends of the logs.
        behind: The lag, or, for a partition without a committed offset, the number of offsets in the log.
    """

    at: float
    group: str
    state: str
    members: tuple[str, ...]
    owners: Mapping[TopicPartition, str]
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    behind: Mapping[TopicPartition, int]

    @property
    def lag(self) -> int:
        """Return the sum of the lag."""
        return sum(self.behind.values())

    @staticmethod
    def from_group(group: Group, lag: Iterable[PartitionLag], at: float) -> GroupSample:
        """Return the sample of a group that was described together with its lag."""
        rows = {TopicPartition(row.topic, row.partition): row for row in lag}
        ends = {tp: row.end for tp, row in rows.items() if row.end is not None}
        return GroupSample(
            at,
            group.group,
            group.state,
            tuple(member.name for member in group.members),
            {tp: row.member for tp, row in rows.items() if row.member is not None},
            {tp: row.committed for tp, row in rows.items() if row.committed is not None and tp in ends},
            ends,
            {tp: rows[tp].behind or 0 for tp in ends},
        )


@dataclass(frozen=True, slots=True)
class WatchRow:
    """The lag and the rates of a group.

    Attributes:
        group: The group id.
        state: Kafka's group state.
        members: The number of members.
        lag: The sum of the group's lag.
        uncommitted: The number of the group's partitions without a committed offset.
        rate_in: The rate of writes to the group's partitions, in offsets a second; None: not known yet.
        rate_out: The rate of the group's commits, in offsets a second; None: not known yet.
        seconds_to_zero: The seconds until the lag is zero at these rates; None: never, or not known yet.
        rebalances: The number of times that the assignment has changed between two samples.
    """

    group: str
    state: str
    members: int
    lag: int
    uncommitted: int
    rate_in: float | None
    rate_out: float | None
    seconds_to_zero: float | None
    rebalances: int


@dataclass(frozen=True, slots=True)
class WatchMember:
    """The lag and the rate of a member of a group.

    Attributes:
        group: The group id.
        member: The name of the member; None: partitions that no member owns.
        partitions: The number of the member's partitions.
        lag: The sum of the partitions' lag.
        rate_in: The rate of writes to the member's partitions, in offsets a second; None: not known yet.
        rate_out: The rate of the member's commits, in offsets a second; None: not known yet.
        seconds_to_zero: The seconds until the lag is zero at these rates; None: never, or not known yet.
    """

    group: str
    member: str | None
    partitions: int
    lag: int
    rate_in: float | None
    rate_out: float | None
    seconds_to_zero: float | None


@dataclass(frozen=True, slots=True)
class WatchPartition:
    """The timestamp that a group has reached in a partition with lag.

    Attributes:
        group: The group id.
        topic: The topic.
        partition: The number of the partition.
        lag: The partition's lag.
        next_timestamp: The timestamp of the next record, in milliseconds since 1970.
        ahead_seconds: The difference from the group's lowest `next_timestamp`; 0: this partition is furthest behind.
    """

    group: str
    topic: str
    partition: int
    lag: int
    next_timestamp: int
    ahead_seconds: float

    @staticmethod
    def of_group(
        group: str, lag: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int]
    ) -> list[WatchPartition]:
        """Return the partitions of a group, sorted by the timestamps of their next records."""
        least = min(times.values(), default=0)
        return [
            WatchPartition(group, *tp, lag[tp], time, (time - least) / 1000)
            for tp, time in sorted(times.items(), key=lambda one: (one[1], one[0]))
        ]


WatchRows: TypeAlias = "Rows[WatchRow] | Rows[WatchMember] | Rows[WatchPartition]"


class History:
    """The last samples of one group."""

    def __init__(self) -> None:
        self._samples: deque[GroupSample] = deque(maxlen=SAMPLES)
        self._rebalances = 0
        self._settled: Mapping[TopicPartition, str] | None = None
        self._moving = False

    def add(self, sample: GroupSample) -> WatchRow:
        """Add a sample and return the group's row."""
        self._note_rebalance(sample)
        self._samples.append(sample)
        first = self._first()
        rate_in = _rate(first.ends, sample.ends, sample.at - first.at)
        rate_out = _rate(first.committed, sample.committed, sample.at - first.at)
        return WatchRow(
            sample.group,
            sample.state,
            len(sample.members),
            sample.lag,
            len(sample.ends) - len(sample.committed),
            rate_in,
            rate_out,
            _seconds_to_zero(sample.lag, rate_in, rate_out),
            self._rebalances,
        )

    def members(self) -> list[WatchMember]:
        """Return each member's row, sorted by name.

        Only partitions that a member has had since the beginning of the window count for its rates.
        """
        first, last = self._first(), self._samples[-1]
        rows = []
        owners: list[str | None] = [*sorted({*last.members, *last.owners.values()})]
        if last.behind.keys() - last.owners.keys():
            owners.append(None)
        for owner in owners:
            partitions = {tp for tp in last.behind if last.owners.get(tp) == owner}
            kept = {tp for tp in partitions if first.owners.get(tp) == owner and tp in first.behind}
            was_there = owner is None or owner in first.members
            seconds = last.at - first.at if was_there and (kept or not partitions) else 0.0
            lag = sum(last.behind[tp] for tp in partitions)
            rate_in = _rate(_offsets_in(first.ends, kept), _offsets_in(last.ends, kept), seconds)
            rate_out = _rate(_offsets_in(first.committed, kept), _offsets_in(last.committed, kept), seconds)
            to_zero = _seconds_to_zero(lag, rate_in, rate_out)
            rows.append(WatchMember(last.group, owner, len(partitions), lag, rate_in, rate_out, to_zero))
        return rows

    def _first(self) -> GroupSample:
        """Return the first sample of the window over which rates are measured."""
        return next(one for one in self._samples if self._samples[-1].at - one.at <= _WINDOW_SECONDS)

    def lag(self) -> Mapping[TopicPartition, int]:
        """Return the lag of each partition at the last sample."""
        return self._samples[-1].behind

    def line(self) -> str:
        """Return the lag of all samples as a line of bars; the highest bar is the greatest lag."""
        return spark_line([one.lag for one in self._samples])

    def _note_rebalance(self, sample: GroupSample) -> None:
        if sample.state in _REBALANCING:
            self._moving = True
            return
        if self._settled is not None and (self._moving or self._settled != sample.owners):
            self._rebalances += 1
        self._settled, self._moving = sample.owners, False


def spark_line(values: list[int]) -> str:
    """Return numbers as a line of bars."""
    highest = max(values, default=0)
    return "".join(_BARS[0 if highest == 0 else round(value / highest * (len(_BARS) - 1))] for value in values)


def duration_text(seconds: float | None) -> str:
    """Return a duration in at most two units, for example `2h 5m`; `-` if unknown."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit} {rest}{smaller}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def _offsets_in(
    offsets: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    return {tp: offset for tp, offset in offsets.items() if tp in partitions}


def _rate(before: Mapping[TopicPartition, int], now: Mapping[TopicPartition, int], seconds: float) -> float | None:
    """Return the offsets per second; None: no time passed. A partition adds 0 after a rewind to a lower offset."""
    if seconds <= 0:
        return None
    return sum(max(0, offset - before[tp]) for tp, offset in now.items() if tp in before) / seconds


def _seconds_to_zero(lag: int, rate_in: float | None, rate_out: float | None) -> float | None:
    if lag == 0:
        return 0.0
    if rate_in is None or rate_out is None or rate_out <= rate_in:
        return None
    return lag / (rate_out - rate_in)
