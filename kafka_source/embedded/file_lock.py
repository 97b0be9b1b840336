"""One process at a time does a thing that all of them need."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def file_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds an advisory lock on a file, which is made if need be; it ends with its holder, however that ends.

    Args:
        path: of the file.
        on_wait: called once if another process holds it.
    """
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
