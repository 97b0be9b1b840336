"""Retries: exponential back-off with jitter (KIP-580), and the loop that makes the attempts."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kafka_source.runtime.deadline import Deadline

_T = TypeVar("_T")

RANDOM = random.SystemRandom()
"""Random numbers without a state. The state of the random module belongs to the application, which may have seeded it.
"""

_JITTER = 0.2
# After so many doublings even the shortest pause exceeds any configured maximum; 2**1024 would overflow a float.
_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The pauses between attempts: each is twice as long as the previous one, with a jitter of ±20 %.

    Attributes:
        first: The first pause in seconds (`retry.backoff.ms`).
        longest: The longest pause in seconds (`retry.backoff.max.ms`).
    """

    first: float
    longest: float

    def pause(self, failures: int) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            failures: The number of attempts that failed before the last one: 0 after the first failure.
        """
        doubled = self.first * 2.0 ** min(max(0, failures), _MAX_DOUBLINGS)
        return min(self.longest, doubled * RANDOM.uniform(1 - _JITTER, 1 + _JITTER))

    def pauses(self) -> Iterator[float]:
        """Yield the pauses of a series of attempts; the iterator is infinite."""
        failures = 0
        while True:
            yield self.pause(failures)
            failures += 1


Again = Callable[[Exception, int, float], bool]
"""Decides after a failure whether to make another attempt, by the error, the number of earlier failures, and the pause.
"""


def _always(_: Exception, __: int, ___: float) -> bool:
    return True


def retry(
    work: Callable[[], _T],
    policy: RetryPolicy,
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    deadline: Deadline | None = None,
    again: Again = _always,
) -> _T:
    """Return the result of `work`; make more attempts after errors.

    Args:
        work: One attempt.
        policy: The pauses between attempts.
        on: The errors after which another attempt is made; any other error is raised immediately.
        deadline: The last error is raised if the deadline would expire during the next pause; None: no time limit.
        again: See `Again`.
    """
    for failures, pause in enumerate(policy.pauses()):
        try:
            return work()
        except on as error:
            if (deadline is not None and deadline.left <= pause) or not again(error, failures, pause):
                raise
        time.sleep(pause)
    raise RuntimeError("unreachable: the iterator of pauses never ends")


async def retry_async(
    work: Callable[[], Awaitable[_T]],
    policy: RetryPolicy,
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    deadline: Deadline | None = None,
    again: Again = _always,
) -> _T:
    """Do the same as `retry` on an event loop."""
    for failures, pause in enumerate(policy.pauses()):
        try:
            return await work()
        except on as error:
            if (deadline is not None and deadline.left <= pause) or not again(error, failures, pause):
                raise
        await asyncio.sleep(pause)
    raise RuntimeError("unreachable: the iterator of pauses never ends")
