"""Reading and writing over a distance, and with TLS: the JVM connector as it is and tuned, and the native engine.

    ./run bench distance [--quick] [--rounds 3] [--case TEXT] [--tls | --write] [--tuned-only] [--save FILE]

local[2], a noop sink, four partitions, an embedded broker with one node behind toxiproxy, which delays and narrows what
passes (it is built with Go). "Tuned" is max.poll.records=20000 and fetches of 8 MB for each partition and response:
with the defaults the JVM connector asks for positions after each poll of 500 records.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks._machine import describe_machine
from benchmarks.distance.toxiproxy import Proxy, toxiproxy
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.topics import Load, fill
from benchmarks.sink import throughput
from kafka_source.embedded import EmbeddedKafka, Security
from kafka_source.embedded.ports import free_ports

TUNED = "jvm, tuned"
_TUNING = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(8 << 20),
}
_CONTESTANTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    TUNED: ("kafka", _TUNING),
    sources.JVM: ("kafka", {}),
    sources.NATIVE: ("kafkagroup", {"engine": "native"}),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One topic at one distance, and the bar: the tuned JVM connector's time divided by the native engine's."""

    load: Load
    round_trip_ms: int
    megabits: int | None = None
    bar: float | None = None

    @property
    def name(self) -> str:
        width = "" if self.megabits is None else f", {self.megabits} Mbit/s"
        return f"{self.load.value_bytes} B, {self.round_trip_ms} ms{width}"


_WRITE_MS = 10
_SMALL, _MIDDLE = Load(100, 1_000_000), Load(1000, 200_000)
CASES = (
    Case(_SMALL, 0, bar=2.5),
    Case(_SMALL, 2, bar=3.5),
    Case(_SMALL, 10, bar=5.0),
    Case(_MIDDLE, 0, bar=2.5),
    Case(_MIDDLE, 2, bar=3.0),
    Case(_MIDDLE, 10, bar=4.0),
    Case(_MIDDLE, 2, megabits=1000),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, one round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--case", default="", help="only cases whose names contain this text")
    parser.add_argument("--tuned-only", action="store_true", help="without the JVM connector as it is")
    parser.add_argument("--tls", action="store_true", help="encrypt between Spark and the broker")
    parser.add_argument("--write", action="store_true", help="write, at 10 ms, in place of reading")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    rounds = given.rounds or (1 if given.quick else 3)
    names = [name for name in _CONTESTANTS if not (given.tuned_only and name == sources.JVM)]
    machine = describe_machine()
    print(machine, HEAD.replace("JVM's time", "tuned JVM's time"), sep="\n", flush=True)
    with _far_broker(tls=given.tls) as (kafka, proxy):
        spark = sources.session()
        results = []
        if given.write:
            proxy.be(round_trip_ms=_WRITE_MS)
            where = f", {_WRITE_MS} ms"
            results = throughput.measure(spark, kafka, rounds, 20 if given.quick else 2, where=where)
        for case in () if given.write else CASES:
            if given.case not in case.name:
                continue
            load = case.load.smaller(20) if given.quick else case.load
            if load.topic not in kafka.admin().list_topics(timeout=30).topics:
                proxy.be()
                fill(kafka, load)
            proxy.be(round_trip_ms=case.round_trip_ms, megabits=case.megabits)
            results.append(_measure(spark, kafka, load, case, rounds, names))
        spark.stop()
    if given.save:
        save(given.save, machine, results)


@contextlib.contextmanager
def _far_broker(*, tls: bool) -> Iterator[tuple[EmbeddedKafka, Proxy]]:
    (port,) = free_ports(1)
    security = Security("SSL") if tls else None
    with (
        tempfile.TemporaryDirectory(prefix="kafkagroup-bench-") as folder,
        toxiproxy() as api,
        EmbeddedKafka(
            advertised_ports={1: port}, security=security, heap="1g", jvm_options=(), data_dir=folder
        ) as kafka,
    ):
        yield kafka, Proxy(api, port, kafka.port(1))


def _measure(
    spark: SparkSession, kafka: EmbeddedKafka, load: Load, case: Case, rounds: int, names: list[str]
) -> Figures:
    settings = {f"kafka.{name}": value for name, value in kafka.java_client_config().items()}

    def run(name: str) -> float:
        word, options = _CONTESTANTS[name]
        started = time.perf_counter()
        frame = spark.read.format(word).option("subscribe", load.topic).options(**settings, **options).load()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    tls = ", TLS" if any(name.startswith("kafka.ssl.") for name in settings) else ""
    figures = Figures(case.name + tls, {sources.NATIVE: case.bar} if case.bar else {})
    return in_turns(figures, {name: partial(run, name) for name in names}, rounds)


if __name__ == "__main__":
    main()
