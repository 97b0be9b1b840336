"""Values of rows as short texts, for tables and CSV. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from assignors.model import TopicPartition
from kafka_source.model.partition_runs import numbers_by_topic, runs_text

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
    by_topic = numbers_by_topic(sorted(partitions))
    return "; ".join(f"{topic} {runs_text(numbers, ', ')}" for topic, numbers in by_topic.items())
