"""Cache of objects that a process uses again, such as clients and engines: bounded, locked, and safe to fork.

A forked child starts with an empty cache. It has neither the threads of its parent nor a right to the parent's sockets,
so the parent's objects are neither used nor closed there; they are only kept from being garbage-collected, since their
finalisers would close the parent's sockets.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

MOST = 8


def _usable(_: object) -> bool:
    return True


def _leave_open(_: object) -> None:
    pass


class ProcessCache(Generic[_Key, _Value]):
    """Makes the object of a key when it is first asked for, and keeps it; one cache for each module, never dropped.

    Args:
        make: Makes the object of a key. It is called with the cache locked, so it must not wait for the network.
        close: Called for an object that the cache gives up, unlocked. Whoever still uses the object must be able to
            go on, or to see that it is closed.
        usable: Whether an object that was kept can still be used; if not, it is replaced and not closed.
        most: How many objects are kept; above it, the one that was asked for longest ago is given up.
    """

    def __init__(
        self,
        make: Callable[[_Key], _Value],
        *,
        close: Callable[[_Value], object] = _leave_open,
        usable: Callable[[_Value], bool] = _usable,
        most: int = MOST,
    ) -> None:
        self._make, self._close, self._usable, self._most = make, close, usable, most
        self._lock = threading.Lock()
        # In the order in which they were last asked for.
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
            given_up = [self._kept.pop(oldest) for oldest in list(self._kept)[: -self._most]]
        for old in given_up:
            self._close(old)
        return found

    def _forget(self) -> None:
        # Another thread of the parent may have held the lock; here nobody would release it.
        self._lock = threading.Lock()
        self._of_parent.extend(self._kept.values())
        self._kept = {}
