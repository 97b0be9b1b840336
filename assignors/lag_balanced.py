"""`lag-balanced`: balances the time that members need for their lag, where other strategies balance numbers.

The leader knows the lag and the rate of each partition (`ClusterMetadata.work`) and how fast each member reads
(`measures`). A member's work is what it has to read within a horizon: its lag, and what arrives meanwhile. Members get
work in proportion to their speeds, so that all are done at about the same time; `drain_time` assigns it. Where no lag
and no rate is known, as in clients without a lookup of offsets, the assignment is that of `sticky`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from assignors.copartition import Folded, check_disjoint, fold
from assignors.drain_time import Outcome, Workload, balance
from assignors.index import (
    PartitionIndex,
    alike,
    known_topics,
    partition_racks,
    racks_matter,
    readers_by_topic,
    resolve,
    sorted_names,
)
from assignors.interface import Assignor
from assignors.measures import MeasuredMember, Measures, decode_measures, encode_measures
from assignors.model import NO_GENERATION, Assignment, ClusterMetadata, GroupSubscription
from assignors.sticky import share
from assignors.uniform import RackView
from assignors.wire import StickyUserData

INTERVAL = 300.0
"""The default of the least number of seconds between two rebalances that the leader asks for."""

LONGEST_HORIZON = 3600.0
"""The horizon of a group that does not keep up, whose lag never drains, in seconds."""

_HIGHEST_SPEED = 1e12
# A speed that is further from the median than this factor is taken for an error of measuring. It must not starve the
# member, nor give everything to it.
_MOST_APART = 100.0
# The most units times members, because a plan compares each unit with each member: about 10 s in the leader.
_MOST_STEPS = 10_000_000


class LagBalancedAssignor(Assignor):
    """Let all members be done with their lag at about the same time, and let them keep their partitions.

    A partition moves only if that makes the longest time shorter by a factor of `drain_time.WORTH` (1.31), or if it
    goes to a member that has none. A member whose speed is unknown counts as one of median speed, and gets no more
    partitions than its share by number.

    Args:
        groups: Sets of co-partitioned topics, whose partitions of the same number stay together; a topic may be in one
            set only. None: no sets.
        speed: The records per second that this member can process, in place of what it measures; None: as measured.
        interval: The least number of seconds between two rebalances that the leader asks for because the balance has
            drifted. The work of at least this time is balanced.
    """

    name: ClassVar[str] = "lag-balanced"

    def __init__(
        self,
        groups: Sequence[Sequence[str]] | None = None,
        speed: float | None = None,
        interval: float = INTERVAL,
    ) -> None:
        if speed is not None and not (_is_number(speed) and 0 < speed <= _HIGHEST_SPEED):
            raise ValueError(f"speed must be a number of records per second above 0, got {speed!r}")
        if not (_is_number(interval) and 1 <= interval < math.inf):
            raise ValueError(f"interval must be a number of seconds of at least 1, got {interval!r}")
        check_disjoint(groups or ())
        self._groups = groups or ()
        self._speed = speed
        self._interval = float(interval)
        self._measures = Measures(speed)
        self._last = StickyUserData((), NO_GENERATION)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return this member's speed, its last assignment, and the rates of its partitions; see `measures`."""
        return encode_measures(self._measures, self._last)

    def on_measures(self, measures: Measures) -> None:
        """Keep what was measured for the next `subscription_user_data`; a speed that the user has set stays."""
        self._measures = measures if self._speed is None else replace(measures, speed=self._speed)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the assignment for the next `subscription_user_data`."""
        self._last = StickyUserData(assignment.partitions, generation)

    def work_interval(self) -> float | None:
        """Return the option `interval`."""
        return self._interval

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign by the time to drain, or as `sticky` does where nothing is known of the partitions' work.

        Raises:
            AssignmentError: The topics of a co-partitioned set differ in partition counts or subscribers.
        """
        folded = fold(cluster, group, self._groups)
        members = {member: decode_measures(said.user_data) for member, said in folded.group.items()}
        found = _balance(folded, members, self._interval)
        if found is None:
            claims = {member: said.claim for member, said in members.items()}
            return folded.unfold(share(folded.cluster, folded.group, claims).assignments())
        given: list[list[int]] = [[] for _ in found.members]
        for unit, place in enumerate(found.outcome.owners):
            given[place].append(unit)
        return folded.unfold(
            {
                member: Assignment(found.index.partitions(units))
                for member, units in zip(found.members, given, strict=True)
            }
        )

    def worth_a_rebalance(
        self, cluster: ClusterMetadata, group: GroupSubscription, held: Mapping[str, Assignment]
    ) -> str | None:
        """Return how much sooner the group would be done after a rebalance, if that is worth one."""
        folded = fold(cluster, group, self._groups)
        members = {
            member: replace(decode_measures(said.user_data), claim=StickyUserData(held[member].partitions, 0))
            for member, said in folded.group.items()
            if member in held
        }
        if len(members) < len(folded.group):
            return None
        found = _balance(folded, members, self._interval)
        if found is None or not found.outcome.worth:
            return None
        kept, longest = found.outcome.kept, found.outcome.longest
        return f"the work is out of balance: one member has {kept / longest:.1f} times what a rebalance would leave"


@dataclass(frozen=True, slots=True)
class _Balanced:
    """A balanced assignment: the units by `index`, and the places of `outcome` in `members`."""

    members: Sequence[str]
    index: PartitionIndex
    outcome: Outcome


def _balance(folded: Folded, said: Mapping[str, MeasuredMember], interval: float) -> _Balanced | None:
    """Balance a group's work; None if nothing is known of it, or the group is too large."""
    members = sorted_names(folded.group)
    counts = known_topics(folded.cluster, folded.group)
    index = PartitionIndex(sorted_names(counts), counts)
    if not index.size or index.size * len(members) > _MOST_STEPS:
        return None
    lags, rates = _known_work(folded, index, [said[member] for member in members])
    if all(lag is None for lag in lags) and all(rate is None for rate in rates):
        return None
    by_topic = readers_by_topic(alike(folded.group, members), counts)
    readers = [by_topic[topic] for topic, count in index.counts.items() for _ in range(count)]
    claims = resolve(index, [said[member].claim for member in members])
    holders = [-1] * index.size
    for place, claimed in enumerate(claims.accepted):
        for unit in claimed:
            if place in readers[unit]:
                holders[unit] = place
    measured = [said[member].measures.speed for member in members]
    speeds = _speeds(measured)
    known = any(measured)
    shares = _shares_by_number(index, by_topic, len(members))
    work = _work_of(lags, rates, sum(sorted(speeds)) if known else None, interval)
    load = Workload(
        work,
        speeds,
        readers,
        holders,
        _racks(folded, index, members),
        [0 if speed or not known else math.floor(shares[place]) for place, speed in enumerate(measured)],
        [index.size if speed or not known else math.ceil(shares[place]) for place, speed in enumerate(measured)],
    )
    return _Balanced(members, index, balance(load))


def _known_work(
    folded: Folded, index: PartitionIndex, members: Sequence[MeasuredMember]
) -> tuple[list[int | None], list[float | None]]:
    """Return the lag and the rate of each unit; None where they are known of none of its partitions.

    The leader's own rate of a partition is preferred to that of the member that had the partition last.
    """
    newest: dict[tuple[str, int], tuple[int, float]] = {}
    for member in members:
        for tp, measured in member.measures.rates.items():
            newest[tp] = max(newest.get(tp, (NO_GENERATION - 1, 0.0)), (member.claim.generation, measured))
    lags: list[int | None] = []
    rates: list[float | None] = []
    for tp in index.partitions(range(index.size)):
        lag: int | None = None
        rate: float | None = None
        for one in folded.partitions(tp):
            work = folded.cluster.work.get(one)
            if work is not None and work.lag is not None:
                lag = (lag or 0) + max(0, work.lag)
            if work is not None and work.rate is not None:
                rate = (rate or 0.0) + max(0.0, work.rate)
            elif one in newest:
                rate = (rate or 0.0) + newest[one][1]
        lags.append(lag)
        rates.append(rate)
    return lags, rates


def _work_of(
    lags: Sequence[int | None], rates: Sequence[float | None], speed: float | None, interval: float
) -> list[int]:
    """Return the records of each unit that are to be read within the horizon; what is unknown counts as the mean.

    The horizon is the time in which the group as a whole drains its lag, but at least the interval in which the
    assignment stays. If a member has its share of the work of that time, its lag is drained at the end of it, too.

    Args:
        lags: The lag of each unit.
        rates: The rate of each unit.
        speed: The speed of all members together, in records per second; None: unknown.
        interval: See `LagBalancedAssignor`.
    """
    known_lags = [lag for lag in lags if lag is not None]
    known_rates = [rate for rate in rates if rate is not None]
    mean_lag = sum(known_lags) // len(known_lags) if known_lags else 0
    mean_rate = math.fsum(known_rates) / len(known_rates) if known_rates else 0.0
    all_lags = [mean_lag if lag is None else lag for lag in lags]
    all_rates = [mean_rate if rate is None else rate for rate in rates]
    horizon = interval
    if speed is not None:
        spare = speed - math.fsum(all_rates)
        drained = sum(all_lags) / spare if spare > 0 else math.inf
        horizon = max(interval, min(drained, LONGEST_HORIZON))
    work = [lag + int(rate * horizon) for lag, rate in zip(all_lags, all_rates, strict=True)]
    # A group that has nothing to read is balanced by number.
    return work if any(work) else [1] * len(work)


def _speeds(measured: Sequence[float | None]) -> list[float]:
    """Return the speed of each member; an unknown one is the median of those that are known, and 1 if none is."""
    known = sorted(speed for speed in measured if speed)
    if not known:
        return [1.0] * len(measured)
    median = known[len(known) // 2]
    return [min(max(speed or median, median / _MOST_APART), median * _MOST_APART) for speed in measured]


def _shares_by_number(index: PartitionIndex, readers: Mapping[str, Sequence[int]], members: int) -> list[float]:
    """Return each member's share of the units by number: an equal part of each topic that it subscribes to."""
    shares = [0.0] * members
    for topic, count in index.counts.items():
        for place in readers[topic]:
            shares[place] += count / len(readers[topic])
    return [round(share, 6) for share in shares]


def _racks(folded: Folded, index: PartitionIndex, members: Sequence[str]) -> RackView | None:
    racks = [folded.group[member].rack or None for member in members]
    if not any(racks) or not folded.cluster.racks:
        return None
    found = [known for topic, count in index.counts.items() for known in partition_racks(folded.cluster, topic, count)]
    return RackView(racks, found) if racks_matter(racks, found) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
