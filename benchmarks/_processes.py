"""What /proc tells of processes and of those that they have started."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def resident(field: str, pid: int | str = "self") -> int:
    """Return a field of a process's memory in bytes: `VmRSS` is its resident size now, `VmHWM` the most it had."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def tree(root: int) -> list[int]:
    """Return a process and its living descendants."""
    children: dict[int, list[int]] = {}
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        found = _stat(f"/proc/{pid}/stat")
        if found is not None:
            children.setdefault(int(found[1]), []).append(pid)
    pids = [root]
    for pid in pids:
        pids += children.get(pid, [])
    return pids


def cpu_seconds_of_tree(root: int) -> float:
    """Return the CPU time of a process and its descendants, with those that have ended and were waited for."""
    stats = filter(None, (_stat(f"/proc/{pid}/stat") for pid in tree(root)))
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / _TICKS


def cpu_seconds_of_thread(native_id: int) -> float:
    """Return the CPU time of a thread of this process."""
    stat = _stat(f"/proc/self/task/{native_id}/stat")
    return 0.0 if stat is None else (int(stat[11]) + int(stat[12])) / _TICKS


def _stat(path: str) -> list[str] | None:
    """Return the fields after the command's name, from the state on; None if the process has ended."""
    try:
        return Path(path).read_text().rpartition(")")[2].split()
    except OSError:
        return None
