"""Named points in the code at which a test can interrupt the process. Without a test these points do nothing.

No setting enables these points. A test enables the points inside the process, by `install`.
"""

from collections.abc import Callable

_hook: Callable[[str], object] | None = None


def failpoint(name: str) -> None:
    """Call the function that a test has installed, with the name of this failpoint."""
    if _hook is not None:
        _hook(name)


def install(hook: Callable[[str], object] | None) -> None:
    """Set the function that each failpoint of this process calls; None removes it. For tests only."""
    global _hook
    _hook = hook
