"""Process-wide cache of objects such as clients and engines: bounded, thread-safe, and safe to fork.

A forked child starts with an empty cache. The child lacks its parent's threads and must not use the parent's sockets,
so it neither uses nor closes the parent's objects. The child keeps references, as finalisers would close the sockets.
"""

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

MAX_SIZE = 8


def _usable(_: object) -> bool:
    return True


def _leave_open(_: object) -> None:
    pass


class ProcessCache(Generic[_Key, _Value]):
    """Creates the object of a key at the first request, and returns it to later requests.

    Create caches at module level only, because each registers a fork hook that is never removed.

    Args:
        make: Creates the object of a key, while the cache is locked; must not wait for the network.
        close: Called with an object that the cache drops, after the lock is released. A caller that still uses the
            object must be able to continue, or get the error of a closed object.
        usable: Whether a cached object can still be used. An unusable object is replaced and not closed.
        max_size: The maximum number of objects; above it, the least recently used object is dropped.
    """

    def __init__(
        self,
        make: Callable[[_Key], _Value],
        *,
        close: Callable[[_Value], object] = _leave_open,
        usable: Callable[[_Value], bool] = _usable,
        max_size: int = MAX_SIZE,
    ) -> None:
        self._make, self._close, self._usable, self._max_size = make, close, usable, max_size
        self._lock = threading.Lock()
        self._kept: dict[_Key, _Value] = {}
        self._of_parent: list[_Value] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def of(self, key: _Key) -> _Value:
        """Return the object of this process for the key."""
        with self._lock:
            if key not in self._kept or not self._usable(self._kept[key]):
                self._kept[key] = self._make(key)
            found = self._kept[key] = self._kept.pop(key)
            given_up = [self._kept.pop(oldest) for oldest in list(self._kept)[: -self._max_size]]
        for old in given_up:
            self._close(old)
        return found

    def _forget(self) -> None:
        # A thread of the parent, which the child lacks, may have held the lock and would never release it.
        self._lock = threading.Lock()
        self._of_parent.extend(self._kept.values())
        self._kept = {}
