"""Who has fetched how much, and who may fetch what: the quota of a query as its driver sees it. It is told the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assignors.model import TopicPartition
from kafka_source.quota.batch_sizing import BatchBudget
from kafka_source.quota.bounds import Bounds
from kafka_source.quota.limiter import SMOOTH_SECONDS, Amounts, Quota
from kafka_source.quota.settings import QuotaSettings

# A grant is for so many seconds of the bound: the grain of the flow.
_GRAIN_SECONDS = 0.025
_ACTIVE_SECONDS = 1.0
# Of the bound, and with the pause after it: any five seconds have one pause then, neither two nor none.
_BATCH_SECONDS = 0.994 * SMOOTH_SECONDS
# What a fetch is taken to bring of which nobody knows yet, at most.
_FIRST_BYTES, _FIRST_RECORDS = 1e6, 1e3


@dataclass(frozen=True, slots=True)
class Report:
    """What a task has done since its last report, and how much it has left.

    Attributes:
        part: Whose slot or input partition.
        bytes: On the wire.
        records: Offsets that were fetched.
        left: Offsets that are still to be read.
        delay: Seconds that it waited for the quota.
        throttle: Seconds that brokers asked it to wait (KIP-219).
        sizes: For each partition bytes and offsets, measured together.
    """

    part: int
    bytes: float = 0.0
    records: float = 0.0
    left: int = 0
    delay: float = 0.0
    throttle: float = 0.0
    sizes: Mapping[TopicPartition, tuple[float, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it goes over the wire."""
        return {
            "part": self.part,
            "bytes": self.bytes,
            "records": self.records,
            "left": self.left,
            "delay": self.delay,
            "throttle": self.throttle,
            "sizes": [[tp.topic, tp.partition, *size] for tp, size in self.sizes.items()],
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Report:
        """What `to_json` made."""
        sizes = {TopicPartition(str(t), int(p)): (float(b), int(o)) for t, p, b, o in value["sizes"]}
        numbers = (float(value[name]) for name in ("bytes", "records", "left", "delay", "throttle"))
        fetched, records, left, delay, throttle = numbers
        return Report(int(value["part"]), fetched, records, int(left), delay, throttle, sizes)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a task may do: wait for `delay` seconds, then fetch so much; None: any amount."""

    delay: float
    bytes: float | None
    records: float | None


@dataclass(frozen=True, slots=True)
class _Turn:
    """When a slot may fetch, and of how much that was reckoned."""

    at: float
    expected: Amounts


@dataclass(slots=True)
class _Part:
    """What a slot has done, when it was heard last, what its last fetch brought, and when the next one may leave."""

    bytes: float = 0.0
    records: float = 0.0
    delay: float = 0.0
    throttle: float = 0.0
    left: int = 0
    heard: float = float("-inf")
    usual: Amounts | None = None
    turn: _Turn | None = None


class Account:
    """The quota of a query, all of its slots together or each for itself.

    Args:
        settings: Of the query.
    """

    def __init__(self, settings: QuotaSettings) -> None:
        self._settings = settings
        self._bounds = settings.bounds
        self._quotas: dict[int, Quota] = {}
        self._parts: dict[int, _Part] = {}
        self._sizes: dict[TopicPartition, float] = {}

    @property
    def bounds(self) -> Bounds:
        """Of the query, or of each member."""
        return self._bounds

    def change(self, bounds: Bounds) -> None:
        """Other bounds from here on."""
        self._bounds = bounds
        for quota in self._quotas.values():
            quota.change(bounds)
        for part in self._parts.values():
            part.turn = None

    def grant(self, report: Report, now: float) -> Grant:
        """Take note of what a task has done, and say what it may do."""
        part = self._parts.setdefault(report.part, _Part())
        part.bytes += report.bytes
        part.records += report.records
        part.delay += report.delay
        part.throttle += report.throttle
        part.left, part.heard = report.left, now
        for tp, (size, offsets) in report.sizes.items():
            if offsets > 0:
                self._sizes[tp] = size / offsets
        quota = self._quota(report.part)
        if report.left:
            quota.reads(report.part, now)
        else:
            others = not self._settings.per_member and any(other.left for other in self._parts.values())
            quota.done(report.part, now, others=others)
        fetched = (report.bytes, report.records)
        if any(fetched) or not report.left:
            expected = (0.0, 0.0) if part.turn is None else part.turn.expected
            quota.on_response(*fetched, now, expected=expected)
            part.turn = None
        # The last one before a task's end may be of any size: it counts where no other is known. One that a broker
        # throttles brings nothing.
        if any(fetched) and not report.throttle and (report.left or part.usual is None):
            part.usual = fetched
        grain = self._bounds.share(_GRAIN_SECONDS * self._share(report.part, now))
        most = (grain.bytes_per_second, grain.records_per_second)
        if not report.left:
            return Grant(quota.check(now), *most)
        if part.turn is None:
            first = (min(most[0] or 0.0, _FIRST_BYTES), min(most[1] or 0.0, _FIRST_RECORDS))
            expected = _at_most(report.left, part.usual or first)
            part.turn = _Turn(now + quota.turn(expected, now), expected)
        return Grant(max(0.0, part.turn.at - now), *most)

    def record_bytes(self) -> dict[TopicPartition, float]:
        """Bytes of an offset, as measured last."""
        return dict(self._sizes)

    def room(self) -> BatchBudget:
        """What a micro-batch of a slot (of the query) may have."""
        whole = self._bounds.share(_BATCH_SECONDS)
        return BatchBudget(whole.bytes_per_second, whole.records_per_second)

    def figures(self, now: float) -> dict[str, Any]:
        """What people want to see: how much of the quota is used, rates, and delays by slot."""
        quotas = list(self._quotas.values()) or [self._quota(0)]
        rates = [quota.rates(now) for quota in quotas]
        return {
            "bytesPerSecond": self._bounds.bytes_per_second,
            "recordsPerSecond": self._bounds.records_per_second,
            "usedPercent": round(max(quota.used(now) for quota in quotas), 1),
            "observedBytesPerSecond": round(sum(rate for rate, _ in rates)),
            "observedRecordsPerSecond": round(sum(rate for _, rate in rates)),
            "slots": {
                str(number): {
                    "bytes": round(part.bytes),
                    "records": round(part.records),
                    "delayMs": round(part.delay * 1000),
                    "throttleMs": round(part.throttle * 1000),
                }
                for number, part in sorted(self._parts.items())
            },
        }

    def _quota(self, part: int) -> Quota:
        key = part if self._settings.per_member else 0
        if key not in self._quotas:
            shape = (self._settings.windows, self._settings.seconds)
            self._quotas[key] = Quota(self._bounds, *shape, brokers_refuse=self._settings.brokers_refuse)
        return self._quotas[key]

    def _share(self, number: int, now: float) -> float:
        """By what is left to read, of all slots that read now: one that is done leaves its share to the others."""
        if self._settings.per_member:
            return 1.0
        left = sum(part.left for part in self._parts.values() if now - part.heard < _ACTIVE_SECONDS)
        return max(1, self._parts[number].left) / max(1, left)


def _at_most(records: int, amounts: Amounts) -> Amounts:
    """As much of them as belongs to so many records."""
    part = min(1.0, records / amounts[1]) if amounts[1] else 1.0
    return amounts[0] * part, amounts[1] * part
