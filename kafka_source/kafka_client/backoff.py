"""Exponential back-off with jitter (KIP-580)."""

from __future__ import annotations

import random
import time

_JITTER = 0.2


def delay(attempt: int, first: float, longest: float) -> float:
    """Seconds to wait before a try; `attempt` 0 is the first one after a failure."""
    return min(longest, first * 2.0 ** min(attempt, 30)) * random.uniform(1 - _JITTER, 1 + _JITTER)


class Deadline:
    """A point in time until which something is tried."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left, 0 at least."""
        return max(0.0, self._at - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.left <= 0
