"""Wait until something is so, and fail with words when it is not in time."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from assignors import TopicPartition
from kafkagroup.admin import Groups

T = TypeVar("T")

DEADLINE_SECONDS = 180.0
"""The time limit of what does not name one; a busy machine takes long for what is quick elsewhere."""


def wait_until(condition: Callable[[], T | None], what: object, seconds: float = DEADLINE_SECONDS) -> T:
    """Return what `condition` returns once that is true; fail after so many seconds.

    The failure shows `what` as it is then: pass an object that can say more than it could before.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(0.05)
    return found


def wait_until_committed(groups: Groups, group: str, expected: Mapping[TopicPartition, int] | int) -> None:
    """Wait for the offsets, or their sum, of a commit that has returned.

    The coordinator shows the offsets of a transaction when it has written the marker, which is after its answer.
    """

    def is_so() -> bool:
        found = groups.committed(group)
        return (sum(found.values()) if isinstance(expected, int) else found) == expected

    wait_until(is_so, f"the committed offsets of {group}")
