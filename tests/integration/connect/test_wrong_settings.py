"""Mistakes that users make: each is told in one line, within seconds, and as early as Spark lets a Python source."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import numbers, reader, run_to_end

SECONDS = 30


def last_line(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """The last line of an error's Python traceback, which users look at: Spark's own follow with JVM frames."""
    lines = [line for line in str(caught.value).splitlines() if "Error" in line and not line.startswith((" ", "\t"))]
    return [line for line in lines if "org.apache.spark" not in line][-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "newest"}, "Option startingOffsets got 'newest'; it takes"),
        ({"kafka.request.timeout.ms": "-1"}, "Option kafka.request.timeout.ms got '-1'"),
    ],
)
def test_a_wrong_option_comes_out_at_load(spark, kafka, options, words):
    for source in (spark.read, spark.readStream):
        source = source.format("kafkagroup").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
            source.options(**{"subscribe": "t", **options}).load()
        assert words in last_line(caught)


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"endingOffsets": "latest"}, None, "ending offset not valid in streaming queries"),
        # With a schema Spark calls nothing of a Python source in load().
        ({"failOnDataLoss": "maybe"}, "value binary", "Option failOnDataLoss got 'maybe'"),
        ({}, "colour string", "Option schema got 'colour string'"),
    ],
)
def test_what_only_a_started_stream_can_tell_ends_in_our_words(spark, kafka, topic, tmp_path, options, schema, words):
    source = spark.readStream.format("kafkagroup").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    source = source.option("subscribe", topic()).options(**options)
    frame = (source if schema is None else source.schema(schema)).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="OptionError") as caught:
        query.awaitTermination(200)
    assert "UnboundLocalError" not in str(caught.value)
    assert words in last_line(caught)


def test_options_of_others_do_not_matter(spark: SparkSession, kafka: EmbeddedKafka, topic, tmp_path: Path) -> None:
    """A shared dict with options of Spark, of other sources and of Java, and a name for the sink's query."""
    name, copy = topic("orders", partitions=1, records=20), topic("copy", partitions=1)
    shared = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "header": "true",
        "max.poll.records": "500",
        "kafka.some.future.setting": "x",
        "kafka.receive.buffer.bytes": "-1",
        "kafka.send.buffer.bytes": "131072",
        "kafka.fetch.max.bytes": "2147483647",
        "kafka.max.partition.fetch.bytes": "2147483647",
        "kafka.request.timeout.ms": "600000",
        "kafka.batch.size": "0",
        "kafka.retry.backoff.ms": "0",
        "kafka.metadata.max.age.ms": "604800000",
        "kafka.client.dns.lookup": "default",
        "kafka.acks": "all",
        "includeHeaders": "true",
        "topic": copy,
        "subscribe": name,
        "startingOffsets": "earliest",
    }
    rows = spark.readStream.format("kafkagroup").options(engine="auto", **shared).load().drop("topic", "partition")
    writer = rows.writeStream.format("kafkagroup").options(engine="auto", **shared).queryName("copied")
    run_to_end(writer.option("checkpointLocation", str(tmp_path)))
    batch = spark.read.format("kafkagroup").options(engine="librdkafka", **shared).load().drop("topic", "partition")
    batch.write.format("kafkagroup").options(engine="librdkafka", **shared).mode("append").save()
    assert numbers(reader(spark, kafka, copy).load()) == sorted([*range(20), *range(20)])
