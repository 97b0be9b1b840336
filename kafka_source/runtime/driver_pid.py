"""The process of the Spark driver, as seen from the Python processes that it starts."""

from __future__ import annotations

import os
from pathlib import Path


def driver_pid() -> int:
    """The process that all planners of a Spark driver descend from: two generations up where that can be seen."""
    parent = os.getppid()
    try:
        # The second field may hold spaces but ends with the last parenthesis; the parent comes two after it.
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
