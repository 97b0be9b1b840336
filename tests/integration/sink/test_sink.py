"""Writing DataFrames and streams to Kafka with `format("kafkagroup")`."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_source.datasource import register
from kafka_source.runtime.deadline import Deadline
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic, add_partitions, run_to_end, to_topic

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def write(df: DataFrame, kafka: EmbeddedKafka, topic: str | None = None, mode: str = "append", **options: str) -> None:
    writer = df.write.format("kafkagroup").mode(mode).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    (writer if topic is None else writer.option("topic", topic)).save()


def records(kafka: EmbeddedKafka, topic: str, partitions: int = 1) -> list[Message]:
    """All records of a topic, partition by partition."""
    config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"}
    reader = Consumer({**config, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    reader.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: list[Message] = []
    ends, deadline = 0, Deadline(60)
    while ends < partitions:
        assert not deadline.over
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(message)
        else:
            ends += 1
    reader.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def parts(message: Message) -> tuple[object, object, object]:
    return message.key(), message.value(), message.headers()


def test_a_partition_that_was_added_a_moment_ago_takes_records(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic
) -> None:
    name = topic("grown")
    schema = "partition int, value string"
    write(spark.createDataFrame([(0, "before")], schema).coalesce(1), kafka, name)
    add_partitions(kafka, name, 2)
    # The workers still have the producer of the first write, which knows one partition.
    write(spark.createDataFrame([(1, "after")], schema).coalesce(1), kafka, name)
    assert [((m.value() or b"").decode(), m.partition()) for m in records(kafka, name, 2)] == [
        ("before", 0),
        ("after", 1),
    ]


def test_the_topic_column_and_the_option_that_goes_before_it(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic
) -> None:
    one, two, three = topic("one"), topic("two"), topic("three")
    df = spark.createDataFrame([(one, "1"), (two, "2"), (one, "3")], "topic string, value string").coalesce(1)
    write(df, kafka)
    assert [m.value() for m in records(kafka, one)] == [b"1", b"3"]
    assert [m.value() for m in records(kafka, two)] == [b"2"]
    write(df, kafka, three)
    assert [m.value() for m in records(kafka, three)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, codec: str) -> None:
    name = topic(codec)
    write(spark.range(100).selectExpr("repeat('x', 100) as value"), kafka, name, kafka__compression__type=codec)
    assert [m.value() for m in records(kafka, name)] == [b"x" * 100] * 100


def test_every_record_of_many_tasks_arrives(spark: SparkSession, kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("many", partitions=4)
    df = spark.range(0, 50_000, numPartitions=5).selectExpr("cast(id as string) as value")
    write(df, kafka, name, kafka__queue__buffering__max__messages="1000", kafka__linger__ms="1")
    assert sorted(int(m.value() or b"") for m in records(kafka, name, 4)) == list(range(50_000))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((-3, "v", None), "Column partition holds -3"),
        ((0, "v", [(None, None)]), "Column headers holds a header without a key"),
        ((99, "v", None), "The topic does not have the partition that the column partition contains"),
    ],
)
def test_rows_that_kafka_cannot_take(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, row: tuple[Any, ...], expected: str
) -> None:
    name = topic("rows")
    with pytest.raises(Exception, match="Error") as caught:
        write(spark.createDataFrame([row], f"partition int, value string, headers {HEADERS}"), kafka, name)
    assert expected in str(caught.value)
    assert records(kafka, name) == []


def test_a_record_that_is_too_large_fails_the_task_with_topic_and_reason(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic
) -> None:
    name = topic("large", config={"max.message.bytes": 2000})
    df = spark.createDataFrame([("small",), ("x" * 5000,)], "value string").coalesce(1)
    with pytest.raises(Exception, match="InvalidConfigurationError") as caught:
        write(df, kafka, name)
    assert f"A record for {name}" in str(caught.value)
    assert "max.message.bytes" in str(caught.value)
    with pytest.raises(Exception, match=r"kafka\.max\.request\.size"):
        write(spark.createDataFrame([("x" * 5000,)], "value string"), kafka, name, kafka__max__request__size="1000")


@pytest.mark.requires_native
@pytest.mark.parametrize("options", [{}, {"transactional": "true", "transactional__id__prefix": "in-parts"}])
def test_a_topic_may_take_smaller_batches_than_ours(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, options: dict[str, str]
) -> None:
    name = topic("small-batches", config={"max.message.bytes": 20_000})
    rows = spark.range(3000).selectExpr("CAST(id AS STRING) AS key", "repeat('x', 100) AS value").coalesce(1)
    write(rows, kafka, name, **options)
    assert [m.key() for m in records(kafka, name)] == [str(number).encode() for number in range(3000)]


def test_brokers_that_are_not_there_end_the_write_in_time(spark: SparkSession) -> None:
    df = spark.createDataFrame([("v",)], "value string")
    writer = df.write.format("kafkagroup").mode("append").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(Exception, match="BootstrapError") as caught:
        writer.option("topic", "t").save()
    assert "127.0.0.1:1" in str(caught.value)


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_streams_append_and_complete(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path, mode: str
) -> None:
    name = topic(mode, partitions=2)
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").text(str(tmp_path / "in"))
    df = stream.selectExpr("value as key", "value")
    if mode != "append":
        df = stream.groupBy("value").count().selectExpr("value as key", "cast(count as string) as value")

    def run(words: str, number: int) -> None:
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        run_to_end(to_topic(df, kafka, name, tmp_path / "checkpoint").outputMode(mode))

    run("aab", 1)
    run("c", 2)
    found = sorted(((m.key() or b"").decode(), (m.value() or b"").decode()) for m in records(kafka, name, 2))
    expected = {
        "append": [("a", "a"), ("a", "a"), ("b", "b"), ("c", "c")],
        "complete": [("a", "2"), ("a", "2"), ("b", "1"), ("b", "1"), ("c", "1")],
    }
    assert found == expected[mode]


def test_a_stream_that_fails_in_a_task_says_why(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    name = topic("stream-large", config={"max.message.bytes": 2000})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("x" * 5000, encoding="utf-8")
    lines = spark.readStream.text(str(tmp_path / "in"))
    with pytest.raises(Exception, match=f"A record for {name}"):
        run_to_end(to_topic(lines, kafka, name, tmp_path / "checkpoint"))


def test_a_micro_batch_is_written_to_two_topics_at_once_by_threads_that_register(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    source, copies = topic("twice"), [topic("copy-a"), topic("copy-b")]
    write(spark.range(20).select(F.col("id").cast("string").alias("value")), kafka, source)

    def save(batch: DataFrame, _: int) -> None:
        def write_to(name: str) -> None:
            register(batch.sparkSession)
            write(batch.select("value"), kafka, name)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write_to, copies))

    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafkagroup").options(**options, **{"kafka.group.id": source}).load()
    run_to_end(rows.writeStream.foreachBatch(save).option("checkpointLocation", str(tmp_path)))
    for name in copies:
        assert sorted(int(one.value() or b"-1") for one in records(kafka, name)) == list(range(20))
