"""The main job at size: a million records over 8 partitions, in batch and as a stream, every one once."""

import re

import pytest
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceStreamReader

from kafkagroup.embedded import run_java
from tests.support.records import produce, reader, run_to_end, running, stream, to_files

ADMISSION = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
COUNT = 1_000_000
PARTITIONS = 8
GROUP = "million"


@pytest.fixture(scope="module")
def million(kafka):
    name = kafka.create_topic("million", partitions=PARTITIONS)
    produce(kafka.bootstrap_servers, name, COUNT)
    return name


def check_every_record_once(frame):
    """Every (partition, offset) once, and the values are the numbers that were written."""
    number = f.col("value").cast("string").cast("long")
    by_partition = frame.groupBy("partition").agg(
        f.count("*").alias("rows"),
        f.countDistinct("offset").alias("offsets"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.sum(number).alias("sum"),
    )
    found = by_partition.collect()
    assert sorted(row["partition"] for row in found) == list(range(PARTITIONS))
    for row in found:
        assert row["rows"] == row["offsets"] == row["last"] + 1
        assert row["first"] == 0
    assert sum(row["rows"] for row in found) == COUNT
    assert sum(row["sum"] for row in found) == COUNT * (COUNT - 1) // 2


def group_command(kafka, group):
    """What Kafka's own kafka-consumer-groups says: {partition: (committed, end)}."""
    servers = kafka.bootstrap_servers
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    told = run_java(tool, "--bootstrap-server", servers, "--describe", "--group", group).stdout
    rows = re.findall(rf"^{group}\s+\S+\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+", told, flags=re.MULTILINE)
    return {int(partition): (int(committed), int(end)) for partition, committed, end in rows}


@pytest.mark.timeout(400)
def test_as_a_batch_whose_tasks_commit(spark, kafka, million):
    frame = reader(spark, kafka, million, kafka_group_id=f"{GROUP}-batch", commit="task").load()
    check_every_record_once(frame)
    seen = group_command(kafka, f"{GROUP}-batch")
    assert sorted(seen) == list(range(PARTITIONS))
    assert all(committed == end for committed, end in seen.values())
    assert reader(spark, kafka, million, kafka_group_id=f"{GROUP}-batch").load().count() == 0


@pytest.mark.timeout(400)
def test_as_a_stream(spark, kafka, million, tmp_path):
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": COUNT // 3}
    writer = to_files(stream(spark, kafka, million, kafka_group_id=f"{GROUP}-stream", **options), tmp_path)
    if ADMISSION:
        run_to_end(writer, 300)
    else:
        # Spark before 4.2 ends AvailableNow of a Python source after one batch, of a third of the records here.
        with running(writer.start()) as query:
            query.processAllAvailable()
    check_every_record_once(spark.read.parquet(str(tmp_path / "out")))
    seen = group_command(kafka, f"{GROUP}-stream")
    assert sorted(seen) == list(range(PARTITIONS))
    assert all(committed == end for committed, end in seen.values())
