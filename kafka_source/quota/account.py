"""The account of a query's quota: from the tasks' fetches, it decides when and how much each task may fetch.

KIP-13 delays a reader by (observed - bound x window) / bound. With the brokers' sliding window, a reader's pause
counts twice: when it happens, and when it leaves the window. The account's window begins with the first fetch, and
skips only the part of a pause that the reader may not catch up. So a reader catches up once, and an idle reader saves
at most 4 % of a window. Callers pass the time.
"""

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from assignors.model import TopicPartition
from kafka_source.quota.bounds import BROKER, Amounts, Bounds, QuotaSettings


def delay_of(observed: float, bound: float, window: float) -> float:
    """Return KIP-13's delay in seconds, (observed - bound x window) / bound, at least 0.

    Args:
        observed: The amount in the window.
        bound: The allowed amount a second.
        window: The length of the window in seconds.
    """
    return max(0.0, (observed - bound * window) / bound)


class Sensor:
    """Adds up amounts over the last samples and the current sample."""

    def __init__(self, windows: int, seconds: float) -> None:
        self._windows = windows
        self._seconds = seconds
        # Start and amount of each sample.
        self._samples: deque[tuple[float, float]] = deque()

    def record(self, amount: float, now: float) -> None:
        """Add an amount to the current sample, or begin the next."""
        self._expire(now)
        is_filled = not self._samples or now - self._samples[-1][0] >= self._seconds
        start, before = (now, 0.0) if is_filled else self._samples.pop()
        self._samples.append((start, before + amount))

    def observed(self, now: float) -> float:
        """Return the amount in the window."""
        self._expire(now)
        return sum(amount for _, amount in self._samples)

    def window(self, now: float) -> float:
        """Return the length of the window: the seconds since its oldest sample began."""
        self._expire(now)
        return now - self._samples[0][0] if self._samples else 0.0

    def rate(self, now: float) -> float:
        """Return the amount a second in the window, whose length counts as at least one sample."""
        return self.observed(now) / max(self._seconds, self.window(now))

    def _expire(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._windows * self._seconds:
            self._samples.popleft()


CATCH_UP_FACTOR = 0.04
"""The part of the bound by which a reader may exceed the bound after a pause, in its rate and in a window's sum."""


class Limiter:
    """Compares bytes or records with a bound.

    Args:
        bound: The allowed amount a second; None: unlimited.
        windows: The number of samples in the window of the observed rate.
        seconds: The length of one sample.
    """

    def __init__(self, bound: float | None, windows: int, seconds: float) -> None:
        self._bound = bound
        self.sensor = Sensor(windows, seconds)
        self._max_saved = CATCH_UP_FACTOR * windows * seconds
        # The amount in the delay's window, and the time at which the rate allows the next fetch.
        self._amount = 0.0
        self._since = self._next_at = float("-inf")

    def delay(self, now: float) -> float:
        """Return the seconds to wait before the next fetch."""
        if self._bound is None:
            return 0.0
        return max(delay_of(self._amount, self._bound, now - self._since), self._next_at - now)

    def record(self, amount: float, now: float) -> None:
        """Add a fetched amount; a negative amount corrects an estimate."""
        self.sensor.record(amount, now)
        if self._bound is not None:
            self._since = max(self._since, now - self._amount / self._bound - self._max_saved)
            self._amount += amount
            self._next_at = max(self._next_at, now) + amount / ((1 + CATCH_UP_FACTOR) * self._bound)

    def used(self, now: float) -> float:
        """Return the used percentage of the bound; at 100 readers have to wait."""
        if self._bound is None:
            return 0.0
        return 100.0 if self.delay(now) > 0 else min(100.0, 100 * self.sensor.rate(now) / self._bound)


GRANT_SECONDS = 0.05
"""A grant is the amount that the bound allows in this time, so all tasks together send twenty requests a second."""

BROKER_SAFETY_FACTOR = 0.99
"""The part of the brokers' quota that a query uses, because their window is not aligned with the query's."""

_NOTHING: Amounts = (0.0, 0.0)


@dataclass(slots=True)
class Report:
    """What a task has read since its last report, and the number of offsets that it has still to read.

    Attributes:
        slot: The task's slot or input partition.
        bytes: Bytes on the wire.
        records: Offsets that were fetched.
        delay: Seconds that the task waited for the quota.
        throttle: Seconds of pauses by the brokers' throttling (KIP-219).
        left: Offsets that are still to be read; 0: the task is done.
        sizes: For each measurement, the topic, the partition, and the number of bytes and of offsets.
        bad_records: Records whose values cannot be decoded.
        busy: The duration in seconds of a task that is done, without its waits for the quota and for throttling.
    """

    slot: int
    bytes: float = 0.0
    records: float = 0.0
    delay: float = 0.0
    throttle: float = 0.0
    left: int = 0
    sizes: list[tuple[str, int, float, int]] = field(default_factory=list)
    bad_records: int = 0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Reported:
    """The sums of all reports: finished tasks, their bad records, and the seconds in which they were busy."""

    tasks_done: int = 0
    bad_records: int = 0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Grant:
    """The permission of a task: wait for `delay` seconds, then fetch these bytes and records; inf: any number."""

    delay: float
    bytes: float
    records: float


@dataclass(slots=True)
class _Slot:
    """The sums of a slot's reports, the time of its next fetch (`turn_at`), and the expected size of that fetch."""

    totals: Counter[str] = field(default_factory=Counter)
    turn_at: float | None = None
    expected: Amounts = _NOTHING


class Account:
    """The quota of a query. Safe for threads; callers pass the time."""

    def __init__(self, settings: QuotaSettings, bounds: Bounds) -> None:
        self._settings, self.bounds = settings, bounds
        self._limiters = self._limiters_of(bounds)
        self._slots: dict[int, _Slot] = {}
        self._last: Amounts = _NOTHING
        self._record_bytes: dict[TopicPartition, float] = {}
        self._lock = threading.RLock()
        # The time of the last report of a finished task; None: no task has finished.
        self.tasks_done_at: float | None = None
        self.reported = Reported()

    def change(self, bounds: Bounds) -> None:
        """Set other bounds, and forget earlier fetches, which would stop the query if the bounds are lower."""
        with self._lock:
            self.bounds = bounds
            self._limiters = self._limiters_of(bounds)
            for slot in self._slots.values():
                slot.turn_at, slot.expected = None, _NOTHING

    def record_bytes(self) -> dict[TopicPartition, float]:
        """Return the bytes per offset of each partition; later measurements have more weight."""
        with self._lock:
            return dict(self._record_bytes)

    def grant(self, report: Report, now: float) -> Grant:
        """Record the work of a task, and return its next permission.

        A task that has records left gets a turn: the time of its next fetch, after all earlier turns. Until the task
        reports this fetch, the quota counts the fetch with the size of the last fetch of any task.
        """
        with self._lock:
            if not report.left:
                self.tasks_done_at = now
            before = self.reported
            self.reported = Reported(
                before.tasks_done + (not report.left),
                before.bad_records + report.bad_records,
                before.busy + report.busy,
            )
            slot = self._slots.setdefault(report.slot, _Slot())
            slot.totals.update(bytes=round(report.bytes), records=round(report.records))
            slot.totals.update(delayMs=round(report.delay * 1000), throttleMs=round(report.throttle * 1000))
            for topic, partition, size, offsets in report.sizes:
                tp, each = TopicPartition(topic, partition), size / max(1, offsets)
                self._record_bytes[tp] = (self._record_bytes.get(tp, each) + each) / 2
            fetched = (report.bytes, report.records)
            if any(fetched) or not report.left:
                self._record(fetched, slot.expected, now)
                slot.turn_at, slot.expected = None, _NOTHING
            if report.left and report.records:
                self._last = fetched
            if report.left and slot.turn_at is None:
                slot.turn_at, slot.expected = now + max(limiter.delay(now) for limiter in self._limiters), self._last
                self._record(slot.expected, _NOTHING, now)
            return Grant(max(0.0, (slot.turn_at or now) - now), *self.bounds.amounts(GRANT_SECONDS))

    def figures(self, now: float) -> dict[str, Any]:
        """Return the JSON of the progress and of `quota.report`: bounds, use, observed rates, and delays by slot."""
        with self._lock:
            by_bytes, by_records = self._limiters
            return {
                "bytesPerSecond": self.bounds.bytes_per_second,
                "recordsPerSecond": self.bounds.records_per_second,
                "usedPercent": round(max(limiter.used(now) for limiter in self._limiters), 1),
                "observedBytesPerSecond": round(by_bytes.sensor.rate(now)),
                "observedRecordsPerSecond": round(by_records.sensor.rate(now)),
                "slots": {str(number): dict(slot.totals) for number, slot in sorted(self._slots.items())},
            }

    def _limiters_of(self, bounds: Bounds) -> tuple[Limiter, Limiter]:
        settings = self._settings
        if settings.watch == BROKER:
            bounds = bounds.share(BROKER_SAFETY_FACTOR)
        shape = (settings.windows, settings.seconds)
        return Limiter(bounds.bytes_per_second, *shape), Limiter(bounds.records_per_second, *shape)

    def _record(self, fetched: Amounts, expected: Amounts, now: float) -> None:
        for limiter, amount, before in zip(self._limiters, fetched, expected, strict=True):
            limiter.record(amount - before, now)
