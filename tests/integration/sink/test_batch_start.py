"""When Spark pickles a writer: the sink begins a batch then, and Spark promises nothing about it."""

# Spark's processes get the local classes without the names of their annotations.
from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafka_source.client_config import Settings
from kafka_source.datasource import KafkaGroupSource
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.sink.two_phase.open_transactions import describe
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic, run_to_end, to_topic
from tests.support.two_phase import visible

BATCHES = 3


def counting_source(events: Path) -> type[KafkaGroupSource]:
    """The data source, with a line in a file for each pickling of a writer and for each begin of a batch.

    The classes are local, so that Spark sends them to its processes whole: these cannot import the tests.
    """
    path = str(events)

    def note(event: str) -> None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{event} {os.getpid()}\n")

    def counted(writer: Any) -> Any:
        from kafka_source.sink.batch_start import BatchContext, BatchStart, begin_in_driver
        from kafka_source.sink.target import Target

        def begin(target: Target) -> BatchContext:
            note("begin")
            return begin_in_driver(target)

        class CountingStart(BatchStart):
            def __getstate__(self) -> Any:
                note("pickle")
                return super().__getstate__()

        writer.start = CountingStart(writer._target, begin)
        return writer

    class CountingSource(KafkaGroupSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return counted(super().writer(schema, overwrite))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return counted(super().streamWriter(schema, overwrite))

    return CountingSource


def counts(events: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in events.read_text(encoding="utf-8").splitlines())


def driver_epoch(kafka: EmbeddedKafka, prefix: str) -> int:
    client = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    return client.run(describe(client, f"{prefix}-driver", Deadline(30))).transaction.epoch


def test_each_micro_batch_is_pickled_twice_and_begins_once(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    name, events = topic("start-stream"), tmp_path / "events"
    spark.dataSource.register(counting_source(events))
    (tmp_path / "in").mkdir()
    for number in range(BATCHES):
        (tmp_path / "in" / f"{number}.txt").write_text(f"a{number}\nb{number}\n", encoding="utf-8")
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(tmp_path / "in"))
    transactional = {"transactional": "true", "transactional.id.prefix": name}
    run_to_end(to_topic(lines, kafka, name, tmp_path / "checkpoint", **transactional).format("counting"))
    assert counts(events) == {"begin": BATCHES, "pickle": 2 * BATCHES}
    # Brokers count from 0, and each begin initialises the driver's id once.
    assert driver_epoch(kafka, name) == BATCHES - 1
    assert visible(kafka.bootstrap_servers, name, 2 * BATCHES) == sorted(
        f"{x}{n}".encode() for x in "ab" for n in range(BATCHES)
    )


def test_a_batch_write_is_pickled_twice_and_begins_once(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    name, events = topic("start-batch"), tmp_path / "events"
    spark.dataSource.register(counting_source(events))
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "transactional": "true"}
    options["transactional.id.prefix"] = name
    df = spark.range(0, 20, numPartitions=4).selectExpr("cast(id as string) as value")
    df.write.format("counting").mode("append").options(**options).save()
    assert counts(events) == {"begin": 1, "pickle": 2}
    assert driver_epoch(kafka, name) == 0
    assert visible(kafka.bootstrap_servers, name, 20) == sorted(str(i).encode() for i in range(20))
