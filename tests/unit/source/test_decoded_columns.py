"""Decoded columns as Spark sees them, and what a requested schema takes of them."""

import inspect
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, duration_pb2
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import Where, read_options
from kafka_source.source.row_columns import columns_to_fetch
from kafka_source.spark_types import spark_type
from kafka_source.values.reader_schema import ReaderSchema
from tests.support.avro import record
from tests.support.native import kernel

kernel()

from kafka_source.source.decoded_columns import readers_of, relabelled, requested, schema_with_decoded  # noqa: E402

SCHEMA = record(
    "Order",
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "lines", "type": {"type": "map", "values": record("Line", {"name": "n", "type": ["null", "int"]})}},
)
READER = ReaderSchema(json.dumps(SCHEMA), 7)


def options(**given):
    text = {
        "kafka.bootstrap.servers": "here:1",
        "subscribe": "orders",
        "value.format": "avro",
        "schema.registry.url": "http://there",
        **given,
    }
    return read_options(text, Where.BATCH)


def value_of(*fields):
    """A requested column `value` with these fields."""
    return StructField("value", StructType(list(fields)))


def arrow_type_of_spark(kind):
    """What Spark makes of a type: before 4.2 it knows no other time zone than UTC."""
    has_zones = "timezone" in inspect.signature(to_arrow_type).parameters
    return to_arrow_type(kind, timezone="UTC") if has_zones else to_arrow_type(kind)


def test_the_arrow_type_is_the_one_that_spark_expects_for_its_own():
    kind = READER.column_type()
    shown = spark_type(kind)
    assert shown.simpleString() == (
        "struct<id:bigint,at:timestamp,price:decimal(9,2),tags:array<string>,lines:map<string,struct<n:int>>>"
    )
    assert relabelled(kind, shown) == kind == arrow_type_of_spark(shown)


def test_a_type_may_be_read_as_nullable_and_not_the_other_way_round():
    kind = READER.column_type()
    wanted = (
        StructType([StructField("id", LongType()), StructField("at", TimestampType())])
        .add("price", DecimalType(9, 2))
        .add("tags", ArrayType(StringType()))
        .add("lines", MapType(StringType(), StructType([StructField("n", IntegerType())])))
    )
    loose = relabelled(kind, wanted)
    assert loose == arrow_type_of_spark(wanted)
    assert loose != kind
    price = pa.struct([kind.field("price")])
    assert relabelled(price, StructType([StructField("price", DecimalType(9, 2), nullable=False)])) is None


def test_permissive_has_a_column_for_the_bytes_of_bad_values():
    schema = schema_with_decoded(options(mode="PERMISSIVE", includeHeaders="true"), {"value": READER})
    assert schema.names[-2:] == ["headers", "_corrupt_record"]
    others = schema_with_decoded(options(**{"key.format": "String"}), {"value": READER})
    assert "_corrupt_record" not in others.names
    assert (others.names[0], others["key"].dataType) == ("key", StringType())


def test_a_schema_takes_fields_in_its_order():
    wanted = value_of(StructField("tags", ArrayType(StringType())), StructField("id", LongType()))
    columns, decoding = requested(StructType([StructField("offset", LongType()), wanted]), options(), {"value": READER})
    assert [column.name for column in columns] == ["offset", "value"]
    assert decoding is not None
    (of_value,) = decoding.columns
    assert of_value.type.names == ["tags", "id"]
    assert [str(field.type) for field in of_value.type] == ["list<element: string>", "int64"]


def test_keys_are_columns_like_values_and_each_is_decoded_only_where_it_is_asked_for():
    both = options(mode="PERMISSIVE", **{"key.format": "json", "key.schema": "id bigint, area int"})
    readers = {**readers_of(options(**{"key.format": "json", "key.schema": "id bigint", "value.schema": '"long"'}))}
    assert str(readers["key"]) == "the schema of option key.schema"
    readers = {"value": READER, "key": readers_of(replace(both, value_format="binary"))["key"]}
    schema = schema_with_decoded(both, readers)
    assert schema["key"].dataType.simpleString() == "struct<id:bigint,area:int>"
    assert schema.names[-2:] == ["_corrupt_record", "_corrupt_record_key"]
    columns, decoding = requested(schema, both, readers)
    assert [column.name for column in columns] == schema.names
    assert decoding is not None
    assert [one.reader.column for one in decoding.columns] == ["value", "key"]
    fewer = StructType([StructField("key", StructType([StructField("area", IntegerType())]))])
    _, decoding = requested(fewer.add("offset", LongType()), both, readers)
    assert decoding is not None
    assert [(one.reader.column, one.type.names) for one in decoding.columns] == [("key", ["area"])]
    assert [one.name for one in columns_to_fetch(columns[:0], decoding)] == ["key", "topic", "partition", "offset"]
    with pytest.raises(OptionError, match=r"key binary.*it takes key struct<id:bigint,area:int>"):
        requested(StructType([StructField("key", BinaryType())]), both, readers)


def test_without_the_value_nothing_is_decoded():
    schema = StructType([StructField("key", BinaryType()), StructField("offset", LongType())])
    columns, decoding = requested(schema, options(), None)
    assert (len(columns), decoding) == (2, None)


@pytest.mark.parametrize(
    "field",
    [
        StructField("value", BinaryType()),
        StructField("value", StringType()),
        StructField("value", StructType()),
        value_of(StructField("id", IntegerType())),
        value_of(StructField("unknown", LongType())),
        value_of(StructField("tags", ArrayType(LongType()))),
        value_of(StructField("lines", MapType(StringType(), StructType([StructField("m", IntegerType())])))),
        StructField("_corrupt_record", BinaryType()),
        StructField("payload", BinaryType()),
    ],
    ids=lambda field: str(field.dataType.simpleString()),
)
def test_what_the_values_do_not_have_is_refused(field):
    with pytest.raises(OptionError, match=field.name):
        requested(StructType([field]), options(), {"value": READER})


def test_the_column_of_bad_values_is_binary():
    schema = StructType([value_of(StructField("id", LongType())), StructField("_corrupt_record", StringType())])
    with pytest.raises(OptionError, match="_corrupt_record string"):
        requested(schema, options(mode="PERMISSIVE"), {"value": READER})


def test_a_descriptor_file_says_what_a_protobuf_column_is(tmp_path):
    file = tmp_path / "duration.desc"
    given = {
        **{"value.format": "protobuf", "value.framing": "none", "value.descriptor.file": str(file)},
        "value.message.name": "google.protobuf.Duration",
    }
    text = {"kafka.bootstrap.servers": "here:1", "subscribe": "orders", **given}
    of_file = read_options(text, Where.BATCH)
    with pytest.raises(InvalidConfigurationError, match=r"duration\.desc, cannot be read on the driver: No such file"):
        readers_of(of_file)
    files = descriptor_pb2.FileDescriptorSet()
    duration_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file.write_bytes(files.SerializeToString())
    readers = readers_of(of_file)
    reader = readers["value"]
    assert spark_type(reader.column_type()).simpleString() == "struct<seconds:bigint,nanos:int>"
    assert str(reader) == "the schema of option value.descriptor.file"
    _, decoding = requested(StructType([value_of(StructField("nanos", IntegerType()))]), of_file, readers)
    assert decoding is not None
    assert decoding.columns[0].type.names == ["nanos"]
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidConfigurationError, match="no descriptor set with all imports"):
        schema_with_decoded(of_file, readers_of(of_file))
