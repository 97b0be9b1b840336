"""The decoded columns `value` and `key` in Spark's types, and the schemas that a read may request."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from kafka_source.engine_selection import check_value_kernel
from kafka_source.errors import OptionError
from kafka_source.model.record_columns import Column
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import DecodedColumn
from kafka_source.options.values import ColumnOptions
from kafka_source.schema import columns_of, schema_of
from kafka_source.spark_types import spark_type
from kafka_source.values.decoding import ColumnDecoding, Decoding
from kafka_source.values.reader_schema import ReaderSchema, reader_schema, registered

Readers = Mapping[DecodedColumn, ReaderSchema]
"""The schemas of the columns that are decoded."""


def readers_of(options: ReadOptions) -> Readers:
    """Return the current schemas of the columns.

    Raises:
        OptionError: The type of JSON values is wrong.
        KafkaGroupError: See `values.reader_schema.reader_schema`.
    """
    return {one.column: _reader_of(options, one) for one in options.decoded}


def _reader_of(options: ReadOptions, column: ColumnOptions) -> ReaderSchema:
    if column.format != "json" or column.schema is None:
        return reader_schema(options, column)
    # A parser is loaded only for a type that is given.
    from kafka_source.json_type import json_column_type

    kind = json_column_type(column.schema, f"{column.column}.schema")
    check_value_kernel(f"{column.column}.format=json")
    return ReaderSchema(column.schema, json=kind, column=column.column)


def schema_with_decoded(options: ReadOptions, readers: Readers) -> StructType:
    """Return the schema of a query with decoded columns.

    Raises:
        InvalidConfigurationError: A schema is not valid, or cannot be a column.
    """
    columns = schema_of(options, {name: spark_type(reader.column_type()) for name, reader in readers.items()})
    if options.mode == "PERMISSIVE":
        for name in readers:
            columns.add(options.corrupt_column(name), BinaryType())
    return columns


def requested(
    schema: StructType, options: ReadOptions, readers: Readers | None
) -> tuple[tuple[Column, ...], Decoding | None]:
    """Return the columns of a requested schema, and their decoding, which is None if no decoded column is requested.

    Args:
        schema: The schema.
        options: The options of the query, which decode a column.
        readers: The known schemas of the columns.

    Raises:
        OptionError: The source lacks a requested column, or has the column with another type.
        KafkaGroupError: See `readers_of`.
    """
    others = schema
    made: dict[str, Column] = {}
    decodings = []
    for one in options.decoded:
        corrupt = options.corrupt_column(one.column) if options.mode == "PERMISSIVE" else None
        fields = [field for field in schema.fields if field.name in (one.column, corrupt)]
        if not fields:
            continue
        others = StructType([field for field in others.fields if field not in fields])
        reader = (readers or {}).get(one.column) or _reader_of(options, one)
        found = kind = reader.column_type()
        for field in fields:
            if field.name == one.column:
                shown = relabelled(found, field.dataType)
                if shown is None:
                    takes = f"{reader.column} {spark_type(found).simpleString()} ({reader}), or some of its fields"
                    raise OptionError("schema", f"{reader.column} {field.dataType.simpleString()}", takes)
                kind = shown
                made[field.name] = Column(field.name, nullable=field.nullable, made=kind)
                continue
            if field.dataType != BinaryType():
                raise OptionError("schema", f"{field.name} {field.dataType.simpleString()}", f"{corrupt} binary")
            made[field.name] = Column(field.name, nullable=field.nullable, made=pa.binary())
        corrupt_name = options.corrupt_column(one.column)
        ends_at_newer = options.avro_schema_evolution_mode == "restart" and one.follows_subject
        decodings.append(
            ColumnDecoding(
                reader,
                kind,
                one.framing,
                corrupt_name,
                options.registry,
                ends_at_newer,
                batch_bytes=options.batch_bytes,
                max_decoded_bytes=options.max_decoded_bytes,
            )
        )
    fetched = {column.name: column for column in columns_of(others)}
    columns = tuple(made.get(name) or fetched[name] for name in schema.names)
    return columns, Decoding(tuple(decodings), options.mode) if decodings else None


def relabelled(kind: pa.DataType, wanted: DataType) -> pa.DataType | None:
    """Return an Arrow type with a Spark type's fields and nullability; None if values do not fit the Spark type.

    The Spark type may leave out a struct's fields and reorder them. A nullable field must stay nullable. All else must
    be equal.
    """
    if pa.types.is_struct(kind) and isinstance(wanted, StructType):
        if not wanted.fields or any(kind.get_field_index(name) < 0 for name in wanted.fieldNames()):
            return None
        pairs = [(kind.field(one.name), one) for one in wanted.fields]
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


def readers_of_batch(decodings: Collection[ColumnDecoding], end: StreamOffset, options: ReadOptions) -> Readers:
    """Return the schemas to which a batch's columns are resolved; a replay uses the schemas of the batch's first run.

    Args:
        decodings: The current decoding of the columns.
        end: The batch's end offset, which has the ids of its schemas.
        options: The query's options.
    """
    return {one.reader.column: _reader_of_batch(one, end.schemas.get(one.reader.column), options) for one in decodings}


def _reader_of_batch(decoding: ColumnDecoding, then: int | None, options: ReadOptions) -> ReaderSchema:
    # A replay uses the current schema in three cases. The user gives the schema as text, without an id. The format is
    # Protobuf or JSON, whose fields keep their numbers or names, and so their values. Or the query stops at a newer
    # schema, so that the first run had no rows with the newer schema.
    now = decoding.reader
    if now.id is None or then is None or then == now.id or now.format != "avro" or decoding.ends_at_newer:
        return now
    found = registered(options.registry, then, column=now.column)
    return replace(found, recursive_depth=now.recursive_depth)
