"""What was observed in a sliding window of samples (KIP-13, Kafka's `SampledStat`). Pure: it is told the time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


def delay_of(observed: float, bound: float, window: float) -> float:
    """Seconds to wait until `observed` is what the bound lets through: KIP-13's (observed - bound x window) / bound.

    Args:
        observed: The amount in the window.
        bound: What is let through, a second.
        window: The seconds that `observed` is of.
    """
    return max(0.0, (observed - bound * window) / bound)


@dataclass(slots=True)
class _Sample:
    start: float
    amount: float


class Sensor:
    """Amounts over the last samples, of which the last one is still being filled.

    The window is as long as what is in it: a sensor that has just begun, or has heard nothing for a whole window, has
    nothing saved up, so that a stream does not begin with a burst.

    Args:
        windows: How many samples.
        seconds: The length of one.
    """

    def __init__(self, windows: int, seconds: float) -> None:
        self._windows = windows
        self._seconds = seconds
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now: float) -> None:
        """Add an amount."""
        self._expire(now)
        if not self._samples:
            self._samples.append(_Sample(now, amount))
            return
        last = self._samples[-1]
        full = int((now - last.start) / self._seconds)
        if full > 0:
            last = _Sample(last.start + full * self._seconds, 0.0)
            self._samples.append(last)
        last.amount += amount

    def observed(self, now: float) -> float:
        """The amount in the window."""
        self._expire(now)
        return sum(sample.amount for sample in self._samples)

    def window(self, now: float) -> float:
        """Seconds since the oldest sample in the window began."""
        self._expire(now)
        return now - self._samples[0].start if self._samples else 0.0

    def rate(self, now: float) -> float:
        """The amount a second in the window, of one sample's length at least."""
        return self.observed(now) / max(self._seconds, self.window(now))

    def delay(self, bound: float, now: float, amount: float = 0.0) -> float:
        """Seconds until another amount fits into the window, if `bound` is let through a second."""
        return delay_of(self.observed(now) + amount, bound, self.window(now))

    def delay_until(self, amount: float, most: float, now: float) -> float:
        """Seconds until what is observed is at most `most` with another amount, or nothing is observed any more."""
        over = self.observed(now) + amount - most
        expiry = now
        for sample in self._samples:
            if over <= 0:
                break
            over -= sample.amount
            expiry = sample.start + self._windows * self._seconds
        return expiry - now

    def _expire(self, now: float) -> None:
        while self._samples and now - self._samples[0].start >= self._windows * self._seconds:
            self._samples.popleft()
