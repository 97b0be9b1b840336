"""The amount in a sliding window of samples (KIP-13, Kafka's `SampledStat`). Pure: callers pass the time."""

from __future__ import annotations

from collections import deque


def delay_of(observed: float, bound: float, window: float) -> float:
    """Return KIP-13's delay in seconds, (observed - bound x window) / bound; 0 where that is negative.

    Args:
        observed: The amount in the window.
        bound: The amount a second that is allowed.
        window: The length of the window in seconds.
    """
    return max(0.0, (observed - bound * window) / bound)


class Sensor:
    """Adds up amounts over the last samples, the one that is being filled included.

    Args:
        windows: The number of samples.
        seconds: The length of one sample.
    """

    def __init__(self, windows: int, seconds: float) -> None:
        self._windows = windows
        self._seconds = seconds
        # Start and amount of each sample.
        self._samples: deque[tuple[float, float]] = deque()

    def record(self, amount: float, now: float) -> None:
        """Add an amount to the sample that is being filled, or begin the next."""
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
        """Return the amount a second in the window, whose length counts as one sample at least."""
        return self.observed(now) / max(self._seconds, self.window(now))

    def _expire(self, now: float) -> None:
        while self._samples and now - self._samples[0][0] >= self._windows * self._seconds:
            self._samples.popleft()
