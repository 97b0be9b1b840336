"""The schema of a Kafka record as a row: that of Spark's built-in source, and the Arrow schema that Spark expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_source.errors import OptionError
from kafka_source.options import column_options

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_SPARK: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
    "replica": IntegerType(),
}

_ARROW: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "replica": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
}

REPLICA = "replica"
"""The number of the copy that a row is read for. It is a property of the read and not of the record, so the engines do
not produce it."""

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


def source_schema(*, headers: bool, replica: bool = False) -> StructType:
    """Return the schema of the built-in Kafka source, in which all columns are nullable.

    Args:
        headers: Include the column `headers`.
        replica: Include the column `replica`, which the built-in source does not have.
    """
    left_out = {name for name, wanted in (("headers", headers), ("replica", replica)) if not wanted}
    return StructType([StructField(name, kind) for name, kind in _SPARK.items() if name not in left_out])


def schema_for(given: Mapping[str, str]) -> StructType:
    """Return the schema that the options of a query select.

    Raises:
        OptionError: An option that selects columns has an invalid value.
    """
    options = column_options(given)
    return source_schema(headers=options.include_headers, replica=options.redundant_emit == "all")


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """Return the columns of a requested schema: any subset of the source's columns, in any order.

    Raises:
        OptionError: The source has no such column, or it has another type.
    """
    columns = []
    for field in schema.fields:
        expected = _SPARK.get(field.name)
        text = field.name in TEXT_COLUMNS and field.dataType == StringType()
        if expected is None or not (text or field.dataType.simpleString() == expected.simpleString()):
            takes = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _SPARK.items())
            got = f"{field.name} {field.dataType.simpleString()}"
            raise OptionError("schema", got, f"columns of: {takes}; key and value may be string")
        columns.append(Column(field.name, text, field.nullable))
    return tuple(columns)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the Arrow schema that Spark expects from a Python data source with these columns."""
    return pa.schema([column.arrow_field() for column in columns])
