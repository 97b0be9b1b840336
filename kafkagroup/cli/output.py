"""Output of a command: rows, and each value as a short text for tables and CSV. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kafka_source.runtime.visible_text import visible

if TYPE_CHECKING:
    from assignors.model import TopicPartition
    from kafkagroup.admin.rows import Rows


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows to print.

    Attributes:
        name: The name of the listing in a JSON document with several listings.
        rows: The rows.
        title: The title of the table.
        hidden: Columns that the table leaves out; JSON and CSV have all columns.
        total: The values of an additional last row of the table, by column; empty: no such row.
        empty: The text that replaces a table without rows.
        headings: Those headings that differ from the names of their columns.
        first: The column with which the table begins; empty: the rows' first column.
    """

    name: str
    rows: Rows[object]
    title: str = ""
    hidden: frozenset[str] = frozenset()
    total: Mapping[str, object] = field(default_factory=dict)
    empty: str = ""
    headings: Mapping[str, str] = field(default_factory=dict)
    first: str = ""


class Output(str, Enum):
    """The formats of a result."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    JSONL = "jsonl"


MISSING = "-"
"""A missing value in a table, as in Kafka's own tools."""


def cell(value: object, missing: str = MISSING) -> str:
    """Return a value as a text, for tables and CSV."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{round(value, 3):.12g}"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        if not value:
            return missing
        # Partitions are named tuples of two fields.
        if hasattr(value[0], "_fields"):
            return partitions_text(value)
        return ", ".join(cell(one, missing) for one in value)
    return visible(str(value))


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions with their numbers as ranges, for example `orders 0-3, 7; payments 0`."""
    # Imported here, because this import loads the assignors, which `--help` must not load.
    from kafka_source.model.partition_runs import numbers_by_topic, runs_text

    by_topic = numbers_by_topic(sorted(partitions))
    return "; ".join(f"{topic} {runs_text(numbers, ', ')}" for topic, numbers in by_topic.items())
