"""The columns of a Kafka record, with their Arrow types; for readers with and without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

_ARROW: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "replica": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
}

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

    def arrow_field(self) -> pa.Field:
        """Return the Arrow field that Spark expects for this column."""
        if self.name in TEXT_COLUMNS:
            return pa.field(self.name, pa.string() if self.text else pa.binary(), nullable=self.nullable)
        return pa.field(self.name, _ARROW[self.name], nullable=self.nullable)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a Python data source with these columns."""
    return pa.schema([column.arrow_field() for column in columns])
