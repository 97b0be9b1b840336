"""Named moments at which a test may interrupt this process; without a test nothing happens there.

Nothing outside the process can switch them on: a test installs a function in the process that it interrupts.
"""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], object] | None = None


def failpoint(name: str) -> None:
    """Call the function that a test has installed, with the name of this moment."""
    if _hook is not None:
        _hook(name)


def install(hook: Callable[[str], object] | None) -> None:
    """Have `hook` called at each failpoint of this process; None: nothing more. For tests only."""
    global _hook
    _hook = hook
