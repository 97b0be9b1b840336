"""Micro-batches of 8 tasks with few rows: the time that exactly once adds, and the wait of readers."""

import threading
import time
from functools import partial
from statistics import median

from pyspark.sql import SparkSession

from assignors.model import TopicPartition
from benchmarks.read.figures import Figures, in_turns
from benchmarks.read.stream import Case, durations_of
from benchmarks.sink.throughput import AT_LEAST_ONCE, EXACTLY_ONCE, PARTITIONS
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.two_phase.open_transactions import list_open
from kafkagroup.embedded import EmbeddedKafka

TASKS, ROWS = 8, 160
CASE = Case(f"micro-batch of {TASKS} tasks", ROWS, triggers=30, skipped=10)
ADDED_MS = 150
PREFIX = "bench-stream"


def measure(spark: SparkSession, kafka: EmbeddedKafka, rounds: int) -> Figures:
    topic = kafka.create_topic("micro-batches", PARTITIONS)
    watch = Watch(kafka, topic)
    figures = Figures(CASE.name)

    def run(contestant: str) -> float:
        with watch:
            return _trigger(spark, kafka, topic, contestant)

    in_turns(figures, {name: partial(run, name) for name in (AT_LEAST_ONCE, EXACTLY_ONCE)}, rounds)
    pairs = zip(figures.seconds[AT_LEAST_ONCE], figures.seconds[EXACTLY_ONCE], strict=True)
    added = sorted(1000 * (exactly - least) for least, exactly in pairs)
    print(
        f"  exactly once adds {median(added):.0f} ms to a micro-batch, median of rounds ({added[0]:.0f} to "
        f"{added[-1]:.0f}); bar {ADDED_MS} ms, {'met' if median(added) <= ADDED_MS else 'MISSED'}"
    )
    print(watch.words())
    watch.close()
    return figures


def _trigger(spark: SparkSession, kafka: EmbeddedKafka, topic: str, contestant: str) -> float:
    """Return the median of Spark's `triggerExecution`, in seconds."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", TASKS)
    writer = rows.load().selectExpr("cast(value as string) as value").writeStream.format("kafkagroup")
    writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("topic", topic)
    if contestant == EXACTLY_ONCE:
        writer = writer.option("transactional", "true").option("transactional.id.prefix", PREFIX)
    return median(one["triggerExecution"] for one in durations_of(writer, CASE, contestant)) / 1000


class Watch:
    """Samples the sink's open transactions and its topic's offsets during a `with` block."""

    def __init__(self, kafka: EmbeddedKafka, topic: str) -> None:
        settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
        self._client, self._cluster = KafkaClient(settings), Cluster(settings)
        self._partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        self._open_ms: dict[tuple[int, int], float] = {}
        self._lags: list[int] = []
        self._stopping = threading.Event()

    def __enter__(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            for one in self._client.run(list_open(self._client, PREFIX, Deadline(10))):
                key = (one.transaction.producer_id, one.transaction.epoch)
                self._open_ms[key] = time.time() * 1000 - one.started_ms
            ends = self._cluster.latest(self._partitions, read_committed=False)
            stable = self._cluster.latest(self._partitions, read_committed=True)
            self._lags.append(sum(max(0, ends[tp] - stable[tp]) for tp in self._partitions))

    def words(self) -> str:
        """Return the result as text: how long transactions were open, and how many records readers waited for."""
        ages, lags = sorted(self._open_ms.values()) or [0.0], sorted(self._lags) or [0]
        return (
            f"  transactions were open for {median(ages):.0f} ms (median), at most {ages[-1]:.0f} (sampled every "
            f"0.1 s, {len(ages)} transactions); the last stable offset was {median(lags):.0f} records behind (median), "
            f"at most {lags[-1]}"
        )

    def close(self) -> None:
        self._client.close()
