"""Throughput of batch writes: rows from memory, each batch into a new topic."""

import itertools
import time
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from benchmarks.read.figures import Figures, in_turns
from kafkagroup.embedded import EmbeddedKafka

PARTITIONS = 4
JVM, AT_LEAST_ONCE, EXACTLY_ONCE = "jvm", "at least once", "exactly once"

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Case:
    """One workload, in which the second contestant is compared with the first.

    Attributes:
        name: The name of the case.
        value_bytes: The size of each value.
        rows: The number of rows.
        contestants: The two ways to write.
        bar: The first contestant's time divided by the second's.
        far_bar: The bar for a far broker; None: no bar.
    """

    name: str
    value_bytes: int
    rows: int
    contestants: tuple[str, str]
    bar: float
    far_bar: float | None = None


CASES = (
    Case("write 100 B", 100, 2_000_000, (JVM, AT_LEAST_ONCE), 2.5, far_bar=2.0),
    Case("write 1 kB", 1000, 400_000, (JVM, AT_LEAST_ONCE), 2.5, far_bar=2.0),
    Case("write 100 B, exactly once", 100, 2_000_000, (AT_LEAST_ONCE, EXACTLY_ONCE), 0.9),
)


def measure(spark: SparkSession, kafka: EmbeddedKafka, rounds: int, smaller_by: int, *, far: str = "") -> list[Figures]:
    """Measure all cases; `far` is a suffix of the cases' names if the broker is far."""
    results = []
    for case in CASES:
        rows = case.rows // smaller_by
        frame = _rows(spark, rows, case.value_bytes)
        bar = case.far_bar if far else case.bar
        figures = Figures(case.name + far, {case.contestants[1]: bar} if bar else {})
        runs = {name: partial(_write, kafka, frame, name, rows) for name in case.contestants}
        results.append(in_turns(figures, runs, rounds))
        frame.unpersist()
    return results


def _rows(spark: SparkSession, rows: int, value_bytes: int) -> DataFrame:
    value = f"cast(lpad(cast(id * 2654435761 as string), {value_bytes}, 'kafkagroup ') as binary) as value"
    frame = spark.range(0, rows, numPartitions=PARTITIONS).selectExpr(value).cache()
    assert frame.count() == rows
    return frame


def _write(kafka: EmbeddedKafka, frame: DataFrame, contestant: str, rows: int) -> float:
    topic = kafka.create_topic(f"write-{next(_numbers)}", PARTITIONS)
    writer = frame.write.format("kafka" if contestant == JVM else "kafkagroup").mode("append")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("topic", topic)
    if contestant == EXACTLY_ONCE:
        writer = writer.option("transactional", "true").option("transactional.id.prefix", "bench")
    started = time.perf_counter()
    writer.save()
    seconds = time.perf_counter() - started
    assert _count(kafka, topic) >= rows, contestant
    kafka.delete_topic(topic)
    return seconds


def _count(kafka: EmbeddedKafka, topic: str) -> int:
    """Return the number of offsets in a topic, including those of commit markers."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "count"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(PARTITIONS)]
    consumer.close()
    return sum(ends)
