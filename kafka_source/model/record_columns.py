"""The names and types of a Kafka record's columns, and the check of requested columns. No Spark is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

from kafka_source.errors import OptionError

COLUMN_TYPES: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "replica": "int",
}
"""The columns that can be read, in their order, with the names of their types in Spark's SQL."""

TOO_LARGE = -(1 << 63)
"""Replaces a timestamp that is too large for microseconds, in a lenient column."""

TEXT_COLUMNS = ("key", "value")
"""Columns that a user can request as strings; their bytes are then decoded as UTF-8."""


@dataclass(frozen=True, slots=True)
class Column:
    """A requested column.

    Attributes:
        name: One of the source's columns.
        text: Whether the column's bytes are decoded as UTF-8.
        nullable: The nullability in the requested schema, which Spark compares with the Arrow schema.
        made: The type of a column that tasks decode, or that has the bytes of bad values; None: the column is fetched.
        lenient: Whether a timestamp that is too large for microseconds becomes `TOO_LARGE`; otherwise it is an error.
    """

    name: str
    text: bool = False
    nullable: bool = True
    made: pa.DataType | None = None
    lenient: bool = False


def columns_of_types(requested: Iterable[tuple[str, str, bool]]) -> tuple[Column, ...]:
    """Return the columns of a request: any subset of the source's columns, in any order.

    Args:
        requested: For each column its name, the name of its type in Spark's SQL, and whether it may have nulls.

    Raises:
        OptionError: The source lacks a requested column, or has the column with another type.
    """
    columns = []
    for name, kind, nullable in requested:
        expected, text = COLUMN_TYPES.get(name), name in TEXT_COLUMNS and kind == "string"
        if expected is None or not (text or kind == expected):
            takes = ", ".join(f"{one} {its_kind}" for one, its_kind in COLUMN_TYPES.items())
            raise OptionError("schema", f"{name} {kind}", f"columns of: {takes}; key and value may be string")
        columns.append(Column(name, text, nullable))
    return tuple(columns)
