"""How fast a query reads, and how fast its partitions grow, measured from trigger to trigger. Pure.

A speed is measured only while there is more to read than is read: a query that keeps up reads at the rate of its
topics, whatever it could do. If it reported that rate as its speed, it would get less work, would read even less, and
so on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assignors.model import TopicPartition

AVERAGED_SECONDS = 900.0
"""The time over which rates and speeds are averaged: what is older counts for less than 1/e.

With one micro-batch a minute, the average has the weight of 30 of them (`assignors.lag_balanced.AVERAGED_BATCHES`).
"""

_FORGOTTEN_SECONDS = 3600.0
# A batch may be slow for a reason that has nothing to do with its records, such as a broker that is away. Only one that
# takes at least this long, and longer than its records took to arrive by this factor, shows that the query is behind.
_LONG_SECONDS = 10.0
_LONGER = 1.25


@dataclass(frozen=True, slots=True)
class Average:
    """An average per second that forgets.

    Attributes:
        amount: What was counted, recent counts with more weight.
        seconds: The time in which it was counted, with the same weights.
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
    """How many records are written to partitions per second.

    Attributes:
        at: When the ends were looked up, in seconds.
        ends: The end of each partition then.
        averages: The growth of each partition.
    """

    at: float = 0.0
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    averages: Mapping[TopicPartition, Average] = field(default_factory=dict)

    def after(self, at: float, ends: Mapping[TopicPartition, int]) -> Growth:
        """Return the growth after another look. Partitions that are not in `ends` are forgotten.

        Args:
            at: The time in seconds; only differences count.
            ends: The end of each partition. One that is lower than before belongs to a topic that was created again.
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
        at: When it was planned, in seconds.
        records: The number of its offsets.
        limited: Whether there was more to read.
    """

    at: float
    records: int
    limited: bool


@dataclass(frozen=True, slots=True)
class Pace:
    """The measures of a query.

    Attributes:
        growth: How fast its partitions grow.
        reading: How fast it reads while it is behind.
        measured_at: When `reading` was last measured.
        batch: The micro-batch under way; None: there is none.
        lasted: How long the last batch took, in seconds; None before the end of the first one.
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
        """Return the measures after the micro-batch under way, if there is one.

        The time of a batch ends when Spark asks for the next one, so it includes what Spark waits between two triggers:
        the query does not read faster than that. The first batch does not count: it starts workers and opens
        connections.
        """
        if self.batch is None:
            return self
        batch, seconds = self.batch, at - self.batch.at
        ended = replace(self, batch=None, lasted=seconds)
        if self.lasted is None or seconds <= 0 or batch.records <= 0:
            return ended
        known = self.reading if at - self.measured_at <= _FORGOTTEN_SECONDS else Average()
        behind = batch.limited or (seconds >= _LONG_SECONDS and seconds > _LONGER * self.lasted)
        # A query that keeps up reads at least as fast as this.
        faster = known.per_second is not None and batch.records / seconds > known.per_second
        if behind or faster:
            return replace(ended, reading=known.after(batch.records, seconds), measured_at=at)
        return replace(ended, reading=known)
