"""The Arrow type of a column that a sink encodes, as the driver knows it before the first row."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_source.errors import InvalidConfigurationError

_SIMPLE: dict[type[DataType], pa.DataType] = {
    NullType: pa.null(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
}


def arrow_type(kind: DataType, path: str = "") -> pa.DataType:
    """Return the Arrow type of a column.

    Args:
        kind: Its type in Spark.
        path: The path of the field within the column `value`, for errors.

    Raises:
        InvalidConfigurationError: Avro has no such type; names the path.
    """
    if isinstance(kind, StructType):
        fields = kind.fields
        types = [arrow_type(field.dataType, f"{path}.{field.name}" if path else field.name) for field in fields]
        return pa.struct([pa.field(f.name, t, f.nullable) for f, t in zip(fields, types, strict=True)])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType, f"{path}[]"), kind.containsNull))
    if isinstance(kind, MapType):
        key, value = arrow_type(kind.keyType, f"{path}{{}}"), arrow_type(kind.valueType, f"{path}{{}}")
        return pa.map_(key, pa.field("value", value, kind.valueContainsNull))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    for known, found in _SIMPLE.items():
        if isinstance(kind, known):
            return found
    place = f"Field {path} of the column value" if path else "The column value"
    raise InvalidConfigurationError(f"{place} has the type {kind.simpleString()}, which cannot be written as Avro.")
