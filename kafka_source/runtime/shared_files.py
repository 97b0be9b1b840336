"""Files by which the processes of one user find each other on a machine: a private directory, locks, replacement."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def private_directory() -> Iterator[Path]:
    """Lock the user's directory and yield its path; only one process at a time holds the lock.

    Raises:
        PermissionError: Other users can read or change the directory.
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


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Let only one of this user's processes on this machine run a block of this name at the same time.

    Raises:
        OSError: As for `private_directory`.
    """
    handle = _lock(name)
    try:
        yield
    finally:
        # The directory's lock keeps other processes from opening the file between these two steps.
        with private_directory() as directory:
            (directory / f"{name}.lock").unlink(missing_ok=True)
            os.close(handle)


def _lock(name: str) -> int:
    while True:
        with private_directory() as directory:
            path = directory / f"{name}.lock"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            # The file may be removed between two calls with its path.
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(handle)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        # The process that held the lock has removed the file, so lock a new file.
        os.close(handle)


def name_of(identity: object) -> str:
    """Return a short name for a file, which is the same in all processes for values with the same `repr`."""
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def replace_file(path: Path, text: str) -> None:
    """Replace the file atomically, so that a reader never sees a part of it.

    Raises:
        OSError: The file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
