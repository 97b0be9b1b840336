"""The CPU time of a run, by kind of process: brokers, Spark's JVM, Spark's Python processes, and all others."""

import os
from collections.abc import Mapping

from testbed.processes import command_of, cpu_seconds, tree

_KINDS = {
    b"kafka.Kafka": "broker",
    b"org.apache.spark.deploy.SparkSubmit": "Spark's JVM",
    b"pyspark.daemon": "Spark's Python",
    b"toxiproxy": "proxy",
}


def cpu_by_kind() -> dict[str, float]:
    """Return the CPU seconds so far of this process and all its descendants, by kind."""
    used: dict[str, float] = {}
    for pid in tree(os.getpid()):
        command = command_of(pid)
        kind = next((kind for part, kind in _KINDS.items() if part in command), "the rest")
        used[kind] = used.get(kind, 0.0) + cpu_seconds(pid)
    return used


def used_since(before: Mapping[str, float]) -> dict[str, float]:
    """Return the CPU seconds since an earlier `cpu_by_kind`."""
    return {kind: now - before.get(kind, 0.0) for kind, now in cpu_by_kind().items()}
