"""A lock between processes, so that only one of them downloads or prepares a shared file."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def file_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an advisory lock on a file, which is created if it does not exist.

    The operating system releases the lock when its holder ends, also after SIGKILL.

    Args:
        path: The lock file.
        on_wait: Called once if another process holds the lock.
    """
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
