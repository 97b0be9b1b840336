"""The quota of a query and what its tasks have fetched: decides who may fetch how much, and when."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from assignors.model import TopicPartition
from kafka_source.quota.bounds import Amounts, Bounds
from kafka_source.quota.limiter import Limiter
from kafka_source.quota.settings import BROKER, QuotaSettings

GRANT_SECONDS = 0.05
"""A grant is for so many seconds of the bound: tasks ask twenty times a second in all, however many they are."""

BELOW_BROKERS = 0.99
"""The part of the brokers' own quota that is used: the brokers' window is not aligned with ours."""

_NOTHING: Amounts = (0.0, 0.0)


@dataclass(slots=True)
class Report:
    """What a task has done since its last report, and what it has left.

    Attributes:
        slot: The task's slot or input partition.
        bytes: Bytes on the wire.
        records: Offsets that were fetched.
        delay: Seconds that the task waited for the quota.
        throttle: Seconds that brokers asked it to wait (KIP-219).
        left: Offsets that are still to be read; 0: the task is done.
        sizes: Topic, partition, bytes and offsets, measured together.
    """

    slot: int
    bytes: float = 0.0
    records: float = 0.0
    delay: float = 0.0
    throttle: float = 0.0
    left: int = 0
    sizes: list[tuple[str, int, float, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a task may do: wait for `delay` seconds, then fetch so many bytes and records; inf: any number."""

    delay: float
    bytes: float
    records: float


@dataclass(slots=True)
class _Slot:
    """The sums of a slot's reports, and its turn: when its next fetch may leave, of which `expected` was recorded."""

    totals: Counter[str] = field(default_factory=Counter)
    turn_at: float | None = None
    expected: Amounts = _NOTHING


class Account:
    """The quota of a query, for all of its slots together or for each. Safe for threads; callers pass the time.

    Args:
        settings: The query's quota.
        bounds: The bounds of now.
    """

    def __init__(self, settings: QuotaSettings, bounds: Bounds) -> None:
        self._settings, self.bounds = settings, bounds
        self._limiters: dict[int, tuple[Limiter, Limiter]] = {}
        self._slots: dict[int, _Slot] = {}
        self._last: Amounts = _NOTHING
        self._record_bytes: dict[TopicPartition, float] = {}
        self._lock = threading.RLock()

    def change(self, bounds: Bounds) -> None:
        """Set other bounds; what was fetched under the old ones is forgotten, or it would stop a lowered query."""
        with self._lock:
            self.bounds = bounds
            self._limiters.clear()
            for slot in self._slots.values():
                slot.turn_at, slot.expected = None, _NOTHING

    def record_bytes(self) -> dict[TopicPartition, float]:
        """Return the bytes of an offset in each partition, the last ones measured counting most."""
        with self._lock:
            return dict(self._record_bytes)

    def grant(self, report: Report, now: float) -> Grant:
        """Record what a task has done, and return what it may do next.

        A task that has something left gets a turn: the time of its next fetch, after all turns before. It keeps the
        turn until it reports the fetch. Until then the quota counts as much as the last fetch of any task brought.
        """
        with self._lock:
            slot = self._slots.setdefault(report.slot, _Slot())
            slot.totals.update(bytes=round(report.bytes), records=round(report.records))
            slot.totals.update(delayMs=round(report.delay * 1000), throttleMs=round(report.throttle * 1000))
            for topic, partition, size, offsets in report.sizes:
                tp, each = TopicPartition(topic, partition), size / max(1, offsets)
                self._record_bytes[tp] = (self._record_bytes.get(tp, each) + each) / 2
            limiters = self._limiters_of(report.slot)
            fetched = (report.bytes, report.records)
            if any(fetched) or not report.left:
                _record(limiters, fetched, slot.expected, now)
                slot.turn_at, slot.expected = None, _NOTHING
            if report.left and report.records:
                self._last = fetched
            if report.left and slot.turn_at is None:
                slot.turn_at, slot.expected = now + max(limiter.delay(now) for limiter in limiters), self._last
                _record(limiters, slot.expected, _NOTHING, now)
            return Grant(max(0.0, (slot.turn_at or now) - now), *self.bounds.amounts(GRANT_SECONDS))

    def figures(self, now: float) -> dict[str, Any]:
        """Return the JSON of the progress and of `quota.report`: bounds, use, observed rates, and delays by slot."""
        with self._lock:
            by_bytes, by_records = zip(*(self._limiters.values() or [self._limiters_of(0)]), strict=True)
            return {
                "bytesPerSecond": self.bounds.bytes_per_second,
                "recordsPerSecond": self.bounds.records_per_second,
                "usedPercent": round(max(limiter.used(now) for limiter in (*by_bytes, *by_records)), 1),
                "observedBytesPerSecond": round(sum(limiter.sensor.rate(now) for limiter in by_bytes)),
                "observedRecordsPerSecond": round(sum(limiter.sensor.rate(now) for limiter in by_records)),
                "slots": {str(number): dict(slot.totals) for number, slot in sorted(self._slots.items())},
            }

    def _limiters_of(self, slot: int) -> tuple[Limiter, Limiter]:
        settings, key = self._settings, slot if self._settings.per_member else 0
        if key not in self._limiters:
            bounds = self.bounds.share(BELOW_BROKERS) if settings.watch == BROKER else self.bounds
            shape = (settings.windows, settings.seconds)
            self._limiters[key] = Limiter(bounds.bytes_per_second, *shape), Limiter(bounds.records_per_second, *shape)
        return self._limiters[key]


def _record(limiters: tuple[Limiter, Limiter], fetched: Amounts, expected: Amounts, now: float) -> None:
    for limiter, amount, before in zip(limiters, fetched, expected, strict=True):
        limiter.record(amount - before, now)
