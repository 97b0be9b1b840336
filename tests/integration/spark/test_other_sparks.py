"""The same query elsewhere: two in one session, on a cluster of processes, and through Spark Connect."""

import itertools
import json
import os
from pathlib import Path

import pytest

import kafkagroup
from kafkagroup.progress import lag_of
from tests.apps.process import streaming_app
from tests.mistakes.catalog import CONNECT, Row, rows_of_page
from tests.support.programs import run_python
from tests.support.records import produce, running, stream, to_files, written
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "none"}


def test_the_format_may_be_registered_again(spark):
    # Spark has found it by itself, which Spark 4.0 answers with an error.
    for _ in range(3):
        kafkagroup.register(spark)
    assert spark.read.format(kafkagroup.FORMAT).options(**NOWHERE).load().columns[:2] == ["key", "value"]


def test_two_queries_of_one_session_with_different_groups(spark, kafka, topic, tmp_path):
    name = topic("two", partitions=2, records=100)
    queries = []
    for group in ("one", "two"):
        frame = stream(spark, kafka, name, kafka_group_id=f"{name}-{group}", startingOffsets="earliest")
        queries.append(to_files(frame, tmp_path / group).start())
    try:
        for query in queries:
            query.processAllAvailable()
        produce(kafka.bootstrap_servers, name, 100, first=100)
        for query in queries:
            query.processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    for group in ("one", "two"):
        assert written(tmp_path / group / "out") == list(range(200))


def test_the_progress_tells_how_far_a_query_is_behind(spark, kafka, topic, tmp_path):
    name = topic("behind", partitions=2, records=100)
    frame = stream(spark, kafka, name, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with running(writer.start()) as query:
        query.processAllAvailable()
        batches = [one for one in query.recentProgress if one.numInputRows]
    read = list(itertools.accumulate(one.numInputRows for one in batches))
    assert [lag.total for one in batches for lag in lag_of(one)] == [100 - rows for rows in read]
    assert len(batches) == 3


@pytest.mark.timeout(500)
def test_on_a_cluster_of_worker_processes(kafka, topic, tmp_path):
    name = topic("local-cluster", partitions=4, records=1000)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-group",
        "startingOffsets": "earliest",
    }
    with streaming_app(tmp_path, options, master="local-cluster[2,1,1024]") as app:
        app.wait_for("batch", seconds=240)
        wait_until(lambda: written(tmp_path / "out") == list(range(1000)), "all records in the files")
        app.stop()


@pytest.mark.long
@pytest.mark.requires_native
@pytest.mark.timeout(500)
def test_executors_without_the_native_engine_of_the_driver(kafka, topic, tmp_path, monkeypatch):
    # The executors' Python finds a package of another version first.
    (tmp_path / "old" / "kafkagroup_native").mkdir(parents=True)
    (tmp_path / "old" / "kafkagroup_native" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    monkeypatch.setenv("EXECUTOR_PYTHONPATH", os.pathsep.join([str(tmp_path / "old"), str(ROOT)]))
    name = topic("mixed", partitions=4, records=1000)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
    with streaming_app(tmp_path / "auto", options, master="local-cluster[2,1,1024]") as app:
        app.wait_for("batch", seconds=240)
        wait_until(lambda: written(tmp_path / "auto" / "out") == list(range(1000)), "all records in the files")
        app.stop()
    with streaming_app(tmp_path / "native", {**options, "engine": "native"}, master="local-cluster[2,1,1024]") as app:
        assert " has version 0.0.1 " in app.wait_for("engine=native, but the package kafkagroup-native", seconds=240)


# The page has the sentences of the native engine.
@pytest.mark.requires_native
def test_through_spark_connect(kafka, topic, tmp_path):
    name = topic("connect", partitions=2, records=100)
    done = run_python("-m", "tests.apps.connect_app", tmp_path, kafka.bootstrap_servers, name, seconds=280)
    assert "batch 100 stream 100" in done.stdout, done.stderr[-3000:]
    assert f"scraped 100 rebalances 1 kept 100 of ['{name}-group']" in done.stdout, done.stdout[-2000:]
    # Its group was stopped from outside.
    assert "ended True None" in done.stdout, done.stdout[-2000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("mistakes ")]
    told = [Row(*fields) for fields in json.loads(line.partition(" ")[2])]
    page = {row.shown: row.sentence for row in rows_of_page() if row.section == CONNECT}
    assert {row.shown: row.sentence for row in told} == page
    assert [row for row in told if row.lines > 10] == []
