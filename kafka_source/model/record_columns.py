"""The columns of a Kafka record; for readers with and without Spark."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_COLUMNS = ("key", "value")
"""Columns that a user can request as strings; their bytes are then decoded as UTF-8."""


@dataclass(frozen=True, slots=True)
class Column:
    """A requested column.

    Attributes:
        name: One of the source's columns.
        text: Whether its bytes are decoded as UTF-8.
        nullable: The nullability in the requested schema, which Spark compares with the Arrow schema.
    """

    name: str
    text: bool = False
    nullable: bool = True
