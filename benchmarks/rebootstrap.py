"""Time from the move of all brokers to the next micro-batch: kafkagroup and the JVM connector, in one run.

    ./run bench rebootstrap [--rounds 3] [--save FILE]

The bootstrap server is a proxy that forwards to the broker's new port after the move. The JVM connector's client is
configured to rebootstrap too, which is not its default. A source that does not recover within 120 s counts as 120 s.
"""

import shutil
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession

from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.topics import produce
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import TcpProxy

TOPIC = "moving"
RECORDS = 1000
LONGEST_SECONDS = 120.0


def main() -> None:
    given = begin(parser_of(__doc__, rounds=3, saves=True), HEAD)
    with TcpProxy() as entry, EmbeddedKafka() as kafka:
        kafka.create_topic(TOPIC, 4)
        entry.connect_to(kafka.port(1))
        spark = sources.session()
        ours = {"kafka_group_id": "bench-moving", "group_members": 2}
        contestants = {
            "jvm": lambda: run(spark, kafka, entry, sources.JVM),
            "native, in a group": lambda: run(spark, kafka, entry, sources.NATIVE, **ours),
            "native, no group": lambda: run(spark, kafka, entry, sources.NATIVE),
            "librdkafka, no group": lambda: run(spark, kafka, entry, sources.LIBRDKAFKA),
        }
        figures = in_turns(Figures("all brokers moved to next batch"), contestants, given.rounds, warm_up=0)
        spark.stop()
    save(given, [figures])


def run(spark: SparkSession, kafka: EmbeddedKafka, entry: TcpProxy, source: str, **options: Any) -> float:
    folder = tempfile.mkdtemp(prefix="kafkagroup-checkpoint-")
    frame = sources.frame(
        spark, source, f"127.0.0.1:{entry.port}", TOPIC, stream=True,
        kafka_metadata_recovery_strategy="rebootstrap", **options,
    )  # fmt: skip
    query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
    try:
        _produce(kafka)
        _wait_for_rows(query, -1)
        progress = query.lastProgress
        assert progress is not None
        before = progress.batchId
        entry.cut()
        kafka.restart(1, new_ports=True)
        entry.connect_to(kafka.port(1))
        moved = time.perf_counter()
        _produce(kafka)
        _wait_for_rows(query, before)
        return min(LONGEST_SECONDS, time.perf_counter() - moved)
    finally:
        if query.isActive:
            query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_rows(query, after: int) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while query.isActive and time.monotonic() < deadline:
        if any(p.batchId > after and p.numInputRows for p in query.recentProgress):
            return
        time.sleep(0.02)
    if not query.isActive:
        print(f"the query failed: {str(query.exception())[:300]}", flush=True)


def _produce(kafka: EmbeddedKafka) -> None:
    records = ({"value": str(number), "partition": number % 4} for number in range(RECORDS))
    produce(kafka.internal_bootstrap_servers, TOPIC, records)


if __name__ == "__main__":
    main()
