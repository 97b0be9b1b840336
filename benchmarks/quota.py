"""Overhead of quotas: streams with a quota that is never reached, compared with streams without a quota.

    ./run bench quota [--engine native] [--rounds 7] [--records 4000000] [--save FILE]

local[2], a noop sink, AvailableNow over a topic of 100 B records, two slots in a group, streams with and without a
quota in turns. The time is the sum of Spark's `addBatch` over all micro-batches. The query's start does not count,
because it takes as long as the micro-batches, and varies by more than the overhead.
"""

from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, in_turns, save
from benchmarks.read.stream import read_to_the_end
from benchmarks.read.topics import Load, fill
from kafkagroup.embedded import EmbeddedKafka

ENGINES = {"native": sources.NATIVE, "librdkafka": sources.LIBRDKAFKA}
NEVER_REACHED = 10**12
ALLOWED = 0.02


def main() -> None:
    parser = parser_of(__doc__, rounds=7, saves=True)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--records", type=int, default=4_000_000)
    given = begin(parser, HEAD)
    load = Load(100, given.records)
    with EmbeddedKafka(config={"log.retention.ms": -1}, heap="1g", jvm_options=()) as kafka:
        fill(kafka, load)
        spark = sources.session()
        engines = [ENGINES[name] for name in given.engine or ENGINES]
        results = [measure(spark, kafka.bootstrap_servers, load, engine, given.rounds) for engine in engines]
        spark.stop()
    save(given, results)


def measure(spark: SparkSession, servers: str, load: Load, engine: str, rounds: int) -> Figures:
    def run(**options: Any) -> float:
        options |= sources.new_group(2)
        batches = read_to_the_end(sources.frame(spark, engine, servers, load.topic, stream=True, **options))
        assert sum(p.numInputRows for p in batches) == load.records
        return sum(p.durationMs["addBatch"] for p in batches) / 1000

    figures = in_turns(
        Figures(f"{engine}, {load.records} x {load.value_bytes} B"),
        {"no quota": run, "a bound never reached": lambda: run(quota_bytes_per_second=NEVER_REACHED)},
        rounds,
        warm_up=2,
    )
    without, bound = figures.seconds.values()
    overhead = median(bound) / median(without) - 1
    print(f"{engine}: overhead {overhead:+.1%}: {'met' if overhead <= ALLOWED else 'MISSED'}", flush=True)
    return figures


if __name__ == "__main__":
    main()
