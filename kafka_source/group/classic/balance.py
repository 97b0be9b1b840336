"""The work that strategies balance: lookups of lag, speed and growth, and the leader's requests for another rebalance.

The speed of a query and the growth of its partitions are measured from trigger to trigger. The speed is measured only
while the query is behind, because a query that keeps up reads at the rate of its topics. If such a query reported this
rate as its speed, it would get less and less work.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from assignors import Assignment, Assignor, Measures, TopicPartition
from assignors.model import PartitionWork
from kafka_source.errors import KafkaGroupError
from kafka_source.group.classic.leader import Led, WorkOf, partitions_of
from kafka_source.group.classic.slot import Slot
from kafka_source.group.requests import fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient

AVERAGED_SECONDS = 900.0
"""The time over which rates and speeds are averaged. A count that is older than this has a weight below 1/e.

With one micro-batch a minute, the average is as exact as a mean of 30 micro-batches
(`assignors.lag_balanced.AVERAGED_BATCHES`).
"""

_FORGOTTEN_SECONDS = 3600.0
# A batch may be slow for a reason other than its records, such as a broker that is down. A query is behind only if its
# batch takes at least this many seconds, and this many times as long as the batch's records took to arrive.
_LONG_SECONDS = 10.0
_LONGER = 1.25


@dataclass(frozen=True, slots=True)
class Average:
    """An average per second, with less weight for older counts.

    Attributes:
        amount: The weighted sum of the counts; recent counts have more weight.
        seconds: The weighted sum of the seconds in which the amounts were counted.
    """

    amount: float = 0.0
    seconds: float = 0.0

    def after(self, amount: float, seconds: float) -> Average:
        """Return the average after another count."""
        weight = math.exp(-seconds / AVERAGED_SECONDS)
        return Average(self.amount * weight + amount, self.seconds * weight + seconds)

    @property
    def per_second(self) -> float | None:
        """The average; None before the first count."""
        return self.amount / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Growth:
    """The number of records per second that are written to partitions.

    Attributes:
        at: When the ends were looked up, in seconds.
        ends: The end offset of each partition at the time `at`.
        averages: The growth of each partition.
    """

    at: float = 0.0
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    averages: Mapping[TopicPartition, Average] = field(default_factory=dict)

    def after(self, at: float, ends: Mapping[TopicPartition, int]) -> Growth:
        """Return the growth after another lookup. Partitions that are not in `ends` are forgotten.

        Args:
            at: The time in seconds; only differences count.
            ends: The end of each partition. An end below the previous end is of a topic that was created again.
        """
        seconds = at - self.at
        if self.ends and seconds <= 0:
            return self
        averages = {}
        for tp, end in ends.items():
            average = self.averages.get(tp, Average())
            before = self.ends.get(tp)
            grown = before is not None and end >= before
            averages[tp] = average.after(end - (before or 0), seconds) if grown else Average()
        return Growth(at, dict(ends), averages)

    @property
    def rates(self) -> dict[TopicPartition, float]:
        """The records per second of each partition that was looked up at least twice."""
        return {tp: rate for tp, average in self.averages.items() if (rate := average.per_second) is not None}


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch that was planned.

    Attributes:
        at: When the micro-batch was planned, in seconds.
        records: The number of offsets in the micro-batch.
        limited: Whether the batch left records unread.
    """

    at: float
    records: int
    limited: bool


@dataclass(frozen=True, slots=True)
class Pace:
    """The measures of a query.

    Attributes:
        growth: The growth of the query's partitions.
        reading: The speed of the query while it is behind.
        measured_at: The time of the last measure of `reading`.
        batch: The batch in flight; None: there is none.
        lasted: The duration of the last batch, in seconds; None before the end of the first batch.
    """

    growth: Growth = field(default_factory=Growth)
    reading: Average = field(default_factory=Average)
    measured_at: float = 0.0
    batch: Batch | None = None
    lasted: float | None = None

    @property
    def speed(self) -> float | None:
        """The records per second that the query reads while it is behind; None: unknown."""
        return self.reading.per_second

    def planned(
        self,
        at: float,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> Pace:
        """Return the measures after a micro-batch was planned.

        Args:
            at: The time in seconds; only differences count.
            starts: The first offset of each partition.
            ends: The next offset after the batch.
            latest: The end of each partition.
        """
        records = sum(ends[tp] - start for tp, start in starts.items())
        limited = any(latest.get(tp, end) > end for tp, end in ends.items())
        return replace(self, growth=self.growth.after(at, latest), batch=Batch(at, records, limited))

    def finished(self, at: float) -> Pace:
        """Return the measures after the batch in flight, if there is one.

        The time of a batch ends when Spark requests the next batch. So the time includes Spark's wait between two
        triggers. The first batch does not count, because it starts workers and opens connections.
        """
        if self.batch is None:
            return self
        batch, seconds = self.batch, at - self.batch.at
        ended = replace(self, batch=None, lasted=seconds)
        if self.lasted is None or seconds <= 0 or batch.records <= 0:
            return ended
        known = self.reading if at - self.measured_at <= _FORGOTTEN_SECONDS else Average()
        behind = batch.limited or (seconds >= _LONG_SECONDS and seconds > _LONGER * self.lasted)
        # A query that keeps up can read at least as fast as in this batch.
        faster = known.per_second is not None and batch.records / seconds > known.per_second
        if behind or faster:
            return replace(ended, reading=known.after(batch.records, seconds), measured_at=at)
        return replace(ended, reading=known)


log = logging.getLogger(__name__)

_LOOKUP_SECONDS = 3.0

EndOffsets = Callable[[KafkaClient, Iterable[TopicPartition], Deadline], Awaitable[Mapping[TopicPartition, int]]]
"""Looks up the ends of partitions; partitions whose end is not found in time are left out."""


class WorkLookup:
    """Looks up the lag of partitions, once and within 3 s, because a whole group waits for its leader.

    Args:
        client: The cluster's client.
        group: The group id.
        end_offsets: Looks up the ends of the partitions.
        clock: The time in seconds; only differences count.
    """

    def __init__(
        self, client: KafkaClient, group: str, end_offsets: EndOffsets, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._group, self._end_offsets, self._clock = client, group, end_offsets, clock
        self._growth = Growth()

    async def look_up(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionWork]:
        """Return the known work in these partitions; empty if the lookup fails or takes too long."""
        wanted = sorted(set(partitions))
        deadline = Deadline(_LOOKUP_SECONDS)
        both = asyncio.gather(
            self._end_offsets(self._client, wanted, deadline),
            fetch_committed(self._client, self._group, wanted, deadline, stable=False),
        )
        try:
            ends, committed = await asyncio.wait_for(both, _LOOKUP_SECONDS)
        except (KafkaGroupError, asyncio.TimeoutError) as error:
            log.warning(
                "lead group=%s: its lags are unknown, so the assignment does not weigh them: %s",
                self._group,
                str(error) or f"no answer within {_LOOKUP_SECONDS:g} s",
            )
            return {}
        self._growth = self._growth.after(self._clock(), ends)
        return work_of(ends, committed, self._growth.rates)


def work_of(
    ends: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int | None],
    rates: Mapping[TopicPartition, float],
) -> dict[TopicPartition, PartitionWork]:
    """Return the work of each partition whose end is known; without a committed offset the lag is unknown."""
    found = {}
    for tp, end in ends.items():
        offset = committed.get(tp)
        found[tp] = PartitionWork(None if offset is None else max(0, end - offset), rates.get(tp))
    return found


LOOKS = 5
"""The number of checks of the balance in the shortest interval between two rebalances that the leader requests."""

_IN_A_ROW = 2
_MAX_FACTOR = 16
# Seconds between two checks whether this query leads a group whose strategy weighs work.
_IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RebalanceBackoff:
    """Decides when the leader requests a rebalance because the balance has drifted. Pure.

    The leader requests a rebalance if two consecutive checks justify it, and the interval since the last rebalance is
    over. After a requested rebalance that moves no partition, the interval doubles, up to 16 times its first length.

    Attributes:
        interval: The shortest time between two rebalances, in seconds.
        since: The time of the last rebalance, in seconds.
        asked: Whether the leader has requested the next rebalance.
        seen: The number of consecutive checks that justify a rebalance.
        factor: The number by which the interval is multiplied.
    """

    interval: float
    since: float
    asked: bool = False
    seen: int = 0
    factor: int = 1

    def after_rebalance(self, at: float, *, moved: bool) -> RebalanceBackoff:
        """Return the state after a rebalance of the group.

        Args:
            at: The time in seconds.
            moved: Whether a partition has a new owner.
        """
        factor = min(self.factor * 2, _MAX_FACTOR) if self.asked and not moved else 1
        return RebalanceBackoff(self.interval, at, factor=factor)

    def after_look(self, at: float, *, worth: bool) -> RebalanceBackoff:
        """Return the state after a check; `asked` becomes true if a rebalance is due."""
        seen = self.seen + 1 if worth else 0
        due = at - self.since >= self.interval * self.factor
        return replace(self, seen=seen, asked=self.asked or (due and seen >= _IN_A_ROW))


@dataclass(frozen=True, slots=True)
class _Assigned:
    """An assignment that this query has made as the leader, with its strategy and generation."""

    led: Led
    strategy: Assignor
    generation: int


class BalanceWatch:
    """Looks up and checks the work of the group for its leader. The methods run on the membership's event loop.

    Args:
        client: The cluster's client.
        group: The group id.
        slots: The slots of the query.
        end_offsets: Looks up the ends of partitions; None: lags are unknown, and there is nothing to watch.

    Attributes:
        lookup: Looks up lags and rates; None: they are unknown.
        reason: The reason for a rebalance of the group; None: there is none.
    """

    def __init__(self, client: KafkaClient, group: str, slots: Sequence[Slot], end_offsets: EndOffsets | None) -> None:
        self.lookup = None if end_offsets is None else WorkLookup(client, group, end_offsets)
        self.reason: str | None = None
        self._group, self._slots = group, slots
        self._assigned: _Assigned | None = None
        self._backoff: RebalanceBackoff | None = None

    def record_throughput(self, speed: float | None, rates: Mapping[TopicPartition, float]) -> None:
        """Keep the query's measures for the leader of the next rebalance.

        Args:
            speed: The records per second that the query reads with all slots while it is behind; None: unknown.
            rates: The records per second that are written to the query's partitions.
        """
        of_slot = Measures(None if speed is None else speed / len(self._slots), rates)
        for slot in self._slots:
            slot.record_throughput(of_slot)

    def record_assignment(self, strategy: Assignor, led: Led, generation: int) -> None:
        """Keep the assignment, so that a later check can judge it."""
        before, self._assigned = self._assigned, None
        interval = strategy.rebalance_interval()
        if interval is None or led.failed is not None:
            return
        moved = before is None or _owners(before.led.plan) != _owners(led.plan)
        backoff = self._backoff or RebalanceBackoff(interval, time.monotonic())
        self._backoff = backoff.after_rebalance(time.monotonic(), moved=moved)
        self._assigned = _Assigned(led, strategy, generation)

    @property
    def work_lookup(self) -> WorkOf | None:
        """Looks up the work in partitions, for the leader; None: the work is unknown."""
        return None if self.lookup is None else self.lookup.look_up

    async def watch(self) -> None:
        """Wait until a check is due; if this query leads the group, check the balance, and perhaps set `reason`."""
        assigned, backoff = self._assigned, self._backoff
        if assigned is None or backoff is None or self.lookup is None or not self._leads(assigned):
            await asyncio.sleep(_IDLE_SECONDS)
            return
        await asyncio.sleep(backoff.interval / LOOKS)
        if self._assigned is not assigned or not self._leads(assigned):
            return
        led = assigned.led
        cluster = led.snapshot.for_assignor(led.topics)
        cluster = replace(cluster, work=await self.lookup.look_up(partitions_of(cluster)))
        # In a thread, like the assignment itself, because the event loop has to send heartbeats.
        reason = await asyncio.get_running_loop().run_in_executor(
            None, assigned.strategy.should_rebalance, cluster, led.group, led.plan
        )
        if self._assigned is not assigned:
            return
        self._backoff = backoff.after_look(time.monotonic(), worth=reason is not None)
        if reason is not None and self._backoff.asked and self.reason is None:
            self.reason = reason
            log.info("balance group=%s generation=%d: %s", self._group, assigned.generation, reason)

    def _leads(self, assigned: _Assigned) -> bool:
        return any(slot.leading and slot.generation == assigned.generation for slot in self._slots)


def _owners(plan: Mapping[str, Assignment]) -> dict[TopicPartition, str]:
    return {tp: member for member, assignment in plan.items() for tp in assignment.partitions}
