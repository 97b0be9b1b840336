"""One object for each settings and process: a forked child has no right to its parent's connections."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from kafka_source.client_config import Settings

_T = TypeVar("_T")


class ProcessCache(Generic[_T]):
    """Makes what is asked for first, and keeps it as long as the process lives; one for each module, never dropped.

    Args:
        make: Makes one from the settings of the Kafka clients.
    """

    def __init__(self, make: Callable[[Settings], _T]) -> None:
        self._make = make
        self._made: dict[Settings, _T] = {}
        # Closing the parent's connections in a child would not harm, but using them would.
        self._abandoned: list[_T] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def of(self, settings: Settings) -> _T:
        """The one of this process for these settings."""
        found = self._made.get(settings)
        if found is None:
            found = self._made[settings] = self._make(settings)
        return found

    def _forget(self) -> None:
        self._abandoned.extend(self._made.values())
        self._made.clear()
