"""What one read takes in a process of its own: `first_batch` in seconds, or `memory` in bytes, as JSON."""

from __future__ import annotations

import json
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
    before = _bytes("VmRSS")
    with arrow.read(topic, {"bootstrap.servers": servers}, max_bytes=int(max_bytes)) as stream:
        for _ in stream:
            pass
        return {"more": _bytes("VmHWM") - before, "read": stream.progress.bytes}


def _bytes(name: str) -> int:
    """Return a figure of this process: `getrusage` would have the most that its parent had when it started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    found = first_batch(*sys.argv[2:]) if sys.argv[1] == "first_batch" else memory(*sys.argv[2:])
    print(json.dumps(found))
