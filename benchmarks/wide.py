"""A stream of many partitions with few records: the JVM connector and the native engine, without and in a group.

    ./run bench wide [--partitions 400,2000] [--triggers 5] [--skipped 1] [--tuned] [--warm-up 1] [--rounds 1]
                     [--save FILE]
    ./run bench wide --partitions 10000 --per-slot 10 --without-peers

local[2], a noop sink, 1,000 records of 100 B a trigger from at most 1,000 partitions, an embedded broker with one node.
In a group the query has a slot for every four (`--per-slot`) partitions. `--without-peers` runs only the query in a
group. The first triggers, in which tasks connect and code is compiled, are not counted (`--skipped`). With `--tuned`
the JVM connector has a consumer for each partition in its cache (`spark.kafka.consumer.cache.capacity`, 64 by default),
larger polls and larger fetches. More lines have Spark's parts of a trigger, and the memory and CPU time of the process
with the reader of the query in a group. Spark's own source `rate-micro-batch` with as many rows shows the cost of a
trigger without Kafka; a Python source with its rows in memory shows the cost of any Python source.
"""

from __future__ import annotations

import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from confluent_kafka.admin import NewPartitions
from pyspark.sql import DataFrame, SparkSession

from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.floor import MemoryStreamSource
from benchmarks.read.stream import Case, durations_of, medians
from benchmarks.read.topics import produce
from kafkagroup.embedded import EmbeddedKafka
from testbed.processes import command_of, cpu_seconds_of_tree, resident, tree

PER_TRIGGER = 1_000
PARTITIONS_PER_SLOT = 4
NO_GROUP = "native, no group"
RATE_SOURCE, PYTHON_SOURCE = "Spark's rate source", "a Python source"
READER = b"python_streaming_source_runner"
READER_BAR_BYTES = 500e6
DEADLINE_SECONDS = 1_500
HEAP = "3g"
MAX_CREATED = 5_000
CREATE_SECONDS = 120
_CACHED_CONSUMERS = "spark.kafka.consumer.cache.capacity"
BARS = {400: 10.0, 2000: 20.0}
#: The bar of a trigger in a group, in seconds, where no other contestant runs.
TRIGGER_BARS = {10_000: 1.5}


def main() -> None:
    parser = parser_of(__doc__, rounds=1, saves=True)
    parser.add_argument("--partitions", default="400,2000")
    parser.add_argument("--triggers", type=int, default=5)
    parser.add_argument("--skipped", type=int, default=1, help="triggers before the measured ones")
    parser.add_argument("--tuned", action="store_true", help="tune the JVM connector")
    parser.add_argument("--per-slot", type=int, default=PARTITIONS_PER_SLOT, help="partitions for each slot")
    parser.add_argument("--without-peers", action="store_true", help="only the query in a group")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before the measured ones")
    given = begin(parser, HEAD)
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="kafkagroup-bench-") as folder,
        EmbeddedKafka(heap=HEAP, jvm_options=(), data_dir=folder) as kafka,
    ):
        counts = [int(count) for count in given.partitions.split(",")]
        spark = sources.session(conf={_CACHED_CONSUMERS: str(max(counts))} if given.tuned else None)
        spark.dataSource.register(MemoryStreamSource)
        for partitions in counts:
            topic = _create(kafka, f"wide-{partitions}", partitions)
            _fill(kafka, topic, partitions, PER_TRIGGER * (given.triggers + given.skipped + 3))
            results.append(_measure(spark, kafka, topic, partitions, given))
        spark.stop()
    save(given, results)


def _create(kafka: EmbeddedKafka, topic: str, partitions: int) -> str:
    """Create a topic, in two requests if a controller does not take all partitions in one."""
    kafka.create_topic(topic, min(partitions, MAX_CREATED))
    if partitions > MAX_CREATED:
        admin = kafka.admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(CREATE_SECONDS)
        while len(admin.list_topics(topic, timeout=CREATE_SECONDS).topics[topic].partitions) < partitions:
            time.sleep(0.2)
    return topic


def _fill(kafka: EmbeddedKafka, topic: str, partitions: int, records: int) -> None:
    # A trigger takes at least one record of each partition that has records, so no more partitions get records.
    busy = min(partitions, PER_TRIGGER)
    rows = ({"value": b"." * 100, "partition": number % busy * (partitions // busy)} for number in range(records))
    produce(kafka.bootstrap_servers, topic, rows, {"linger.ms": 50})


def _measure(spark: SparkSession, kafka: EmbeddedKafka, topic: str, partitions: int, given: Namespace) -> Figures:
    case = Case(f"{partitions} partitions", PER_TRIGGER, given.triggers, given.skipped)
    details: dict[str, list[dict[str, float]]] = {}
    readers: list[Reader] = []

    def trigger(name: str, rows: DataFrame, at_end: Callable[[], object] | None = None) -> float:
        writer = rows.writeStream.format("noop")
        parts = medians(durations_of(writer, case, name, within=DEADLINE_SECONDS, at_end=at_end))
        details.setdefault(name, []).append(parts)
        return parts["triggerExecution"] / 1000

    def run(name: str, source: str, *, slots: int = 0) -> float:
        group = sources.new_group(slots) if slots else {}
        rows = sources.frame(
            spark, source, kafka.bootstrap_servers, topic, stream=True, maxOffsetsPerTrigger=PER_TRIGGER, **group
        )
        return trigger(name, rows, (lambda: readers.append(Reader.of_this_process())) if slots else None)

    def floor(name: str, source: str) -> float:
        return trigger(name, spark.readStream.format(source).option("rowsPerBatch", PER_TRIGGER).load())

    slots = partitions // given.per_slot
    in_group = f"native, {slots} slots"
    peer = sources.TUNED if given.tuned else sources.JVM
    contestants: dict[str, Callable[[], float]] = {
        peer: partial(run, peer, peer),
        NO_GROUP: partial(run, NO_GROUP, sources.NATIVE),
        in_group: partial(run, in_group, sources.NATIVE, slots=slots),
        RATE_SOURCE: partial(floor, RATE_SOURCE, "rate-micro-batch"),
        PYTHON_SOURCE: partial(floor, PYTHON_SOURCE, MemoryStreamSource.name()),
    }
    if given.without_peers:
        contestants = {in_group: contestants[in_group]}
    bar = BARS.get(partitions)
    bars = dict.fromkeys((NO_GROUP, in_group), bar) if bar and not given.without_peers else {}
    figures = in_turns(Figures(case.name, bars), contestants, given.rounds, warm_up=given.warm_up)
    for name, rounds in details.items():
        parts = medians(rounds[given.warm_up :])
        print(f"  {name}: " + ", ".join(f"{part} {ms:.0f}" for part, ms in parts.items()) + " ms")
    most = max(reader.resident for reader in readers)
    print(
        f"  reader: {most / 1e6:.0f} MB ({'met' if most <= READER_BAR_BYTES else 'MISSED'}), "
        f"{max(reader.cpu_seconds for reader in readers):.1f} s of CPU time with its start"
    )
    limit = TRIGGER_BARS.get(partitions)
    if limit is not None:
        met = median(figures.seconds[in_group]) <= limit
        print(f"  trigger ≤ {limit:g} s: {'met' if met else 'MISSED'}", flush=True)
    return figures


@dataclass(frozen=True, slots=True)
class Reader:
    """The peak memory and the CPU time of the process in which Spark keeps the reader of a stream."""

    resident: int
    cpu_seconds: float

    @staticmethod
    def of_this_process() -> Reader:
        """Find the reader of the only running stream among the descendants of this process."""
        (pid,) = [pid for pid in tree(os.getpid()) if READER in command_of(pid)]
        return Reader(resident("VmHWM", pid), cpu_seconds_of_tree(pid))


if __name__ == "__main__":
    main()
