"""Deadlines on the monotonic clock, and a call that is abandoned when its deadline expires."""

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Deadline:
    """A point in time on the monotonic clock.

    Args:
        seconds: The time until the deadline expires, counted from now.
    """

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline expires; 0 once it has expired."""
        return max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the deadline has expired."""
        return self.left == 0.0


def call_within(deadline: Deadline, call: Callable[[], T]) -> T:
    """Return the result of a call that may block for longer than its own timeout.

    The call runs in a daemon thread. A call that does not return in time continues to run, so do not use its objects
    again. For example, librdkafka's `send_offsets_to_transaction` ignores its timeout while the coordinator is down
    (librdkafka issue 5456).

    Raises:
        TimeoutError: The call did not return before the deadline.
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
