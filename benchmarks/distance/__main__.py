"""Reading and writing over a distance, and with TLS: the JVM connector, tuned, and the native engine.

    ./run bench distance [--quick] [--rounds 3] [--case TEXT] [--tls | --write] [--floor] [--save FILE]

local[2], a noop sink, four partitions, an embedded broker with one node behind toxiproxy (built with Go), which adds
delay and limits bandwidth. "Tuned" is max.poll.records=20000 and fetches of 8 MB for each partition and response,
because by default the JVM connector requests positions after each poll of 500 records. `--floor` adds Spark's time for
the same Arrow batches from memory. These reads send requests to the broker only in the plan, to look up offsets.

With limited bandwidth, further lines show the used share of the bandwidth, with and without the time of an empty read.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from benchmarks._command import begin, parser_of
from benchmarks.distance.toxiproxy import Proxy, toxiproxy
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Comparison, Figures, in_turns, save
from benchmarks.read.topics import PARTITIONS, Load, fill
from benchmarks.sink import throughput
from kafkagroup.embedded import EmbeddedKafka, Security
from kafkagroup.embedded.server_config import free_ports


@dataclass(frozen=True, slots=True)
class Case:
    """One topic at one distance, and the bar for the tuned JVM connector's time divided by the native engine's."""

    load: Load
    round_trip_ms: int
    megabits: int | None = None
    bar: float | None = None

    @property
    def name(self) -> str:
        width = "" if self.megabits is None else f", {self.megabits} Mbit/s"
        return f"{self.load.value_bytes} B, {self.round_trip_ms} ms{width}"


_CORES = 2
#: Rounds before the first case, in which Spark compiles shared code. Each other case has one such round.
_FIRST_WARM_UP = 8
_WRITE_MS = 10
#: A topic without records. The time of its read is the fixed cost: planning, metadata and offsets.
_EMPTY = "empty"
_SMALL, _MIDDLE = Load(100, 1_000_000), Load(1000, 200_000)
CASES = (
    Case(_SMALL, 0, bar=2.5),
    Case(_SMALL, 2, bar=3.5),
    Case(_SMALL, 10, bar=5.0),
    Case(_MIDDLE, 0, bar=2.5),
    Case(_MIDDLE, 2, bar=3.0),
    Case(_MIDDLE, 10, bar=4.0),
    Case(_MIDDLE, 50),
    Case(_MIDDLE, 2, megabits=1000),
)


def main() -> None:
    parser = parser_of(__doc__, rounds=0, saves=True)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, one round")
    parser.add_argument("--case", default="", help="only cases whose names contain this text")
    parser.add_argument("--floor", action="store_true", help="with the time that Spark takes for the same batches")
    parser.add_argument("--tls", action="store_true", help="encrypt between Spark and the broker")
    parser.add_argument("--write", action="store_true", help="write, at 10 ms, instead of reading")
    given = begin(parser, HEAD.replace("JVM's time", "tuned JVM's time"))
    rounds = given.rounds or (1 if given.quick else 3)
    # The first contestant is the peer to which the others are compared.
    names = [sources.TUNED, sources.NATIVE, *([sources.FLOOR] if given.floor else [])]
    with _far_broker(tls=given.tls) as (kafka, proxy):
        spark = sources.session(_CORES)
        results = []
        if given.write:
            proxy.be(round_trip_ms=_WRITE_MS)
            where = f", {_WRITE_MS} ms"
            results = throughput.measure(spark, kafka, rounds, 20 if given.quick else 2, far=where)
        for case in () if given.write else CASES:
            if given.case not in case.name:
                continue
            load = case.load.smaller(20) if given.quick else case.load
            fill(kafka, load)
            # The proxy limits each connection, and each of Spark's tasks has a connection of its own.
            width = None if case.megabits is None else case.megabits // _CORES
            proxy.be(round_trip_ms=case.round_trip_ms, megabits=width)
            warm_up = 1 if results or given.quick else _FIRST_WARM_UP
            results.append(_measure(spark, kafka, load, case, rounds, names, warm_up))
        spark.stop()
    save(given, results)


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
    spark: SparkSession, kafka: EmbeddedKafka, load: Load, case: Case, rounds: int, names: list[str], warm_up: int
) -> Figures:
    run = partial(_seconds, spark, kafka)
    tls = ", TLS" if kafka.java_client_config().get("security.protocol") == "SSL" else ""
    figures = Figures(
        case.name + tls,
        {sources.NATIVE: case.bar} if case.bar else {},
        comparisons=(Comparison(sources.NATIVE, sources.FLOOR),),
    )
    in_turns(figures, {name: partial(run, load.topic, name) for name in names}, rounds, warm_up)
    if case.megabits is not None:
        if _EMPTY not in kafka.admin().list_topics(timeout=30).topics:
            kafka.create_topic(_EMPTY, PARTITIONS)
        size = _topic_bytes(kafka.data_folder(), load.topic)
        for name in names:
            if name != sources.FLOOR:
                empty = median(run(_EMPTY, name) for _ in range(rounds))
                print(_share_of_wire(name, size, median(figures.seconds[name]), empty, case.megabits), flush=True)
    return figures


def _topic_bytes(data_folder: Path, topic: str) -> int:
    """Return the bytes of a topic's record batches, which are stored in their wire format."""
    logs = (log for number in range(PARTITIONS) for log in (data_folder / f"{topic}-{number}").glob("*.log"))
    return sum(log.stat().st_size for log in logs)


def _share_of_wire(name: str, size: int, seconds: float, empty_seconds: float, megabits: int) -> str:
    """Return the shares as text, with the fixed cost and without it.

    Args:
        name: The contestant.
        size: The bytes that the contestant read.
        seconds: The time of the read.
        empty_seconds: The time in which the contestant read a topic without records.
        megabits: The width of the wire in Mbit/s.
    """
    at_best = size * 8 / (megabits * 1e6)
    text = f"  {name}: {size / 1e6:.0f} MB in {seconds:.2f} s, {at_best / seconds:.0%} of {megabits} Mbit/s"
    if seconds <= empty_seconds:
        return f"{text}; an empty read took {empty_seconds:.2f} s, no less: too few records for a share without it"
    return f"{text}; without the {empty_seconds:.2f} s of an empty read {at_best / (seconds - empty_seconds):.0%}"


def _seconds(spark: SparkSession, kafka: EmbeddedKafka, topic: str, source: str) -> float:
    """Return the time of one read."""
    settings = {f"kafka.{name}": value for name, value in kafka.java_client_config().items()}
    started = time.perf_counter()
    frame = sources.frame(spark, source, kafka.bootstrap_servers, topic, settings=settings)
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
