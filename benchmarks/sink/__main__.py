"""Writing with Spark: the JVM connector and kafkagroup, at least once and exactly once, in turns on one broker.

    ./run bench sink [--quick] [--rounds 5] [--only throughput|stream|commit] [--save FILE]

local[2], rows from memory, an embedded broker with one node; medians with minimum and maximum.
"""

from benchmarks._command import begin, parser_of
from benchmarks.read import sources
from benchmarks.read.figures import HEAD, Figures, save
from benchmarks.sink import commit, stream, throughput
from kafka_source.datasource import register
from kafkagroup.embedded import EmbeddedKafka


def main() -> None:
    parser = parser_of(__doc__, rounds=0, saves=True)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the records, two rounds")
    parser.add_argument("--only", choices=["throughput", "stream", "commit"])
    given = begin(parser)
    rounds = given.rounds or (2 if given.quick else 5)
    results: list[Figures] = []
    config = {"log.segment.bytes": 1 << 28, "log.segment.delete.delay.ms": 1000}
    with EmbeddedKafka(config=config, heap="1g", jvm_options=()) as kafka:
        if given.only in (None, "commit"):
            commit.measure(kafka)
        if given.only != "commit":
            spark = sources.session()
            register(spark)
            print(HEAD, flush=True)
            if given.only in (None, "throughput"):
                results += throughput.measure(spark, kafka, rounds, smaller_by=20 if given.quick else 1)
            if given.only in (None, "stream"):
                results.append(stream.measure(spark, kafka, rounds))
            spark.stop()
    save(given, results)


if __name__ == "__main__":
    main()
