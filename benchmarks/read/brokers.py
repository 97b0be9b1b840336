"""Batch reads of the same topic on three brokers and on one."""

from functools import partial

from pyspark.sql import SparkSession

from benchmarks.read import batch, sources
from benchmarks.read.cases import Case
from benchmarks.read.figures import Comparison, Figures, in_turns
from benchmarks.read.topics import Load, fill
from kafkagroup.embedded import EmbeddedKafka

NAME = "three brokers"
_NOT_SLOWER = 1.0


def measure(spark: SparkSession, one_broker: str, load: Load, rounds: int) -> Figures:
    """Start and fill three brokers, and read from them and from `one_broker`, which has the topic already.

    All brokers run on this machine until the end, so that idle brokers disturb every contestant equally.
    """
    with EmbeddedKafka(nodes=3, config={"log.retention.ms": -1}, heap="512m", jvm_options=()) as kafka:
        fill(kafka, load)
        case = Case(NAME, load)
        contestants = {
            f"{source}, {where}": partial(batch.seconds, spark, servers, case, source)
            for where, servers in (("3 brokers", kafka.bootstrap_servers), ("1 broker", one_broker))
            for source in (sources.JVM, sources.TUNED, sources.NATIVE)
        }
        three, one = (f"{sources.NATIVE}, {where}" for where in ("3 brokers", "1 broker"))
        comparisons = (Comparison(three, f"{sources.TUNED}, 3 brokers"), Comparison(three, one, _NOT_SLOWER))
        return in_turns(Figures(NAME, comparisons=comparisons), contestants, rounds)
