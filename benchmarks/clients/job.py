"""The job of every client, and how its program talks to the benchmark over its standard streams.

A client's program is started as `python -m benchmarks.clients.NAME SERVERS TOPIC RECORDS SMALL_TOPIC` in an environment
of its own, so this module and the programs import no other module of the project. The program calls `begin` before its
first fetch, and `end` with its counts. Both wait until the benchmark has read the CPU time of the program's processes.
"""

from __future__ import annotations

import functools
import json
import sys
import uuid
from dataclasses import dataclass

TAG = "benchmark:"
"""The start of the lines for the benchmark; libraries may print other lines."""


@dataclass(frozen=True, slots=True)
class Job:
    """Count the records of a topic and the bytes of their values.

    Attributes:
        servers: The bootstrap servers.
        topic: The topic, with four partitions.
        records: The number of its records, after which a consumer ends.
        small_topic: A topic on which clients on a JVM run the job first. In a second or two the JVM compiles code that
            it would have compiled long ago in a job of real size.
    """

    servers: str
    topic: str
    records: int
    small_topic: str

    @staticmethod
    def of_arguments() -> Job:
        servers, topic, records, small_topic = sys.argv[1:]
        return Job(servers, topic, int(records), small_topic)

    def new_group(self) -> str:
        return f"clients-{uuid.uuid4().hex}"


# Report only once, because a consumer may get its partitions again when the group's metadata have changed.
@functools.cache
def begin() -> None:
    """Report that the fetches begin."""
    _tell("begin")


def end(records: int, size: int) -> None:
    """Report the end of the job, with the number of records and the bytes of their values."""
    _tell(json.dumps({"records": records, "bytes": size}))


def _tell(line: str) -> None:
    print(f"{TAG}{line}", flush=True)
    sys.stdin.readline()
