"""What the files of a query's checkpoint tell of its micro-batches: when each began, and when it was committed."""

from __future__ import annotations

import json
from pathlib import Path


def committed(checkpoint: Path) -> list[int]:
    """Return the ids of the micro-batches that are committed, in order."""
    return sorted(int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal())


def began_at(checkpoint: Path, batch: int) -> float:
    """Return when Spark planned a micro-batch, in seconds since 1970: its end offsets are from just before."""
    _, metadata, *_ = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return float(json.loads(metadata)["batchTimestampMs"]) / 1000


def first_commit_after(checkpoint: Path, moment: float) -> float | None:
    """Return when the first micro-batch that began after a moment was committed; None: none is yet.

    A micro-batch that was running at that moment does not count, because it may have been as good as done.
    """
    found = None
    for batch in reversed(committed(checkpoint)):
        if began_at(checkpoint, batch) <= moment:
            break
        found = (checkpoint / "commits" / str(batch)).stat().st_mtime
    return found
