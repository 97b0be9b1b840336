"""Memory, threads and file descriptors of processes over time, and whether they stay level."""

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.processes import command_of, descriptors, resident, threads

MIB = 1 << 20


@dataclass(frozen=True)
class Usage:
    """What one process uses: resident memory in bytes, threads, and file descriptors."""

    memory: int
    threads: int
    descriptors: int


def usage(pid: int) -> Usage | None:
    """Return what a process uses now; None if it has ended."""
    with contextlib.suppress(OSError, KeyError):
        return Usage(resident("VmRSS", pid), threads(pid), descriptors(pid))
    return None


def role_of(command: bytes) -> str | None:
    """Return what a process of Spark is, by its command line; None if it is of no interest here."""
    if b"CoarseGrainedExecutorBackend" in command:
        return "executor"
    if b"deploy.worker.Worker" in command:
        return "worker"
    if b"pyspark.daemon" in command:
        return "python"
    if b"SparkSubmit" in command:
        return "driver"
    return None


class Curves:
    """Samples of groups of processes, by name and role.

    A sample is the largest process of its role: Spark starts and ends Python workers as it needs them, so their sum
    says how many there were.
    """

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[float, Usage]]] = defaultdict(list)

    def sample(self, at: float, processes: Mapping[str, Sequence[int]]) -> None:
        """Note what processes use `at` seconds after the beginning."""
        for name, pids in processes.items():
            largest: dict[str, Usage] = {}
            for pid in pids:
                role, used = role_of(command_of(pid)), usage(pid)
                if role is not None and used is not None:
                    before = largest.get(role, Usage(0, 0, 0))
                    largest[role] = Usage(
                        max(used.memory, before.memory),
                        max(used.threads, before.threads),
                        max(used.descriptors, before.descriptors),
                    )
            for role, used in largest.items():
                self._samples[f"{name} {role}"].append((at, used))

    def growth(self, after: float) -> dict[str, tuple[Usage, Usage]]:
        """Return the medians of the first and of the last third of the samples from `after` seconds on, by name."""
        found = {}
        for name, samples in self._samples.items():
            late = [used for at, used in samples if at >= after]
            if len(late) >= 6:
                third = len(late) // 3
                found[name] = _median(late[:third]), _median(late[-third:])
        return found


def _median(samples: Sequence[Usage]) -> Usage:
    columns = zip(*((used.memory, used.threads, used.descriptors) for used in samples), strict=True)
    return Usage(*(int(statistics.median(column)) for column in columns))


def rising(growth: Mapping[str, tuple[Usage, Usage]]) -> list[str]:
    """Return the lines about processes that grow: memory by a fifth and 48 MiB, threads or descriptors by 24."""
    return [
        f"{name}: {before} -> {after}"
        for name, (before, after) in sorted(growth.items())
        if after.memory > before.memory * 1.2 + 48 * MIB
        or after.threads > before.threads + 24
        or after.descriptors > before.descriptors + 24
    ]
