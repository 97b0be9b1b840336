"""A limit of the memory of processes, like the limit of a container: a control group of this machine (Linux, root)."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

# The memory controller of version 1 has a folder of its own; version 2 has all controllers in one folder.
_FOLDERS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
_LIMIT = ("memory.limit_in_bytes", "memory.max")
_PEAK = ("memory.max_usage_in_bytes", "memory.peak")
_EVENTS = ("memory.oom_control", "memory.events")


def reason_against_memory_limits() -> str | None:
    """Return why this machine cannot limit the memory of processes; None: it can."""
    if os.geteuid() != 0:
        return "control groups need root"
    controllers = _FOLDERS[1] / "cgroup.subtree_control"
    has_second = controllers.exists() and "memory" in controllers.read_text().split()
    return None if _FOLDERS[0].is_dir() or has_second else "this machine has no memory controller"


class MemoryLimit:
    """A control group for some processes and their children; use it in a with statement.

    If the processes need more memory than the limit, the kernel kills one of them.

    Args:
        megabytes: The limit, in MiB.
    """

    def __init__(self, megabytes: int) -> None:
        self._megabytes = megabytes
        self._version = 0 if _FOLDERS[0].is_dir() else 1
        self._folder = _FOLDERS[self._version] / f"kafkagroup-{os.getpid()}"

    def __enter__(self) -> MemoryLimit:
        self._folder.mkdir()
        (self._folder / _LIMIT[self._version]).write_text(f"{self._megabytes}M")
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.rmdir()

    @property
    def peak(self) -> int:
        """The largest use of memory so far, with the page cache, in MiB."""
        return int((self._folder / _PEAK[self._version]).read_text()) >> 20

    @property
    def kills(self) -> int:
        """The number of processes that the kernel has killed at the limit."""
        words = (self._folder / _EVENTS[self._version]).read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def java_home(self, folder: Path, *options: str) -> Path:
        """Make a Java home in a folder, whose `java` runs Spark's executors within the limit and with more options."""
        java = shutil.which("java")
        assert java is not None, "no java on the PATH"
        program = folder / "bin" / "java"
        program.parent.mkdir(parents=True)
        joins = f'echo $$ >{shlex.quote(str(self._folder / "cgroup.procs"))} && set -- {shlex.join(options)} "$@"'
        program.write_text(
            f'#!/bin/sh\ncase "$*" in *CoarseGrainedExecutorBackend*) {joins} ;; esac\nexec {shlex.quote(java)} "$@"\n'
        )
        program.chmod(0o755)
        return folder
