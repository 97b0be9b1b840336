"""Find processes and their children in /proc, and kill them."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def command_of(pid: int) -> bytes:
    """Return the command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def resident(field: str, pid: int | str = "self") -> int:
    """Return a field of a process's memory in bytes: `VmRSS` is the current resident size, `VmHWM` the peak.

    Raises:
        OSError: The process has ended.
        KeyError: The process has ended, but its parent has not waited for it.
    """
    return _status(pid)[field] * 1024


def threads(pid: int | str = "self") -> int:
    """Return the number of threads of a process. Errors are those of `resident`."""
    return _status(pid)["Threads"]


def descriptors(pid: int | str = "self") -> int:
    """Return the number of open file descriptors of a process. Errors are those of `resident`."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def tree(root: int) -> list[int]:
    """Return a process and its living descendants."""
    children: dict[int, list[int]] = {}
    for pid, stat in _all():
        children.setdefault(int(stat[1]), []).append(pid)
    pids = [root]
    for pid in pids:
        pids += children.get(pid, [])
    return pids


def session_of(leader: int) -> list[int]:
    """Return the process ids of the session that process `leader` has begun."""
    # Spark's Python daemons make process groups of their own, but stay in the session.
    return [pid for pid, stat in _all() if stat[0] != "Z" and int(stat[3]) == leader]


def kill(pids: Sequence[int]) -> None:
    """Send SIGKILL to these processes, whether they still run or not."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of those children that were waited for; 0 if the process has ended."""
    stat = _stat(f"/proc/{pid}/stat")
    return 0.0 if stat is None else sum(int(ticks) for ticks in stat[11:15]) / _TICKS


def cpu_seconds_of_tree(root: int) -> float:
    """Return the CPU time of a process and its living descendants, see `cpu_seconds`."""
    return sum(cpu_seconds(pid) for pid in tree(root))


def cpu_seconds_of_thread(native_id: int) -> float:
    """Return the CPU time of a thread of this process."""
    stat = _stat(f"/proc/self/task/{native_id}/stat")
    return 0.0 if stat is None else (int(stat[11]) + int(stat[12])) / _TICKS


def _all() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        stat = _stat(f"{entry}/stat")
        if stat is not None:
            yield int(entry.name), stat


def _status(pid: int | str) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _stat(path: str) -> list[str] | None:
    """Return the fields after the command's name, from the state on; None if the process has ended."""
    try:
        return Path(path).read_text().rpartition(")")[2].split()
    except OSError:
        return None
