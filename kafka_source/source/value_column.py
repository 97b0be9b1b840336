"""The column `value` as Spark sees it: the type of a decoded value, and what a requested schema takes of it."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructType,
)

from kafka_source.engine_selection import check_value_kernel
from kafka_source.errors import OptionError
from kafka_source.model.record_columns import Column
from kafka_source.options import ReadOptions
from kafka_source.schema import columns_of, schema_of
from kafka_source.spark_types import spark_type
from kafka_source.values.decoding import VALUE, ValueDecoding
from kafka_source.values.reader_schema import ReaderSchema, reader_schema


def reader_of(options: ReadOptions) -> ReaderSchema:
    """Return the schema of the column `value`, as it is now.

    Raises:
        OptionError: The type of JSON values is wrong.
        KafkaGroupError: See `values.reader_schema.reader_schema`.
    """
    if options.value_format != "json" or options.value_schema is None:
        return reader_schema(options)
    # Only who reads JSON loads the parser of types.
    from kafka_source.json_type import json_column_type

    kind = json_column_type(options.value_schema)
    check_value_kernel("json")
    return ReaderSchema(options.value_schema, json=kind)


def schema_with_values(options: ReadOptions, reader: ReaderSchema) -> StructType:
    """Return the schema of a query whose values are decoded.

    Raises:
        InvalidConfigurationError: The schema of the values is not valid, or cannot be a column.
    """
    kind = spark_type(reader.column_type())
    columns = schema_of(options, kind)
    if options.mode == "PERMISSIVE":
        columns.add(options.column_name_of_corrupt_record, BinaryType())
    return columns


def requested(
    schema: StructType, options: ReadOptions, reader: ReaderSchema | None
) -> tuple[tuple[Column, ...], ValueDecoding | None]:
    """Return the columns of a requested schema, and how to decode the values; None if nobody asks for them.

    Args:
        schema: The schema.
        options: The options of the query, whose `value.format` is decoded.
        reader: The schema of the values, if it is known already.

    Raises:
        OptionError: The source has no such column, or it has another type.
        KafkaGroupError: See `reader_of`.
    """
    corrupt = options.column_name_of_corrupt_record if options.mode == "PERMISSIVE" else None
    made = [field for field in schema.fields if field.name in (VALUE, corrupt)]
    others = iter(columns_of(StructType([field for field in schema.fields if field not in made])))
    if not made:
        return tuple(others), None
    reader = reader or reader_of(options)
    found = kind = reader.column_type()
    columns = []
    for field in schema.fields:
        if field not in made:
            columns.append(next(others))
        elif field.name == corrupt:
            if field.dataType != BinaryType():
                raise OptionError("schema", f"{field.name} {field.dataType.simpleString()}", f"{corrupt} binary")
            columns.append(Column(corrupt, nullable=field.nullable, made=pa.binary()))
        else:
            kind = _as_requested(found, field.dataType, reader)
            columns.append(Column(VALUE, nullable=field.nullable, made=kind))
    decoding = ValueDecoding(
        reader,
        kind,
        options.value_framing,
        options.mode,
        options.column_name_of_corrupt_record,
        options.registry,
    )
    return tuple(columns), decoding


def _as_requested(found: pa.DataType, wanted: DataType, reader: ReaderSchema) -> pa.DataType:
    """Return the type of the column: fields of the record, in any order, as the schema says them."""
    part = found
    if pa.types.is_struct(found) and isinstance(wanted, StructType):
        indexes = [found.get_field_index(field.name) for field in wanted.fields]
        if wanted.fields and min(indexes) >= 0:
            part = pa.struct([found.field(index) for index in indexes])
    kind = relabelled(part, wanted)
    if kind is None:
        takes = f"value {spark_type(found).simpleString()} ({reader}), or some of its fields"
        raise OptionError("schema", f"value {wanted.simpleString()}", takes)
    return kind


def relabelled(kind: pa.DataType, wanted: DataType) -> pa.DataType | None:
    """Return a type with the nullability that a Spark type says; None if values of the type cannot be shown so.

    What can be null must be nullable in the Spark type; all else has to be the same.
    """
    if pa.types.is_struct(kind) and isinstance(wanted, StructType):
        if [field.name for field in kind] != wanted.fieldNames():
            return None
        pairs = zip(kind, wanted.fields, strict=True)
        children = [_child(field, field.name, one.dataType, one.nullable) for field, one in pairs]
        known = [child for child in children if child is not None]
        return pa.struct(known) if len(known) == len(children) else None
    if pa.types.is_list(kind) and isinstance(wanted, ArrayType):
        child = _child(kind.value_field, "element", wanted.elementType, wanted.containsNull)
        return None if child is None else pa.list_(child)
    if pa.types.is_map(kind) and isinstance(wanted, MapType):
        child = _child(kind.item_field, "value", wanted.valueType, wanted.valueContainsNull)
        return None if child is None or wanted.keyType != spark_type(kind.key_type) else pa.map_(kind.key_field, child)
    nested = pa.types.is_nested(kind) or isinstance(wanted, StructType | ArrayType | MapType)
    return kind if not nested and spark_type(kind) == wanted else None


def _child(field: pa.Field, name: str, wanted: DataType, nullable: bool) -> pa.Field | None:
    kind = relabelled(field.type, wanted)
    return None if kind is None or (field.nullable and not nullable) else pa.field(name, kind, nullable)
