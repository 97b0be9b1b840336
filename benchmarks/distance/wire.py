"""The share of a wire that a contestant reaches."""

from __future__ import annotations

from pathlib import Path

from benchmarks.read.topics import PARTITIONS

EMPTY = "empty"
"""A topic without records. The time of its read is the fixed cost: planning, metadata and offsets."""


def topic_bytes(data_folder: Path, topic: str) -> int:
    """Return the bytes of a topic's record batches, which are stored as they cross the wire."""
    logs = (log for number in range(PARTITIONS) for log in (data_folder / f"{topic}-{number}").glob("*.log"))
    return sum(log.stat().st_size for log in logs)


def words(name: str, size: int, seconds: float, empty_seconds: float, megabits: int) -> str:
    """Return the shares as text, with the fixed cost and without it.

    Args:
        name: The contestant.
        size: The bytes that it read.
        seconds: The time of the read.
        empty_seconds: The time of its read of a topic without records.
        megabits: The width of the wire in Mbit/s.
    """
    at_best = size * 8 / (megabits * 1e6)
    text = f"  {name}: {size / 1e6:.0f} MB in {seconds:.2f} s, {at_best / seconds:.0%} of {megabits} Mbit/s"
    if seconds <= empty_seconds:
        return f"{text}; an empty read took {empty_seconds:.2f} s, no less: too few records for a share without it"
    return f"{text}; without the {empty_seconds:.2f} s of an empty read {at_best / (seconds - empty_seconds):.0%}"
