"""Write files that appear only when they are complete, and lock them against a second writer."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kafka_source.errors import InvalidConfigurationError


@contextmanager
def complete_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield a temporary file beside `path`, which becomes `path` at the end of the block, or is removed after an error.

    After a kill the file `.NAME.partial` remains, until the next writer of this path overwrites it.

    Args:
        path: The file to write.
        overwrite: Whether the new file may replace an existing file.

    Raises:
        InvalidConfigurationError: The file exists, cannot be written, or is being written by another process.
    """
    check_absent(path, overwrite=overwrite)
    beside = path.with_name(f".{path.name}.partial")
    with locked(beside) as file:
        try:
            file.truncate(0)
            yield file
            file.flush()
            os.fsync(file.fileno())
            check_absent(path, overwrite=overwrite)
            beside.replace(path)
        except BaseException:
            with suppress(FileNotFoundError):
                beside.unlink()
            raise
    sync_folder(path.parent)


def check_absent(path: Path, *, overwrite: bool) -> None:
    """Raise InvalidConfigurationError if the file exists and must not be overwritten."""
    if path.exists() and not overwrite:
        raise InvalidConfigurationError(f"{path} exists. Name another file, or overwrite it (--overwrite).")


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read and write, and lock it until the block or this process ends.

    Raises:
        InvalidConfigurationError: The file cannot be opened, or another process has the lock.
    """
    while True:
        try:
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), "r+b")
        except OSError as problem:
            why = "it is a link" if problem.errno == errno.ELOOP else problem.strerror
            raise InvalidConfigurationError(f"{path} cannot be written: {why}.") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidConfigurationError(f"Another process is writing {path}.") from None
            # Between open and lock, the previous owner of the lock may have renamed or removed the file.
            if _is_at(file, path):
                yield file
                return


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
