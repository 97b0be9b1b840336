"""A stream of many partitions with little in each: the JVM connector and the native engine, without a group and in one.

    ./run bench wide [--partitions 400,2000] [--triggers 5] [--rounds 1] [--save FILE]

local[2], a noop sink, 1,000 records of 100 B a trigger, an embedded broker with one node. In a group the query has a
slot for each four partitions. The first trigger, in which tasks connect, is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from benchmarks._machine import describe_machine
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.stream import Case, trigger_durations
from kafka_source.embedded import EmbeddedKafka

PER_TRIGGER = 1_000
PARTITIONS_PER_SLOT = 4
DEADLINE_SECONDS = 1_500
BARS = {400: 10.0, 2000: 20.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="400,2000")
    parser.add_argument("--triggers", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    machine = describe_machine()
    print(machine, HEAD, sep="\n", flush=True)
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="kafkagroup-bench-") as folder,
        EmbeddedKafka(heap="2g", jvm_options=(), data_dir=folder) as kafka,
    ):
        spark = sources.session()
        for partitions in map(int, given.partitions.split(",")):
            topic = kafka.create_topic(f"wide-{partitions}", partitions)
            _fill(kafka, topic, partitions, PER_TRIGGER * (given.triggers + 4))
            results.append(_measure(spark, kafka, topic, partitions, given.triggers, given.rounds))
        spark.stop()
    if given.save:
        save(given.save, machine, results)


def _fill(kafka: EmbeddedKafka, topic: str, partitions: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50})
    for number in range(max(records, partitions)):
        producer.produce(topic, b"." * 100, partition=number % partitions)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"{topic} could not be written")


def _measure(
    spark: SparkSession, kafka: EmbeddedKafka, topic: str, partitions: int, triggers: int, rounds: int
) -> Figures:
    case = Case(f"{partitions} partitions", PER_TRIGGER, triggers, 1, 1.0, 1.0)

    def run(source: str, *, slots: int = 0) -> float:
        group = {"kafka_group_id": f"wide-{uuid4().hex}", "group_members": slots} if slots else {}
        durations = trigger_durations(
            spark, kafka.bootstrap_servers, topic, case, source, group, within=DEADLINE_SECONDS
        )
        return median(each["triggerExecution"] for each in durations) / 1000

    slots = partitions // PARTITIONS_PER_SLOT
    contestants = {
        sources.JVM: partial(run, sources.JVM),
        "native, no group": partial(run, sources.NATIVE),
        f"native, {slots} slots": partial(run, sources.NATIVE, slots=slots),
    }
    bar = BARS.get(partitions)
    bars = {name: bar for name in contestants if name != sources.JVM} if bar else {}
    return in_turns(Figures(case.name, bars), contestants, rounds, warm_up=0)


if __name__ == "__main__":
    main()
