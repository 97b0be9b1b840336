"""Our own deadlines around calls that may not keep theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Deadline:
    """A moment, some seconds from now, by the monotonic clock.

    Args:
        seconds: From now.
    """

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.left == 0.0


def call_within(deadline: Deadline, call: Callable[[], T]) -> T:
    """The result of a call that may block for longer than it was told to.

    The call runs in a daemon thread. If it is not back in time it is left to itself: what it works on must not be used
    again. librdkafka needs this: `send_offsets_to_transaction` waits for a coordinator that is down whatever its
    timeout says (librdkafka issue 5456).

    Raises:
        TimeoutError: The call did not return in time.
    """
    outcome: _Outcome[T] = _Outcome(call)
    thread = threading.Thread(target=outcome.run, name="kafkagroup-call", daemon=True)
    thread.start()
    thread.join(deadline.left)
    if thread.is_alive():
        raise TimeoutError
    return outcome.result()


class _Outcome(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value
