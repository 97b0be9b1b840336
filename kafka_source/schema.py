"""The columns of a read with Spark's types, by the options `includeHeaders`, `redundant.emit` and `string`."""

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

from kafka_source.model.record_columns import COLUMN_TYPES, Column, columns_of_types
from kafka_source.options import ReadOptions, column_options

__all__ = ["HEADERS_TYPE", "REPLICA", "Column", "columns_of", "schema_for", "schema_of", "source_schema"]

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_SPARK_TYPES: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (BinaryType(), StringType(), IntegerType(), LongType(), TimestampType(), HEADERS_TYPE)
}

REPLICA = "replica"
"""The column with the number of the partition's copy that emits the row. The engines do not make this column."""


def source_schema(*, headers: bool, replica: bool = False, **types: DataType) -> StructType:
    """Return the schema of the built-in Kafka source, in which all columns are nullable.

    Args:
        headers: Include the column `headers`.
        replica: Include the column `replica`, which the built-in source does not have.
        types: The types of the columns `key` and `value` if they are not binary.
    """
    left_out = {name for name, wanted in (("headers", headers), ("replica", replica)) if not wanted}
    known = {name: _SPARK_TYPES[kind] for name, kind in COLUMN_TYPES.items() if name not in left_out}
    return StructType([StructField(name, kind) for name, kind in {**known, **types}.items()])


def schema_for(given: Mapping[str, str]) -> StructType:
    """Return the schema that the options of a query select.

    Raises:
        OptionError: An option that selects columns has an invalid value.
    """
    return schema_of(column_options(given))


def schema_of(options: ReadOptions, decoded: Mapping[str, DataType] | None = None) -> StructType:
    """Return the schema that the options select.

    Args:
        options: The options.
        decoded: The types of the columns that are decoded.
    """
    types: dict[str, DataType] = {**(decoded or {})}
    types |= {one.column: StringType() for one in (options.of_key, options.of_value) if one.format == "string"}
    return source_schema(headers=options.include_headers, replica=options.redundant_emit == "all", **types)


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """Return the columns of a requested schema: any subset of the source's columns, in any order.

    Raises:
        OptionError: The source has no such column, or the column has another type.
    """
    return columns_of_types((field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields)
