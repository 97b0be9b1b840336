"""Rows of Spark become values: those of batches, and those that Spark 4.0 hands over one by one."""

import json
from dataclasses import replace
from datetime import datetime, timezone

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, CalendarIntervalType, LongType, MapType, StringType, StructType, TimestampType

from kafka_source.errors import InvalidConfigurationError
from kafka_source.sink.records import SinkColumns, from_arrow, from_rows
from kafka_source.spark_types import arrow_type
from kafka_source.values.derived_schema import avro_schema
from kafka_source.values.writer_schema import WriterSchema
from tests.support.native import kernel

native = kernel()

from kafka_source.values.encoding import ColumnEncoding  # noqa: E402

TYPE = (
    StructType()
    .add("id", LongType(), nullable=False)
    .add("at", TimestampType())
    .add("items", ArrayType(StructType().add("n", LongType())))
    .add("more", MapType(StringType(), TimestampType()))
)
AT = datetime(2026, 11, 25, 12, tzinfo=timezone.utc)
LOCAL = AT.astimezone().replace(tzinfo=None)


def encoding() -> ColumnEncoding:
    kind = arrow_type(TYPE)
    return ColumnEncoding(WriterSchema("avro", avro_schema(kind), 3), kind)


def test_rows_and_batches_are_encoded_alike() -> None:
    how, columns = encoding(), SinkColumns(value=0, topic=1)
    row = Row(id=1, at=LOCAL, items=[Row(n=2), None], more={"k": LOCAL})
    (by_row,) = from_rows(iter([(row, "a"), (None, "b")]), columns, None, [how])
    value = {"id": 1, "at": AT, "items": [{"n": 2}, None], "more": [("k", AT)]}
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], how.type), pa.array(["a", "b"])], ["value", "topic"])
    by_batch = from_arrow(batch, columns, None, [how])
    assert by_row.values.equals(by_batch.values) and by_row.topics == by_batch.topics
    decoder = native.AvroDecoder(how.schema.text)
    decoder.add_writer_schema(3, how.schema.text)
    assert pa.array(decoder.decode(by_batch.values)).to_pylist() == [value, None]


def test_a_value_that_does_not_fit_names_the_topic_of_its_row() -> None:
    schema = WriterSchema("avro", json.dumps({"type": "enum", "name": "E", "symbols": ["A"]}), 3)
    how, columns = ColumnEncoding(schema, pa.string()), SinkColumns(value=0, topic=1)
    with pytest.raises(InvalidConfigurationError, match=r"topic b cannot be written with schema 3: the string is none"):
        list(from_rows(iter([("A", "a"), ("hunter2", "b")]), columns, None, [how]))
    of_key = replace(how, schema=replace(schema, column="key"))
    batch = pa.RecordBatch.from_arrays([pa.array(["v"]), pa.array(["hunter2"])], ["value", "key"])
    with pytest.raises(
        InvalidConfigurationError, match=r"A key for topic t cannot be written with schema 3: the string"
    ):
        from_arrow(batch, SinkColumns(value=0, key=1), "t", [of_key])
    (records,) = from_rows(iter([("v", "A"), ("w", None)]), SinkColumns(value=0, key=1), "t", [of_key])
    assert records.keys is not None and records.keys.to_pylist() == [b"\0\0\0\0\3\0", None]


def test_a_type_that_no_format_has_is_named_by_its_path() -> None:
    kind = StructType().add("a", ArrayType(StructType().add("i", CalendarIntervalType())))
    with pytest.raises(InvalidConfigurationError, match=r"Field a\[\]\.i of the column has the type interval"):
        arrow_type(kind)
