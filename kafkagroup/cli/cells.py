"""Values of rows as short texts, for tables and CSV. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from assignors.model import TopicPartition

MISSING = "-"
"""What a table shows for a missing value, as Kafka's own tools."""


def cell(value: object, missing: str = MISSING) -> str:
    """Return a value as a text."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{round(value, 3):.12g}"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        if not value:
            return missing
        if isinstance(value[0], TopicPartition):
            return partitions_text(value)
        return ", ".join(cell(one, missing) for one in value)
    return str(value)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions with their numbers as ranges: `orders 0-3, 7; payments 0`."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in by_topic.items())


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ranges."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
