"""The Spark type of each Arrow type that decoding makes, and the Arrow type of each column that a sink encodes."""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_source.errors import InvalidConfigurationError

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
    pa.null(): NullType(),
    pa.duration("us"): DayTimeIntervalType(),
}

_ARROW_TYPES: dict[type[DataType], pa.DataType] = {
    **{type(spark): arrow for arrow, spark in _SPARK_TYPES.items()},
    ByteType: pa.int8(),
    ShortType: pa.int16(),
}


def spark_type(kind: pa.DataType) -> DataType:
    """Return Spark's type for an Arrow type that the native kernel decodes to."""
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in kind])
    if pa.types.is_list(kind):
        return ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_map(kind):
        return MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return _SPARK_TYPES[kind]


def arrow_type(kind: DataType, path: str = "") -> pa.DataType:
    """Return the Arrow type of a column that a sink encodes, known before the first row.

    Args:
        kind: The column's type in Spark.
        path: The path of the field within the column, for errors.

    Raises:
        InvalidConfigurationError: No format has such a type; the error names the path.
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
    for known, found in _ARROW_TYPES.items():
        if isinstance(kind, known):
            return found
    place = f"Field {path} of the column" if path else "The column"
    raise InvalidConfigurationError(f"{place} has the type {kind.simpleString()}, which cannot be encoded.")
