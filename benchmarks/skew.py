"""A backlog of ten hours, uneven in time: rows dropped by a watermark, and the time to catch up, with maxTimestampSkew.

    ./run bench skew [--only catch-up|plans|wide] [--records 60000] [--limit 500] [--rounds 1] [--triggers 20]
                     [--save FILE]

local[2], an embedded broker with one node. 20 partitions have `--records` in all. In each of ten hours each partition
has its own density, up to 100 times the lowest, and one partition has no records in two hours. A query counts in
windows of ten minutes with a ten-minute watermark, `--limit` offsets a trigger, with Spark's source, kafkagroup's, and
kafkagroup's with a skew of ten minutes, in turns. Then 400 partitions, a noop sink and 1,000 offsets a trigger, with
and without the option. Plans without Spark show the requests of a trigger to the brokers, and the brokers' reads from a
cold disk; `--save` keeps the times that plans reach.
"""

import json
import os
import random
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.functions import count, window

from assignors.model import TopicPartition
from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.stream import Case, durations_of
from benchmarks.read.topics import produce
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.source.alignment import Record
from kafka_source.source.log_times import BrokerTimes
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query
from kafkagroup.embedded import EmbeddedKafka

HOURS, PARTITIONS, WIDE, WIDE_LIMIT = 10, 20, 400, 1_000
HOUR_MS = 3_600_000
ALIGNED = "with maxTimestampSkew"
CONTESTANTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "format kafka": (sources.JVM, {}),
    "without": (sources.NATIVE, {}),
    ALIGNED: (sources.NATIVE, {"maxTimestampSkew": "10m"}),
}
WATERMARK = "10 minutes"


class Backlog:
    """A topic, and the times of its records by partition."""

    def __init__(self, kafka: EmbeddedKafka, name: str, partitions: int, records: int) -> None:
        self.kafka, self.name = kafka, kafka.create_topic(name, partitions)
        self.began = round(time.time() * 1000) - HOURS * HOUR_MS
        chance = random.Random(20)
        density = [[100 ** chance.random() for _ in range(HOURS)] for _ in range(partitions)]
        # This partition had no leader, and so no records, in the two hours before the start.
        density[partitions // 2][-2:] = [0.0, 0.0]
        each = records / sum(map(sum, density))
        self.times = [
            [
                hour * HOUR_MS + step * HOUR_MS // number
                for hour, dense in enumerate(hours)
                for number in [max(1, round(dense * each)) if dense else 0]
                for step in range(number)
            ]
            for hours in density
        ]
        rows = (
            {"value": b"." * 100, "partition": partition, "timestamp": self.began + at}
            for partition, times in enumerate(self.times)
            for at in times
        )
        produce(kafka.bootstrap_servers, name, rows, {"linger.ms": 50})

    @property
    def size(self) -> int:
        return sum(map(len, self.times))

    def windows(self) -> Counter[tuple[int, int]]:
        """The number of records by partition and window."""
        step = 600_000
        return Counter(
            (partition, (self.began + at) // step * step) for partition, times in enumerate(self.times) for at in times
        )

    def reached(self, ends: Mapping[TopicPartition, int]) -> list[float]:
        """The hour that each partition has reached."""
        found = []
        for partition, times in enumerate(self.times):
            end = ends.get(TopicPartition(self.name, partition), 0)
            found.append(round((times[end] if end < len(times) else HOURS * HOUR_MS) / HOUR_MS, 3))
        return found


def catch_up(spark: SparkSession, backlog: Backlog, contestant: str, limit: int) -> dict[str, float]:
    """Run a windowed query over the backlog to its end."""
    source, options = CONTESTANTS[contestant]
    servers = backlog.kafka.bootstrap_servers
    rows = sources.frame(
        spark, source, servers, backlog.name, stream=True, settings=options, maxOffsetsPerTrigger=limit
    )
    counts = rows.withWatermark("timestamp", WATERMARK).groupBy(window("timestamp", "10 minutes"), "partition")
    name = f"counts_{time.time_ns()}"
    with tempfile.TemporaryDirectory(prefix="kafkagroup-bench-") as folder:
        began = time.perf_counter()
        query = (
            counts.agg(count("*").alias("n"))
            .writeStream.outputMode("update")
            .format("memory")
            .queryName(name)
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds = time.perf_counter() - began
        found = spark.sql(
            f"SELECT partition, unix_millis(window.start) AS at, max(n) AS n FROM {name} GROUP BY ALL"
        ).collect()
    progresses = [one for one in query.recentProgress if one.numInputRows]
    counted = {(row.partition, row["at"]): row.n for row in found}
    return {
        "seconds": seconds,
        "triggers": len(progresses),
        "dropped": sum(one.numRowsDroppedByWatermark for p in query.recentProgress for one in p.stateOperators),
        "lost": backlog.size - sum(counted.values()),
        "wrong windows": sum(counted.get(key) != number for key, number in backlog.windows().items()),
    }


def wide_trigger(spark: SparkSession, backlog: Backlog, contestant: str, triggers: int) -> list[int]:
    """Return the durations of triggers of a topic with many partitions, in ms."""
    source, options = CONTESTANTS[contestant]
    servers = backlog.kafka.bootstrap_servers
    rows = sources.frame(
        spark, source, servers, backlog.name, stream=True, settings=options, maxOffsetsPerTrigger=WIDE_LIMIT
    )
    case = Case(contestant, per_trigger=0, triggers=triggers, skipped=3)
    return [one["triggerExecution"] for one in durations_of(rows.writeStream.format("noop"), case, source)]


ASKED: Counter[str] = Counter()


class Counting(BrokerTimes):
    """Counts requests."""

    def records(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, Sequence[Record]]:
        """Count a fetch, see `LogTimes`."""
        ASKED["fetches of next records"] += 1
        return super().records(ranges)

    def first_later(self, partitions: Collection[TopicPartition], timestamp: int) -> Mapping[TopicPartition, Record]:
        """Count a lookup, see `LogTimes`."""
        ASKED["ListOffsets by time"] += 1
        return super().first_later(partitions, timestamp)


def plans(backlog: Backlog, limit: int, contestant: str = ALIGNED) -> tuple[dict[str, float], list[list[float]]]:
    """Plan over the backlog without reading; return a trigger's requests, and the times that partitions reach."""
    from kafka_source.source import log_times

    given = {
        "kafka.bootstrap.servers": backlog.kafka.bootstrap_servers,
        "subscribe": backlog.name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(limit),
        # The plan's records are not read.
        "strict": "false",
        **CONTESTANTS[contestant][1],
    }
    log_times.BrokerTimes = Counting  # type: ignore[misc]
    ASKED.clear()
    before = _evicted(backlog.kafka)
    reached, at = [], StreamOffset()
    with closing(MicroBatches(Query.of(given, source_schema(headers=False), Where.STREAM))) as planner:
        while (end := planner.next(at, limited=True)) is not at:
            at = end
            reached.append(backlog.reached(end.ends))
    triggers, read = len(reached), (_disk_reads(backlog.kafka) - before) / 1024
    asked = {what: round(number / triggers, 2) for what, number in ASKED.items()}
    return {"triggers": triggers, **asked, "KiB read from disk a trigger": round(read / triggers, 1)}, reached


def _evicted(kafka: EmbeddedKafka) -> int:
    """Drop the log from the machine's memory; return how many bytes the broker has read from disk."""
    os.sync()
    for file in kafka.data_folder().rglob("*.log"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return _disk_reads(kafka)


def _disk_reads(kafka: EmbeddedKafka) -> int:
    figures = Path(f"/proc/{kafka.pid()}/io").read_text().splitlines()
    return int(next(line.split()[1] for line in figures if line.startswith("read_bytes")))


def measure_catch_up(kafka: EmbeddedKafka, given: Namespace) -> None:
    """Print the catch-up of each contestant, and save the times that plans reach."""
    backlog = Backlog(kafka, "backlog", PARTITIONS, given.records)
    for limit in (given.limit // 4, given.limit, given.limit * 20, backlog.size):
        print(f"{limit} offsets a trigger:", plans(backlog, limit)[0], flush=True)
    if given.save:
        reached = {name: plans(backlog, given.limit, name)[1] for name in ("without", ALIGNED)}
        given.save.write_text(json.dumps({"skew": reached}) + "\n")
    if given.only == "plans":
        return
    spark = sources.session()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
    for _ in range(given.rounds):
        for name, found in runs.items():
            found.append(catch_up(spark, backlog, name, given.limit))
            print(name, found[-1], flush=True)
    times = {name: median(run["seconds"] for run in found) for name, found in runs.items()}
    print(f"time to catch up: {times[ALIGNED] / times['without']:.2f} of without")


def measure_wide(kafka: EmbeddedKafka, given: Namespace) -> None:
    """Print the duration of a trigger of many partitions, with and without the option."""
    # About two triggers for each ten minutes of the backlog.
    wide = Backlog(kafka, "wide", WIDE, WIDE_LIMIT * 120)
    print(f"{WIDE} partitions, {WIDE_LIMIT} offsets a trigger:", plans(wide, WIDE_LIMIT)[0], flush=True)
    spark = sources.session()
    of_trigger: dict[str, list[int]] = {"without": [], ALIGNED: []}
    wide_trigger(spark, wide, ALIGNED, 5)
    for _ in range(2):
        for name, took in of_trigger.items():
            took += wide_trigger(spark, wide, name, given.triggers)
    for name, took in of_trigger.items():
        print(f"{WIDE} partitions, {name}: {median(took)} ms a trigger ({min(took)} to {max(took)})")
    print(f"{median(of_trigger[ALIGNED]) / median(of_trigger['without']):.2f} of without")


def main() -> None:
    parser = parser_of(__doc__, rounds=1, saves=True)
    parser.add_argument("--only", choices=("catch-up", "plans", "wide"))
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--triggers", type=int, default=20, help="triggers of the topic with 400 partitions")
    given = begin(parser)
    with EmbeddedKafka() as kafka:
        if given.only != "wide":
            measure_catch_up(kafka, given)
        if given.only in (None, "wide"):
            measure_wide(kafka, given)
    print("load after:", ", ".join(f"{one:.1f}" for one in os.getloadavg()))


if __name__ == "__main__":
    main()
