"""What one read takes in a process of its own: `first_batch` in seconds, or `memory` in bytes, as JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

STARTED = time.perf_counter()

from kafkagroup import arrow  # noqa: E402

IMPORTED = time.perf_counter()


def first_batch(servers: str, topic: str) -> dict[str, float]:
    """The seconds of the import, and from there to the first record batch."""
    with arrow.read(topic, {"bootstrap.servers": servers}) as stream:
        batch = next(iter(stream))
        seconds = time.perf_counter() - IMPORTED
    assert batch.num_rows
    return {"import": IMPORTED - STARTED, "first batch": seconds}


def memory(servers: str, topic: str, max_bytes: str) -> dict[str, float]:
    """How much memory was taken at most while all batches were read and dropped, and how large they were."""
    # The second number of this file is that of pages in memory now. The most of the process is known in KiB.
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    with arrow.read(topic, {"bootstrap.servers": servers}, max_bytes=int(max_bytes)) as stream:
        for _ in stream:
            pass
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"more": most - before, "read": stream.progress.bytes}


if __name__ == "__main__":
    found = first_batch(*sys.argv[2:]) if sys.argv[1] == "first_batch" else memory(*sys.argv[2:])
    print(json.dumps(found))
