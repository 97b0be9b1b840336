"""A query with state and a watermark that is moved by the word writes what a query writes that was never moved."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, sum, window

from benchmarks.read.sources import PEER
from kafkagroup.embedded import EmbeddedKafka, resolve
from tests.apps.process import App
from tests.parity.formats import ONE_DAILY, SPARK, Formats
from tests.support.records import Topic, run_to_end, send, to_files, write_records, written_rows
from tests.support.waiting import wait_until

NOON = 1_700_000_000_000


def send_seconds(kafka: EmbeddedKafka, topic: str, seconds: range, partitions: int = 2) -> None:
    """A record for each second in each partition, of that second's time."""
    times = ((second, {"timestamp": NOON + 1000 * second}) for second in seconds)
    records = ({"value": str(second), "partition": n, **at} for second, at in times for n in range(partitions))
    write_records(kafka.bootstrap_servers, topic, records)


def windows(formats: Formats, name: str, folder: Path, topic: str) -> None:
    """Count what is there in windows, as `tests.apps.windowed_app` does."""
    frame = formats.stream_of(name, {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20})
    frame = frame.selectExpr("timestamp", "partition", "CAST(CAST(value AS STRING) AS BIGINT) AS value")
    grouped = frame.withWatermark("timestamp", "5 seconds").groupBy(window("timestamp", "10 seconds"), "partition")
    counts = grouped.agg(count("*").alias("count"), sum("value").alias("sum"))
    run_to_end(to_files(counts.select("window.start", "partition", "count", "sum"), folder))


def output(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(f"{folder}/out")


@pytest.mark.long
@pytest.mark.parametrize("engine", ONE_DAILY)
def test_a_query_with_state_moves_with_a_batch_that_was_not_finished(
    kafka: EmbeddedKafka, formats: Formats, spark: SparkSession, topic: Topic, tmp_path: Path, engine: str
) -> None:
    name = topic("windows", partitions=2)
    send_seconds(kafka, name, range(40))
    windows(formats, SPARK, tmp_path / "moved", name)
    commits = tmp_path / "moved" / "checkpoint" / "commits"
    last = max((file for file in commits.glob("[0-9]*")), key=lambda file: int(file.name))
    # As if the driver had died after the batch was written and before it was finished.
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    send_seconds(kafka, name, range(40, 80))
    windows(formats, engine, tmp_path / "moved", name)
    windows(formats, SPARK, tmp_path / "stayed", name)
    expected = output(spark, tmp_path / "stayed")
    assert expected.count() >= 12
    assert_df_equality(output(spark, tmp_path / "moved"), expected, ignore_row_order=True)


def _has_rows(folder: Path, count: int) -> bool:
    return len(written_rows(folder / "out", "start")) >= count


def windowed_app(folder: Path, source: str, options: dict[str, str]) -> App:
    folder.mkdir(parents=True, exist_ok=True)
    jars = ",".join(map(str, resolve(PEER)))
    command = [sys.executable, "-m", "tests.apps.windowed_app", str(folder), jars, source, json.dumps(options)]
    return App(command, folder / f"{source}.log")


@pytest.mark.long
def test_a_query_with_state_is_killed_on_both_sides_of_the_move(
    kafka: EmbeddedKafka, spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    name = topic("killed", partitions=2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    moved = tmp_path / "moved"
    for source, seconds in ((SPARK, range(600)), ("kafkagroup", range(600, 1200)), ("kafkagroup", range(1200, 1800))):
        # Each run is killed in the middle of its backlog, whatever its query does at that moment.
        send_seconds(kafka, name, seconds)
        with windowed_app(moved, source, options) as app:
            for _ in range(3):
                app.wait_for("batch", seconds=120)
            # The text of an error names its batch too.
            assert not any(line.startswith("failed") for line in app.seen), app.seen
            app.kill()
    # The last record closes all windows before it.
    send(kafka, name, [1], 0, NOON + 10_000_000)
    send(kafka, name, [1], 1, NOON + 10_000_000)
    closed = 2 * 180
    # Ninety small batches with state take minutes on a busy machine; after the kills their size does not matter.
    rest = {**options, "maxOffsetsPerTrigger": "400"}
    for folder, source in ((moved, "kafkagroup"), (tmp_path / "stayed", SPARK)):
        with windowed_app(folder, source, rest) as app:
            wait_until(partial(_has_rows, folder, closed), "all windows")
            app.stop()
    expected = output(spark, tmp_path / "stayed")
    assert expected.count() == closed
    assert_df_equality(output(spark, moved), expected, ignore_row_order=True)
