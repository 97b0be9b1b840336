"""A directory for files with which the processes of one user find each other on a machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_directory() -> Iterator[Path]:
    """Lock the user's directory and yield its path; only one process at a time holds the lock.

    Raises:
        PermissionError: Other users can read or change it.
        OSError: The directory cannot be created or locked.
    """
    directory = Path(tempfile.gettempdir()) / f"kafkagroup-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(
                f"Other users can read or change {directory}, where processes of a Spark driver find each other. "
                "Remove the directory, or set TMPDIR for the Spark driver."
            )
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(handle)
