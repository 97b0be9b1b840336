"""The schema of a Kafka record as a row: that of Spark's built-in source."""

from __future__ import annotations

from collections.abc import Mapping

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
from kafka_source.model.record_columns import TEXT_COLUMNS, Column
from kafka_source.options import column_options

__all__ = ["HEADERS_TYPE", "REPLICA", "Column", "columns_of", "schema_for", "source_schema"]

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

REPLICA = "replica"
"""The number of the copy that a row is read for. It is a property of the read and not of the record, so the engines do
not produce it."""


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
