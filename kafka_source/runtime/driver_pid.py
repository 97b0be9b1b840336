"""The process id of the Spark driver, as its Python processes see it."""

from __future__ import annotations

import os
from pathlib import Path


def driver_pid() -> int:
    """Return the id of the driver's JVM, from one of its Python processes.

    It starts them itself, or has Spark's daemon fork them (`spark.python.use.daemon`), which it has started. A forked
    process has the command line of its parent; where `/proc` does not show it, the parent is taken for the driver.
    """
    parent = os.getppid()
    try:
        if Path(f"/proc/{parent}/cmdline").read_bytes() != Path("/proc/self/cmdline").read_bytes():
            return parent
        # The second field, the command, may contain spaces and ends with the last parenthesis. The parent's process id
        # is the second field after it.
        return int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return parent


def is_alive(process: int) -> bool:
    """Return whether a process of this id runs."""
    try:
        os.kill(process, 0)
    except OSError as error:
        # Another user's process cannot be signalled, and is there.
        return isinstance(error, PermissionError)
    return True
