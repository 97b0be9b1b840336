"""KafkaSinkSuite: what both formats write, and what both refuse to write."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import struct, to_json

from tests.parity.formats import ALL, OURS, SPARK, Formats


def suite(name: str) -> pytest.MarkDecorator:
    return pytest.mark.spark_test("KafkaSinkSuite", name)


def write(formats: Formats, frame: DataFrame, name: str, **options: object) -> None:
    """Append a frame with one format."""
    writer = frame.write.format("kafka" if name == SPARK else "kafkagroup").mode("append")
    writer = writer.option("kafka.bootstrap.servers", formats.servers)
    if name != SPARK:
        writer = writer.option("engine", name)
    for option, value in options.items():
        writer = writer.option(option.replace("_", "."), str(value))
    writer.save()


def read(formats: Formats, topic: str) -> list[tuple[object, ...]]:
    """Everything but offsets and times, as Spark's own source reads it."""
    frame = formats.read(subscribe=topic, includeHeaders="true")[SPARK]
    rows = frame.select("partition", "key", "value", "headers").collect()
    return sorted((tuple(row) for row in rows), key=repr)


def written(formats: Formats, frame: DataFrame, partitions: int = 2, **options: object) -> list[tuple[object, ...]]:
    """Write a frame with each format to a topic of its own, compare the topics, and return what is in them."""
    found = {}
    for name in ALL:
        target = formats.topic(f"written-{name}", *[()] * partitions)
        write(formats, frame, name, topic=target, **options)
        found[name] = read(formats, target)
    for name in OURS:
        assert found[name] == found[SPARK], name
    return found[SPARK]


def kinds(formats: Formats, frame: DataFrame, **options: object) -> dict[str, str]:
    """The errors with which each format refuses to write a frame."""
    found = {}
    for name in ALL:
        with pytest.raises(Exception) as caught:
            write(formats, frame, name, **options)
        found[name] = str(caught.value)
    return found


@suite("batch - write to kafka")
def test_a_batch_with_headers(spark: SparkSession, formats: Formats) -> None:
    frame = spark.createDataFrame(
        [
            Row(key=b"a", value=b"1", headers=[Row(key="h", value=b"x"), Row(key="h", value=None)]),
            Row(key=b"b", value=b"2", headers=None),
            Row(key=None, value=None, headers=[]),
        ],
        "key binary, value binary, headers array<struct<key string, value binary>>",
    )
    assert len(written(formats, frame, partitions=1)) == 3


def test_the_names_in_a_header_are_taken_in_any_case(spark: SparkSession, formats: Formats) -> None:
    frame = spark.createDataFrame(
        [Row(value=b"1", headers=[Row(Key="h", VALUE=b"x"), Row(Key="g", VALUE=None)]), Row(value=b"2", headers=None)],
        "value binary, headers array<struct<Key string, VALUE binary>>",
    )
    rows = written(formats, frame, partitions=1)
    assert [row[-1] for row in rows] == [[Row(key="h", value=b"x"), Row(key="g", value=None)], None]


@pytest.mark.parametrize("include", ["true", "false"])
def test_the_option_of_the_source_for_headers_changes_nothing_in_a_sink(
    spark: SparkSession, formats: Formats, include: str
) -> None:
    schema = "value binary, headers array<struct<key string, value binary>>"
    frame = spark.createDataFrame([Row(value=b"1", headers=[Row(key="h", value=b"x")])], schema)
    (row,) = written(formats, frame, partitions=1, includeHeaders=include)
    assert row[-1] == [Row(key="h", value=b"x")]


@suite("batch - partition column and partitioner priorities")
def test_the_partition_column_and_the_hash_of_keys(spark: SparkSession, formats: Formats) -> None:
    frame = spark.createDataFrame(
        [Row(key=f"k{n}", value=str(n), partition=None if n % 2 else n % 3) for n in range(30)],
        "key string, value string, partition int",
    )
    assert len(written(formats, frame, partitions=3)) == 30


@suite("batch - null topic field value, and no topic option")
def test_a_null_topic(spark: SparkSession, formats: Formats) -> None:
    frame = spark.createDataFrame([Row(topic=None, value="1")], "topic string, value string")
    assert all("null topic" in text for text in kinds(formats, frame).values())


@suite("batch - unsupported save modes")
def test_overwrite_is_refused(spark: SparkSession, formats: Formats) -> None:
    frame = spark.createDataFrame([Row(value="1")])
    for name in ALL:
        writer = frame.write.format("kafka" if name == SPARK else "kafkagroup").option("topic", "t")
        with pytest.raises(Exception, match=r"(?i)save mode overwrite not allowed for kafka"):
            writer.option("kafka.bootstrap.servers", formats.servers).mode("overwrite").save()


@pytest.mark.forced("Spark allows Python sources the modes append and overwrite only")
def test_a_write_without_a_mode(spark: SparkSession, formats: Formats) -> None:
    frame = spark.createDataFrame([Row(value="1")])
    target = formats.topic("no-mode", ())
    frame.write.format("kafka").option("kafka.bootstrap.servers", formats.servers).option("topic", target).save()
    with pytest.raises(Exception, match="ErrorIfExists"):
        frame.write.format("kafkagroup").option("kafka.bootstrap.servers", formats.servers).option(
            "topic", target
        ).save()
    assert len(read(formats, target)) == 1


SCHEMAS = {
    "no value": ("key string", "'value' not found"),
    "topic": ("topic int, value string", "topic"),
    "value": ("topic string, value int", "value"),
    "key": ("topic string, key int, value string", "key"),
    "partition": ("topic string, value string, partition string", "partition"),
}


@pytest.mark.parametrize("case", SCHEMAS)
@suite("streaming - write data with bad schema")
@suite("streaming - write data with valid schema but wrong types")
def test_wrong_columns(spark: SparkSession, formats: Formats, case: str) -> None:
    schema, word = SCHEMAS[case]
    frame = spark.createDataFrame([], schema)
    options = {} if "topic" in schema else {"topic": "t"}
    assert all(word in text for text in kinds(formats, frame, **options).values())


@pytest.mark.long
@pytest.mark.parametrize("where", ["field", "option", "both"])
@suite("streaming - write to kafka with topic field")
@suite("streaming - write w/o topic field, with topic option")
@suite("streaming - write to kafka with topic field and topic option")
def test_a_stream(formats: Formats, tmp_path: Path, where: str) -> None:
    source = formats.topic("source", range(5))
    found = {}
    for name in ALL:
        target, other = formats.topic(f"target-{name}", ()), formats.topic(f"other-{name}", ())
        column = {"field": target, "option": None, "both": other}[where]
        frame = formats.stream_of(name, {"subscribe": source, "startingOffsets": "earliest"}).selectExpr(
            "CAST(value AS STRING) AS value", *([f"'{column}' AS topic"] if column else [])
        )
        writer = frame.writeStream.format("kafka" if name == SPARK else "kafkagroup").queryName(f"q-{name}-{where}")
        writer = writer.option("kafka.bootstrap.servers", formats.servers).trigger(availableNow=True)
        if where != "field":
            writer = writer.option("topic", target)
        query = writer.option("checkpointLocation", str(tmp_path / name)).start()
        assert query.awaitTermination(60)
        found[name] = read(formats, target)
    assert len(found[SPARK]) == 5
    assert all(found[name] == found[SPARK] for name in OURS)


@pytest.mark.forced(
    "a Python sink has no output mode update (PythonWriteBuilder has no SupportsStreamingUpdateAsAppend)"
)
@suite("streaming - sink progress is produced")
def test_output_mode_update(formats: Formats, tmp_path: Path) -> None:
    source = formats.topic("updates", ())
    frame = formats.stream_of(SPARK, {"subscribe": source}).groupBy("topic").count()
    frame = frame.selectExpr("topic", "CAST(count AS STRING) AS value")
    writer = frame.writeStream.format("kafkagroup").outputMode("update")
    with pytest.raises(Exception, match=r"(?i)update"):
        writer.option("kafka.bootstrap.servers", formats.servers).option(
            "checkpointLocation", str(tmp_path)
        ).start().processAllAvailable()


@suite("streaming - write to non-existing topic")
def test_a_topic_that_does_not_exist_and_may_not_be_created(formats: Formats, spark: SparkSession) -> None:
    # The name is none that Kafka takes, so no broker creates it.
    frame = spark.createDataFrame([Row(value=b"1")], "value binary")
    quick = {"kafka.max.block.ms": "2000", "kafka.topic.metadata.propagation.max.ms": "2000"}
    for name in ALL:
        options = {option: value for option, value in quick.items() if name != "librdkafka" or "block" not in option}
        with pytest.raises(Exception, match=r"no such topic!|INVALID_TOPIC|Invalid topic"):
            write(formats, frame, name, topic="no such topic!", **options)


@pytest.mark.long
@suite("generic - write big data with small producer buffer")
def test_more_data_than_the_producer_may_buffer(spark: SparkSession, formats: Formats) -> None:
    frame = spark.range(15_000).selectExpr("CAST(lpad(CAST(id AS STRING), 100, '0') AS BINARY) AS value")
    rows = written(formats, frame, 1, kafka_buffer_memory="16384", kafka_block_on_buffer_full="true")
    assert sorted(int(bytes(value)) for _, _, value, _ in rows if isinstance(value, bytes | bytearray)) == list(
        range(15_000)
    )


@suite("SPARK-20496: batch - enforce analyzed plans")
def test_a_plan_of_functions_is_analyzed_before_it_is_written(spark: SparkSession, formats: Formats) -> None:
    frame = spark.range(1, 1000).select(to_json(struct("*")).alias("value"))
    assert len(written(formats, frame, 1)) == 999
