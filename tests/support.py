"""What several integration tests need: records to read, and queries to read them with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from confluent_kafka import KafkaException, Producer
from pyspark.sql import DataFrame, SparkSession

from kafkagroup.embedded import EmbeddedKafka

DEADLINE_SECONDS = 180


def produce(
    servers: str, topic: str, count: int, *, first: int = 0, config: Mapping[str, object] | None = None
) -> None:
    """Write the numbers [first, first + count) as values, keyed by themselves."""
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000, **(config or {})}
    )
    for number in range(first, first + count):
        text = str(number).encode()
        producer.produce(
            topic, key=text, value=text, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)
    assert not failures, failures[:3]


def create_again(kafka: EmbeddedKafka, topic: str, partitions: int) -> None:
    """Create a topic of a name that was deleted a moment ago."""
    deadline = time.monotonic() + 60
    while True:
        try:
            kafka.create_topic(topic, partitions)
            return
        except KafkaException:
            # The old one is marked for deletion for a while.
            assert time.monotonic() < deadline
            time.sleep(0.1)


def reader(spark: SparkSession, kafka: EmbeddedKafka, topic: str, **options: object):
    """A batch reader of a topic; options with _ for . in their names, e.g. kafka_group_id."""
    return _with(spark.read, kafka, topic, options)


def stream(spark: SparkSession, kafka: EmbeddedKafka, topic: str, **options: object) -> DataFrame:
    """A stream of a topic, with options as in `reader`."""
    return _with(spark.readStream, kafka, topic, options).load()


def _with(source, kafka, topic, options):
    source = source.format("kafkagroup").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    if topic:
        source = source.option("subscribe", topic)
    for name, value in options.items():
        source = source.option(name.replace("_", "."), value)
    return source


def numbers(frame: DataFrame) -> list[int]:
    """The values of a frame as sorted numbers."""
    return sorted(int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect())


def written(folder: Path) -> list[int]:
    """The values that a stream has written to its file sink so far, as sorted numbers; only files of whole batches."""
    return sorted(value for _, _, value in written_records(folder))


def written_records(folder: Path) -> list[tuple[int, int, int]]:
    """The same with their places: (partition, offset, value)."""
    return sorted((p, o, int(value)) for p, o, value in written_rows(folder, "partition", "offset", "value"))


def written_rows(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of all rows that a stream has written so far."""
    log = folder / "_spark_metadata"
    lines = {line for entry in log.glob("[0-9]*") for line in entry.read_text().splitlines()[1:]}
    paths = [unquote(urlparse(json.loads(line)["path"]).path) for line in lines]
    return [row for path in paths for row in _rows(path, columns)]


@cache
def _rows(path: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    # Tests look again and again at files that never change.
    table = pq.read_table(path, columns=list(columns), partitioning=None)
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def until(condition: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for a condition, and fail with `what` after a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for: {what}"
        time.sleep(0.2)
