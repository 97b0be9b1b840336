"""Exponential back-off with jitter (KIP-580)."""

from __future__ import annotations

import random

_JITTER = 0.2


def delay(attempt: int, first: float, longest: float) -> float:
    """Seconds to wait before a try; `attempt` 0 is the first one after a failure."""
    return min(longest, first * 2.0 ** min(attempt, 30)) * random.uniform(1 - _JITTER, 1 + _JITTER)
