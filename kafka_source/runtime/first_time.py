"""Whether something happens for the first time in this process, for log lines that are said once."""

from __future__ import annotations

from collections.abc import Hashable

_happened: set[Hashable] = set()


def first_time(what: Hashable) -> bool:
    """Return True at the first call with this value in this process, and False at every later one."""
    if what in _happened:
        return False
    _happened.add(what)
    return True
