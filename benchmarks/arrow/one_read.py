"""The cost of one read in a process of its own: `first_batch` in seconds, `memory` and `export` in bytes, as JSON."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

STARTED = time.perf_counter()

from kafkagroup import arrow  # noqa: E402

IMPORTED = time.perf_counter()

from testbed.processes import resident  # noqa: E402


def first_batch(servers: str, topic: str) -> dict[str, float]:
    """Return the seconds of the import, and the seconds from its end to the first record batch."""
    with arrow.read(topic, {"bootstrap.servers": servers}) as stream:
        batch = next(iter(stream))
        seconds = time.perf_counter() - IMPORTED
    assert batch.num_rows
    return {"import": IMPORTED - STARTED, "first batch": seconds}


def memory(servers: str, topic: str, max_bytes: str) -> dict[str, float]:
    """Return the largest memory while all batches were read and dropped, and the size of the batches."""
    before = resident("VmRSS")
    with arrow.read(topic, {"bootstrap.servers": servers}, max_bytes=int(max_bytes)) as stream:
        for _ in stream:
            pass
        return {"more": resident("VmHWM") - before, "read": stream.progress.bytes}


def export(servers: str, topic: str, form: str, to: str) -> dict[str, float]:
    """Return the largest memory of an export to a file or into a folder, and the size of its records."""
    from kafkagroup.arrow.export import Export
    from kafkagroup.arrow.file_formats import FileFormat

    before, path = resident("VmRSS"), Path(to)
    wanted = Export(topic, {"bootstrap.servers": servers}, FileFormat(form))
    exported = wanted.to_file(path) if path.suffix else wanted.to_folder(path)
    return {"more": resident("VmHWM") - before, "read": exported.bytes}


if __name__ == "__main__":
    what: dict[str, Callable[..., dict[str, float]]]
    what = {"first_batch": first_batch, "memory": memory, "export": export}
    print(json.dumps(what[sys.argv[1]](*sys.argv[2:])))
