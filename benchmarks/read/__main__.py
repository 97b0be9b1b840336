"""Reading with Spark: the JVM connector with defaults and tuned, kafkagroup with both engines, and the floor, in turns.

    ./run bench read [--quick] [--rounds 5] [--only batch|stream|first-row] [--case TEXT] [--save FILE]

local[2], a noop sink or an aggregation, an embedded broker with one node; medians with minimum and maximum. "Tuned" is
max.poll.records=20000 and fetches of 8 MB for each partition and response. The floor is Spark's time for a Python
source without I/O (see `benchmarks.read.floor`).

`--case` takes a part of a case's name. Five rounds on two quiet cores, with the time to fill the topic, take about five
minutes for "batches of", one and a half for "aborted", two for "headers", and four for "three brokers".
"""

import tempfile
from dataclasses import replace

from benchmarks._command import begin, parser_of
from benchmarks.read import batch, brokers, first_row, sources, stream
from benchmarks.read.cases import CASES, HUNDRED
from benchmarks.read.figures import HEAD, Figures, save
from benchmarks.read.topics import Load, fill
from kafkagroup.embedded import EmbeddedKafka

QUICK = 20
SMALL = Load(100, 1000, "snappy")


def main() -> None:
    parser = parser_of(__doc__, rounds=0, saves=True)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, two rounds")
    parser.add_argument("--only", choices=["batch", "stream", "first-row"])
    parser.add_argument("--case", default="", help="only cases whose names contain this text")
    parser.add_argument("--sources", default="jvm,jvm-tuned,native,librdkafka,floor")
    parser.add_argument("--data", help="a folder that keeps the broker's data for the next run")
    given = begin(parser, HEAD)
    rounds = given.rounds or (2 if given.quick else 5)
    results: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="kafkagroup-bench-") as folder:
        config = {"log.retention.ms": -1, "log.segment.bytes": 1 << 30}
        with EmbeddedKafka(config=config, heap="1g", jvm_options=(), data_dir=given.data or folder) as kafka:
            if given.only != "first-row":
                spark = sources.session()
                if given.only != "stream":
                    results += _batch(spark, kafka, given, rounds)
                if given.only != "batch":
                    results += _stream(spark, kafka, given, rounds)
                spark.stop()
            if given.only in (None, "first-row"):
                fill(kafka, SMALL)
                results.append(first_row.measure(kafka.bootstrap_servers, SMALL.topic, rounds))
    save(given, results)


def _batch(spark, kafka, given, rounds) -> list[Figures]:
    results = []
    smaller_by = QUICK if given.quick else 1
    for case in CASES:
        if given.case not in case.name:
            continue
        case = replace(case, load=case.load.smaller(smaller_by))
        fill(kafka, case.load)
        results.append(batch.measure(spark, kafka.bootstrap_servers, case, rounds, given.sources.split(",")))
    if given.case in brokers.NAME:
        load = HUNDRED.smaller(smaller_by)
        fill(kafka, load)
        results.append(brokers.measure(spark, kafka.bootstrap_servers, load, rounds))
    return results


def _stream(spark, kafka, given, rounds) -> list[Figures]:
    results = []
    load = HUNDRED
    for case in stream.CASES:
        if given.case not in case.name:
            continue
        fill(kafka, load)
        figures, details = stream.measure(spark, kafka.bootstrap_servers, load.topic, case, rounds)
        results.append(figures)
        for name, durations in details.items():
            print(f"  {name}: " + ", ".join(f"{key} {value:.0f}" for key, value in durations.items()) + " ms")
    return results


if __name__ == "__main__":
    main()
