"""Columns, records and partitions of the sink."""

import pickle
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, StructType

from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.sink.batch_start import BatchContext
from kafka_source.sink.exactly_once import CommitMessage
from kafka_source.sink.records import SinkColumns, from_arrow, from_rows, sink_columns
from kafka_source.sink.writer import batch_writer, stream_writer
from kafkagroup.partitioner import murmur2, partition_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def row_of(*values: object) -> Row:
    """A row of values without names; Spark's types say that a row of names is all that there is."""
    return Row(*cast("tuple[str, ...]", values))


def spark_schema(ddl: str) -> StructType:
    """A schema of simple types, without a JVM."""
    simple = {"int": "integer", "bigint": "long"}
    schema = StructType()
    for part in ddl.split(", "):
        name, kind = part.split()
        schema = schema.add(name, simple.get(kind, kind))
    return schema


def fields_of(schema: StructType) -> list[tuple[str, str]]:
    """The names and types of a schema's columns, as the writers pass them."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


@pytest.mark.parametrize(
    ("ddl", "topic", "expected"),
    [
        ("value binary", "t", SinkColumns(0)),
        ("key string, value string, partition int", "t", SinkColumns(1, 0, None, 2)),
        ("topic string, value binary, other double", None, SinkColumns(1, None, 0)),
        ("topic double, value binary", "t", SinkColumns(1)),
    ],
)
def test_columns_are_found_by_name(ddl: str, topic: str | None, expected: SinkColumns) -> None:
    assert sink_columns(fields_of(spark_schema(ddl)), topic) == expected


def test_the_names_in_a_header_are_taken_in_any_case_as_spark_does() -> None:
    def headers(first: str, second: str) -> StructType:
        header = StructType().add(first, "string").add(second, "binary")
        return spark_schema("value binary").add("headers", ArrayType(header, containsNull=False))

    assert sink_columns(fields_of(headers("Key", "VALUE")), "t") == SinkColumns(0, headers=1)
    with pytest.raises(InvalidConfigurationError, match="headers attribute unsupported type"):
        sink_columns(fields_of(headers("name", "value")), "t")


@pytest.mark.parametrize(
    "ddl", ["VALUE string", "value int", "value string, key int", "value string, partition bigint"]
)
def test_wrong_columns_are_refused(ddl: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="attribute"):
        sink_columns(fields_of(spark_schema(ddl)), "t")


def test_a_column_that_is_encoded_has_any_type_and_must_be_there() -> None:
    fields = fields_of(spark_schema("value string, key int"))
    assert sink_columns(fields, "t", encoded=["key"]) == SinkColumns(0, key=1)
    with pytest.raises(InvalidConfigurationError, match="Required attribute 'key' not found among the columns value"):
        sink_columns(fields[:1], "t", encoded=["key"])


# Of Kafka's UtilsTest.testMurmur2, made unsigned.
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA_MURMUR2)
def test_murmur2_is_javas(key: bytes) -> None:
    assert murmur2(key) == JAVA_MURMUR2[key] & 0xFFFFFFFF


@hypothesis_settings(deadline=None)
@given(st.binary(max_size=40), st.integers(1, 1000))
def test_partitions_are_in_range_and_stable(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions
    assert partition_of(key, partitions) == partition_of(bytes(key), partitions)


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=5)),
        st.one_of(st.none(), st.text(max_size=5)),
        st.sampled_from(["t1", "t2"]),
        st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))))),
    ),
    min_size=1,
    max_size=20,
)


@hypothesis_settings(deadline=None)
@given(ROWS, st.sampled_from([None, "fixed"]), st.sampled_from([("key", "value"), ("Key", "VALUE")]))
def test_arrow_batches_and_rows_make_the_same_records(
    rows: list[tuple[object, ...]], topic: str | None, of_header: tuple[str, str]
) -> None:
    columns = SinkColumns(value=0, key=1, topic=2 if topic is None else None, partition=3, headers=4)
    key, value = of_header
    headers = pa.list_(pa.struct([(key, pa.large_string()), (value, pa.binary())]))
    types = [pa.binary(), pa.string(), pa.string(), pa.int32(), headers]
    structs = [
        (*row[:4], None if row[4] is None else [{key: k, value: v} for k, v in row[4]])  # type: ignore[attr-defined]
        for row in rows
    ]
    batch = pa.record_batch(
        [pa.array(column, kind) for column, kind in zip(zip(*structs, strict=True), types, strict=True)],
        names=list("vktph"),
    )
    named = [
        row_of(*row[:4], None if row[4] is None else [Row(key=k, value=v) for k, v in row[4]])  # type: ignore[attr-defined]
        for row in rows
    ]
    from_batch = from_arrow(batch, columns, topic)
    assert list(from_rows(iter(named), columns, topic)) == [from_batch]
    assert from_batch.values.to_pylist() == [row[0] for row in rows]
    assert from_batch.topics == (topic or pa.array([row[2] for row in rows]))
    by_topic = [(name, part.values.to_pylist()) for name, part in from_batch.by_topic()]
    names = dict.fromkeys(topic or row[2] for row in rows)
    assert by_topic == [(name, [row[0] for row in rows if (topic or row[2]) == name]) for name in names]
    lengths = [len(row[0] or b"") + len((row[1] or "").encode()) + 10 for row in rows]  # type: ignore[arg-type, attr-defined]
    assert from_batch.sizes() == lengths
    assert from_batch.slice(1, 5).sizes() == lengths[1:6]


def test_binary_columns_of_rows_may_be_bytearrays() -> None:
    row = row_of(bytearray(b"v"), bytearray(b"k"), None, None, [Row(key="h", value=bytearray(b"x"))])
    (records,) = from_rows(iter([row]), SinkColumns(value=0, key=1, headers=4), "t")
    assert records.values.to_pylist() == [b"v"]
    assert records.keys is not None and records.keys.to_pylist() == [b"k"]
    assert records.headers is not None and records.headers.to_pylist() == [[{"key": "h", "value": b"x"}]]


def test_many_rows_are_taken_some_at_a_time() -> None:
    chunks = list(from_rows(iter([(b"v",)] * 2500), SinkColumns(0), "t"))
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]


@pytest.mark.usefixtures("users_program")
def test_writers_are_sent_to_tasks_and_show_no_secret() -> None:
    options = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.sasl.password": "topsecret",
        "topic": "t",
        "checkpointLocation": "/c",
    }
    for make in (batch_writer, stream_writer):
        writer: Any = make(options, spark_schema("value string"), False)
        copy: Any = pickle.loads(pickle.dumps(writer))
        assert copy._target == writer._target
        assert copy.start.context() == writer.start.context() == BatchContext()
        assert "topsecret" not in repr(vars(writer)) + repr(vars(writer.start))


@pytest.mark.usefixtures("users_program")
def test_a_stream_may_be_complete_but_a_batch_may_not_overwrite() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    stream_writer(options, spark_schema("value string"), True)
    with pytest.raises(InvalidConfigurationError, match="overwrite"):
        batch_writer(options, spark_schema("value string"), True)
    with pytest.raises(OptionError, match=r"Set kafka\.bootstrap\.servers to host:port"):
        batch_writer({"topic": "t"}, spark_schema("value string"), False)


def test_a_stream_that_writes_at_least_once_commits_without_brokers() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    stream_writer(options, spark_schema("value string"), False, commits=True).commit([CommitMessage(5)], 0)


@pytest.mark.requires_native
def test_an_engine_that_does_not_follow_a_setting_is_refused_before_any_task() -> None:
    options = {"topic": "t", "kafka.bootstrap.servers": "a:1", "engine": "native", "kafka.statistics.interval.ms": "1"}
    with pytest.raises(OptionError, match=r"auto or librdkafka with kafka\.statistics\.interval\.ms"):
        batch_writer(options, spark_schema("value string"), False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("transactional.id.prefix", "orders"), ("transactional.on.lost", "replay"), ("commit.group", "orders")],
)
@pytest.mark.parametrize("transactional", [{}, {"transactional": "false"}])
def test_exactly_once_is_not_asked_for_by_half(name: str, value: str, transactional: dict[str, str]) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t", name: value, **transactional}
    for make in (batch_writer, stream_writer):
        with pytest.raises(OptionError, match=rf"{name} got '{value}'; it takes .* with transactional=true"):
            make(options, spark_schema("value string"), False)
