"""`lag-balanced`: balance the time that members need for their lag, not the number of their partitions.

The leader knows the lag and the rate of each partition (`ClusterMetadata.work`), and members report their speed in
their user data. A unit is a partition, or co-partitioned partitions that stay together. The work of a unit is the
number of records to read within a horizon: the unit's lag, and the records that arrive in this time. The time of a
member is the work of its units divided by its speed. Without known work the assignment is that of `sticky`. See
docs/design/balance.md.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

from assignors.copartition import Folded, check_disjoint, fold
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
from assignors.model import (
    NO_GENERATION,
    Assignment,
    ClusterMetadata,
    GroupSubscription,
    Measures,
    PartitionWork,
    TopicPartition,
)
from assignors.sticky import share
from assignors.sticky_uniform import RackView
from assignors.wire import StickyUserData, decode_sticky_user_data, encode_sticky_user_data

INTERVAL = 300.0
"""The default of the option `interval`, in seconds."""

MAX_HORIZON = 3600.0
"""The horizon, in seconds, of a group that does not keep up, so that its lag never drains."""

BATCH_NOISE = 0.3
"""The relative error of one micro-batch's measure: micro-batches of equal size differ in speed by about 30 %."""

AVERAGED_BATCHES = 30
"""A measure should be the mean of at least this number of micro-batches."""

NOISE = 2 * BATCH_NOISE / math.sqrt(AVERAGED_BATCHES)
"""The relative error of a member's time, two standard deviations (11 %). One measure in twenty has a larger error."""

TOLERANCE = 0.05
"""How far a member's time may be above the shortest possible time before the member gives up units."""

WORTH = (1 + TOLERANCE) * (1 + NOISE) / (1 - NOISE)
"""Units move only if the longest time without moves is more than this factor (1.31) times the balanced plan's longest
time. The factor allows for the tolerance and for errors in both times, so noise moves nothing.
"""

IDLE = 0.01
"""A unit with less than this part of the mean work is idle. Idle units are assigned by number, because a member with
many idle units would be busy when records arrive.
"""

_MAX_SPEED = 1e12
# The largest factor between a speed and the median. A greater difference counts as a measuring error, which must
# neither starve the member nor give it all partitions.
_MAX_SPEED_RATIO = 100.0
# The limit of units times members. A plan compares each unit with each member, which takes about 10 s at the limit.
_MAX_STEPS = 10_000_000

# The user data, big endian: int8 version; float32 records per second, 0 if unknown; int32 length of the claim; the
# claim, which is the member's last assignment as `sticky` user data (V1); a uint16 with the rate of each partition of
# the claim. A later version may append fields, which a leader of this version ignores.
_VERSION = 1
_HEAD = struct.Struct(">bfi")
# A rate is sent as its logarithm in steps of 0.3 %, so that 2 bytes are enough for any partition. 0: unknown rate.
_RATE_STEPS = 256
_MAX_RATE = 0xFFFF


class LagBalancedAssignor(Assignor):
    """Let all members drain their lag at about the same time, and keep their partitions.

    A partition moves only if the move makes the longest time shorter by a factor of `WORTH` (1.31), or gives a member
    its first partition. A member of unknown speed counts as a member of median speed, and gets at most an equal share
    of the partitions of its topics.

    Args:
        groups: Disjoint sets of co-partitioned topics, whose equal partition numbers stay together; None: no sets.
        speed: The records per second that this member can process; None: as measured.
        interval: The least number of seconds between two rebalances that the leader requests for balance, and the
            shortest horizon.
    """

    name: ClassVar[str] = "lag-balanced"

    def __init__(
        self, groups: Sequence[Sequence[str]] | None = None, speed: float | None = None, interval: float = INTERVAL
    ) -> None:
        if speed is not None and not (type(speed) in (int, float) and 0 < speed <= _MAX_SPEED):
            raise ValueError(f"speed must be a number of records per second above 0, got {speed!r}")
        if not (type(interval) in (int, float) and 1 <= interval < math.inf):
            raise ValueError(f"interval must be a number of seconds of at least 1, got {interval!r}")
        check_disjoint(groups or ())
        self._groups = groups or ()
        self._speed = speed
        self._interval = float(interval)
        self._measures = Measures(speed)
        self._last = StickyUserData((), NO_GENERATION)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Return this member's speed, its last assignment, and the rates of its partitions."""
        return encode_measures(self._measures, self._last)

    def on_measures(self, measures: Measures) -> None:
        """Keep the measures for the next `subscription_user_data`; a speed that the user has set stays."""
        self._measures = measures if self._speed is None else replace(measures, speed=self._speed)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Keep the assignment for the next `subscription_user_data`."""
        self._last = StickyUserData(assignment.partitions, generation)

    def rebalance_interval(self) -> float | None:
        """Return the option `interval`."""
        return self._interval

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign by the time to drain, or as `sticky` if the partitions' work is unknown.

        Raises:
            AssignmentError: The topics of a co-partitioned set differ in partition counts or subscribers.
        """
        folded = fold(cluster, group, self._groups)
        members = {member: decode_measures(said.user_data) for member, said in folded.group.items()}
        known = _workload(folded, members, self._interval)
        if known is None:
            claims = {member: said.claim for member, said in members.items()}
            return folded.unfold(share(folded.cluster, folded.group, claims).assignments())
        index, load = known
        units: list[list[int]] = [[] for _ in load.speeds]
        for unit, place in enumerate(balance(load).owners):
            units[place].append(unit)
        names = sorted_names(folded.group)
        return folded.unfold({names[place]: Assignment(index.partitions(own)) for place, own in enumerate(units)})

    def should_rebalance(
        self, cluster: ClusterMetadata, group: GroupSubscription, held: Mapping[str, Assignment]
    ) -> str | None:
        """Return by how much a rebalance would shorten the time to drain; None: too little for a rebalance."""
        folded = fold(cluster, group, self._groups)
        members = {
            member: decode_measures(said.user_data)._replace(claim=StickyUserData(held[member].partitions, 0))
            for member, said in folded.group.items()
            if member in held
        }
        known = _workload(folded, members, self._interval) if len(members) == len(folded.group) else None
        found = None if known is None else balance(known[1])
        if found is None or not found.worth:
            return None
        ratio = found.kept / found.longest
        return f"the work is out of balance: one member needs {ratio:.1f} times as long as after a rebalance"


@dataclass(frozen=True)
class Workload:
    """The work of a group.

    Attributes:
        work: The work of each unit, in records, at least 0.
        speeds: The speed of each member, in records per second, above 0.
        readers: For each unit, the members that may have it, ascending; at least one.
        holders: The member that holds each unit, one of its readers; -1: no member.
        racks: The racks; None if they make no difference.
        max_units: Each member's limit of units, exceeded only if no reader of a unit has room; None: no limit.
    """

    work: Sequence[int]
    speeds: Sequence[float]
    readers: Sequence[Sequence[int]]
    holders: Sequence[int]
    racks: RackView | None = None
    max_units: Sequence[int] | None = None

    @cached_property
    def bound(self) -> float:
        """A lower limit of the longest time, by each unit and by each set of units with the same readers."""
        units: dict[Sequence[int], list[int]] = {}
        for places, work in zip(self.readers, self.work, strict=True):
            units.setdefault(tuple(places), []).append(work)
        everybody = sorted({place for places in units for place in places})
        longest = sum(self.work) / sum(sorted(self.speeds[place] for place in everybody)) if everybody else 0.0
        for places, works in units.items():
            speeds = sorted(self.speeds[place] for place in places)
            longest = max(longest, max(works) / speeds[-1], sum(works) / sum(speeds))
        return longest


@dataclass(frozen=True, slots=True)
class Outcome:
    """An assignment of all units.

    Attributes:
        owners: The member of each unit.
        longest: The time of the member that is done last, in seconds.
        kept: The longest time if all held units had stayed.
        worth: Whether units have moved to make the longest time shorter by a factor of more than `WORTH`.
    """

    owners: Sequence[int]
    longest: float
    kept: float
    worth: bool


def balance(load: Workload) -> Outcome:
    """Assign all units with few moves so that the last member is done as early as possible. Pure.

    The plan is greedy and sticky. Units are placed in the order of their work (longest processing time, LPT). A unit
    stays with its holder if the holder is done within `TOLERANCE` of the shortest possible time. Otherwise the unit
    goes to the member that is done first. The plan is used only if it makes the longest time shorter by a factor of
    more than `WORTH` than a plan that keeps all held units. If it does not, units move only to members that hold
    nothing yet.
    """
    plan = _Plan(load, math.inf)
    kept, worth = plan.longest, False
    if any(holder >= 0 for holder in load.holders):
        balanced = _Plan(load, (1 + TOLERANCE) * load.bound)
        worth = kept > WORTH * balanced.longest
        if worth:
            plan = balanced
        plan.serve_newcomers()
    return Outcome(plan.owners, plan.longest, kept, worth)


class _Plan:
    """An assignment while it is made. A member keeps a held unit while the member's time is at most `limit` seconds."""

    def __init__(self, load: Workload, limit: float) -> None:
        self._load = load
        # The member of each unit; -1: no member yet.
        self.owners = [-1] * len(load.work)
        # Integers, because sums of floats would depend on the order of units.
        self._sums = [0] * len(load.speeds)
        self._counts = [0] * len(load.speeds)
        # If no held unit has to move (no limit), held units come first, and other units fill the remaining time.
        last = [holder < 0 and math.isinf(limit) for holder in load.holders]
        for unit in sorted(range(len(load.work)), key=lambda unit: (last[unit], -load.work[unit], unit)):
            holder = load.holders[unit]
            if holder >= 0 and self._has_room(holder) and self._seconds(holder, unit) <= limit:
                self._put(unit, holder)
            else:
                self._place(unit)

    @property
    def longest(self) -> float:
        """The time of the member that is done last, in seconds."""
        return max(map(self._seconds, range(len(self._sums))), default=0.0)

    def serve_newcomers(self) -> None:
        """Move units to members that held none, while a move clearly shortens the longer of the two members' times."""
        load = self._load
        for newcomer in sorted({place for places in load.readers for place in places} - set(load.holders)):
            while self._has_room(newcomer):
                gains = []
                for unit, owner in enumerate(self.owners):
                    if owner != newcomer and newcomer in load.readers[unit]:
                        before = self._seconds(owner)
                        after = max(self._seconds(newcomer, unit), before - load.work[unit] / load.speeds[owner])
                        if after * (1 + TOLERANCE) < before:
                            gains.append((-before, after, unit))
                if not gains:
                    break
                self._put(min(gains)[-1], newcomer)

    def _place(self, unit: int) -> None:
        """Give a unit to the member that would finish the unit first.

        Of the members that can take the unit without making the longest time longer, members on the unit's racks come
        first. An idle unit goes to the member with the fewest units in relation to its speed.
        """
        load = self._load
        idle = load.work[unit] <= IDLE * sum(load.work) / len(load.work)
        places = [place for place in load.readers[unit] if self._has_room(place)] or load.readers[unit]
        times = {place: self._seconds(place, unit) for place in places}
        longest = max(load.bound, self.longest, min(times.values()))
        costs = [
            (
                load.racks is not None and load.racks.mismatch(place, unit),
                (self._counts[place] + 1) / load.speeds[place] if idle else times[place],
                place,
            )
            for place in places
            if times[place] <= longest
        ]
        self._put(unit, min(costs)[-1])

    def _seconds(self, place: int, unit: int | None = None) -> float:
        """Return the time of a member; with `unit`, the time if the member also had this unit."""
        more = 0 if unit is None or self.owners[unit] == place else self._load.work[unit]
        return (self._sums[place] + more) / self._load.speeds[place]

    def _has_room(self, place: int) -> bool:
        return self._load.max_units is None or self._counts[place] < self._load.max_units[place]

    def _put(self, unit: int, place: int) -> None:
        """Give a unit to a member, and take it from the previous owner, if any."""
        work = self._load.work[unit]
        owner = self.owners[unit]
        if owner >= 0:
            self._sums[owner] -= work
            self._counts[owner] -= 1
        self.owners[unit] = place
        self._sums[place] += work
        self._counts[place] += 1


class MeasuredMember(NamedTuple):
    """The content of a member's user data: its measures, and its previous assignment."""

    measures: Measures
    claim: StickyUserData


def encode_measures(measures: Measures, claim: StickyUserData) -> bytes:
    """Encode a member's measures and its last assignment (`claim`), without rates of partitions not in the claim."""
    partitions = sorted(TopicPartition(*tp) for tp in claim.partitions)
    claimed = encode_sticky_user_data(partitions, claim.generation)
    rates = [_rate_code(measures.rates.get(tp)) for tp in partitions]
    return _HEAD.pack(_VERSION, measures.speed or 0.0, len(claimed)) + claimed + struct.pack(f">{len(rates)}H", *rates)


def decode_measures(data: bytes | None) -> MeasuredMember:
    """Decode a member's user data. Absent or malformed measures are unknown, so that the leader never fails."""
    unknown = MeasuredMember(Measures(), StickyUserData((), NO_GENERATION))
    if data is None or len(data) < _HEAD.size:
        return unknown
    version, speed, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    if version < _VERSION:
        return unknown
    measures = Measures(speed if math.isfinite(speed) and speed > 0 else None)
    if not _HEAD.size <= end <= len(data):
        return unknown._replace(measures=measures)
    claim = decode_sticky_user_data(data[_HEAD.size : end])
    count = len(claim.partitions)
    if len(data) - end >= 2 * count:
        codes = zip(claim.partitions, struct.unpack_from(f">{count}H", data, end), strict=True)
        rates = {TopicPartition(*tp): 2 ** ((code - 1) / _RATE_STEPS) - 1 for tp, code in codes if code}
        measures = replace(measures, rates=rates)
    return MeasuredMember(measures, claim)


def _rate_code(rate: float | None) -> int:
    if rate is None or not math.isfinite(rate) or rate < 0:
        return 0
    return min(_MAX_RATE, 1 + round(_RATE_STEPS * math.log2(1 + rate)))


def _workload(
    folded: Folded, said: Mapping[str, MeasuredMember], interval: float
) -> tuple[PartitionIndex, Workload] | None:
    """Return a group's work, with the members in the order of their ids; None if the work is unknown or too large."""
    names = sorted_names(folded.group)
    members = [said[name] for name in names]
    counts = known_topics(folded.cluster, folded.group)
    index = PartitionIndex(sorted_names(counts), counts)
    if not index.size or index.size * len(members) > _MAX_STEPS:
        return None
    lags, rates = _known_work(folded, index, members)
    if all(lag is None for lag in lags) and all(rate is None for rate in rates):
        return None
    by_topic = readers_by_topic(alike(folded.group, names), counts)
    readers = [by_topic[topic] for topic, count in index.counts.items() for _ in range(count)]
    holders = [-1] * index.size
    for place, claimed in enumerate(resolve(index, [member.claim for member in members]).accepted):
        for unit in claimed:
            holders[unit] = place if place in readers[unit] else holders[unit]
    shares = [0.0] * len(members)
    for topic, count in index.counts.items():
        for place in by_topic[topic]:
            shares[place] = round(shares[place] + count / len(by_topic[topic]), 6)
    measured = [member.measures.speed for member in members]
    known = sorted(speed for speed in measured if speed)
    median = known[len(known) // 2] if known else 1.0
    lowest, highest = median / _MAX_SPEED_RATIO, median * _MAX_SPEED_RATIO
    speeds = [min(max(speed or median, lowest), highest) for speed in measured]
    racks = [folded.group[name].rack or None for name in names]
    replicas = [one for topic, count in index.counts.items() for one in partition_racks(folded.cluster, topic, count)]
    return index, Workload(
        _work(lags, rates, sum(sorted(speeds)) if known else None, interval),
        speeds,
        readers,
        holders,
        RackView(racks, replicas) if racks_matter(racks, replicas) else None,
        [index.size if speed or not known else math.ceil(shares[place]) for place, speed in enumerate(measured)],
    )


def _known_work(
    folded: Folded, index: PartitionIndex, members: Sequence[MeasuredMember]
) -> tuple[list[int | None], list[float | None]]:
    """Return the lag and the rate of each unit; None: unknown for all partitions of the unit.

    A rate that the leader has measured takes precedence over a rate that the partition's previous member reports.
    """
    newest: dict[tuple[str, int], tuple[int, float]] = {}
    for member in members:
        for tp, rate in member.measures.rates.items():
            newest[tp] = max(newest.get(tp, (NO_GENERATION - 1, 0.0)), (member.claim.generation, rate))
    lags: list[int | None] = []
    rates: list[float | None] = []
    for unit in index.partitions(range(index.size)):
        partitions = folded.partitions(unit)
        work = [folded.cluster.work.get(tp, PartitionWork()) for tp in partitions]
        measured = [newest[tp][1] if tp in newest else None for tp in partitions]
        known_lags = [max(0, one.lag) for one in work if one.lag is not None]
        own = [one.rate if one.rate is not None else rate for one, rate in zip(work, measured, strict=True)]
        known_rates = [max(0.0, rate) for rate in own if rate is not None]
        lags.append(sum(known_lags) if known_lags else None)
        rates.append(sum(known_rates) if known_rates else None)
    return lags, rates


def _work(lags: Sequence[int | None], rates: Sequence[float | None], speed: float | None, interval: float) -> list[int]:
    """Return the number of records of each unit to read within the horizon. Unknown lags and rates become the mean.

    The horizon is the time in which the whole group drains its lag at `speed` records per second (None: unknown), but
    at least the interval between rebalances. A member with its share of the work drains its lag within the horizon.
    """
    known_lags = [lag for lag in lags if lag is not None]
    known_rates = [rate for rate in rates if rate is not None]
    mean_lag = sum(known_lags) // len(known_lags) if known_lags else 0
    mean_rate = math.fsum(known_rates) / len(known_rates) if known_rates else 0.0
    all_lags = [mean_lag if lag is None else lag for lag in lags]
    all_rates = [mean_rate if rate is None else rate for rate in rates]
    spare = math.inf if speed is None else speed - math.fsum(all_rates)
    horizon = max(interval, min(sum(all_lags) / spare if spare > 0 else math.inf, MAX_HORIZON))
    work = [lag + int(rate * horizon) for lag, rate in zip(all_lags, all_rates, strict=True)]
    # A group without records to read is balanced by number.
    return work if any(work) else [1] * len(work)
