"""Keeps an amount at its bound, at an even pace. Pure: callers pass the time.

KIP-13 delays a reader by (observed - bound x window) / bound. Brokers apply it to a sliding window: they let a whole
window pass at once, and a pause of the reader counts twice, when it happens and when it leaves the window. Here the
window begins with the first fetch, and moves forward only over a pause that is longer than what may be caught up. So a
pause is caught up once, and an idle reader cannot save up more than 4 % of a window.
"""

from __future__ import annotations

from kafka_source.quota.sensor import Sensor, delay_of

OVER = 0.04
"""How far over the bound a reader goes that catches up after a pause: its pace, and the sum of any window."""


class Limiter:
    """Bytes or records against a bound.

    Args:
        bound: The amount a second; None: any.
        windows: The number of samples in the window of the observed rate.
        seconds: The length of one sample.
    """

    def __init__(self, bound: float | None, windows: int, seconds: float) -> None:
        self._bound = bound
        self.sensor = Sensor(windows, seconds)
        self._most_saved = OVER * windows * seconds
        # The amount since the beginning of the window that the delay is of, and when the pace allows the next fetch.
        self._amount = 0.0
        self._since = self._next_at = float("-inf")

    def delay(self, now: float) -> float:
        """Return the seconds to wait before the next fetch."""
        if self._bound is None:
            return 0.0
        return max(delay_of(self._amount, self._bound, now - self._since), self._next_at - now)

    def record(self, amount: float, now: float) -> None:
        """Add what is fetched; a negative amount takes back what was expected and did not come."""
        self.sensor.record(amount, now)
        if self._bound is not None:
            self._since = max(self._since, now - self._amount / self._bound - self._most_saved)
            self._amount += amount
            self._next_at = max(self._next_at, now) + amount / ((1 + OVER) * self._bound)

    def used(self, now: float) -> float:
        """Return the percentage of the bound that is used; 100: readers have to wait."""
        if self._bound is None:
            return 0.0
        return 100.0 if self.delay(now) > 0 else min(100.0, 100 * self.sensor.rate(now) / self._bound)
