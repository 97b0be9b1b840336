"""A bound that is kept: how long to wait before the next fetch. Pure: it is told the time.

KIP-13 bounds the average over a whole window, so a reader that has been idle, as between two micro-batches, may catch
up within it. Here it does so evenly, at little more than the bound, and not in a burst.
"""

from __future__ import annotations

from kafka_source.quota.bounds import Bounds
from kafka_source.quota.sensor import Sensor

LATE_SECONDS = 0.025
"""A fetch may be so late, by its own way to the broker and back, and the next ones still come as planned."""

Amounts = tuple[float, float]
"""Bytes and records."""

# A reader that is behind goes so much faster than the bound, or as much as leaves any 5 s within 5 % of it.
_LEAST_CATCH_UP = 1.03
_SMOOTH_SECONDS, _SMOOTH = 5.0, 1.048


def catch_up(amount: float, bound: float) -> float:
    """How much faster than the bound a reader goes that is behind it and fetches so much at once."""
    return max(_LEAST_CATCH_UP, _SMOOTH - (LATE_SECONDS + amount / bound) / _SMOOTH_SECONDS)


class Quota:
    """Bytes and records against their bounds.

    Args:
        bounds: What is let through.
        windows: How many samples the window has.
        seconds: The length of one sample.
    """

    def __init__(self, bounds: Bounds, windows: int = 10, seconds: float = 1.0) -> None:
        self._shape = (windows, seconds)
        self._bounds = bounds
        self._meters = self._fresh()

    @property
    def bounds(self) -> Bounds:
        """What is let through now."""
        return self._bounds

    def change(self, bounds: Bounds) -> None:
        """Other bounds from here on; what was fetched under the old ones is settled."""
        if bounds != self._bounds:
            self._bounds = bounds
            self._meters = self._fresh()

    def check(self, now: float) -> float:
        """Seconds to wait before the next fetch; 0: it may leave."""
        return max((meter.delay(bound, now) for meter, bound, _ in self._bound_meters()), default=0.0)

    def turn(self, expected: Amounts, now: float) -> float:
        """Seconds until a fetch of about so much may leave; a fetch that is asked for after it comes after it.

        Whoever takes a turn tells `on_response` of it.
        """
        delay = self.check(now)
        for meter, bound, amount in self._bound_meters(expected):
            meter.take(amount, bound, now)
        self._record(expected, now)
        return delay

    def on_response(self, fetched_bytes: float, records: float, now: float, *, expected: Amounts = (0.0, 0.0)) -> float:
        """Take note of a response; seconds to wait as of `check`.

        Args:
            fetched_bytes: Of the response.
            records: Of the response.
            now: The time.
            expected: Of what its turn was taken.
        """
        more = (fetched_bytes - expected[0], records - expected[1])
        self._record(more, now)
        for meter, bound, amount in self._bound_meters(more):
            meter.push_back(amount, bound, now)
        return self.check(now)

    def used(self, now: float) -> float:
        """The fraction of the quota that is used, 0 to 100 %; 100 is throttled."""
        if self.check(now) > 0:
            return 100.0
        return min(100.0, max((m.sensor.rate(now) / b * 100 for m, b, _ in self._bound_meters()), default=0.0))

    def rates(self, now: float) -> tuple[float, float]:
        """Bytes and records a second, as observed in the window."""
        by_bytes, by_records = self._meters
        return by_bytes.sensor.rate(now), by_records.sensor.rate(now)

    def _record(self, amounts: Amounts, now: float) -> None:
        for meter, amount in zip(self._meters, amounts, strict=True):
            meter.sensor.record(amount, now)

    def _fresh(self) -> tuple[_Meter, _Meter]:
        return _Meter(*self._shape), _Meter(*self._shape)

    def _bound_meters(self, amounts: Amounts = (0.0, 0.0)) -> list[tuple[_Meter, float, float]]:
        both = (self._bounds.bytes_per_second, self._bounds.records_per_second)
        return [(m, b, amount) for m, b, amount in zip(self._meters, both, amounts, strict=True) if b is not None]


class _Meter:
    """One amount: its sensor, and when its next may come if it is to come evenly."""

    def __init__(self, windows: int, seconds: float) -> None:
        self.sensor = Sensor(windows, seconds)
        self._next_at = float("-inf")

    def take(self, amount: float, bound: float, now: float) -> None:
        over = self.sensor.delay(bound, now)
        if over > 0:
            self._next_at = max(self._next_at, now + over)
        self.push_back(amount, bound, now)

    def push_back(self, amount: float, bound: float, now: float) -> None:
        self._next_at = max(self._next_at, now - LATE_SECONDS) + amount / (catch_up(abs(amount), bound) * bound)

    def delay(self, bound: float, now: float) -> float:
        return max(self.sensor.delay(bound, now), self._next_at - now)
