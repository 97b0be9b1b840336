"""Batch reads of whole topics."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks.read import sources
from benchmarks.read.figures import Figures, in_turns
from benchmarks.read.topics import Load


@dataclass(frozen=True, slots=True)
class Case:
    """One workload, and the bar for the native engine: the JVM connector's time divided by its time."""

    name: str
    load: Load
    bar: float | None = None
    value_only: bool = False
    aggregate: bool = False


HUNDRED = Load(100, 4_000_000)
CASES = (
    Case("100 B", HUNDRED, 2.6),
    Case("100 B, aggregated", HUNDRED, None, aggregate=True),
    Case("100 B, value only", HUNDRED, 2.9, value_only=True),
    Case("1 kB", Load(1000, 500_000), 2.3),
    Case("10 B", Load(10, 4_000_000), 2.4),
    Case("100 kB", Load(100_000, 8_000), 1.6),
    Case("100 B lz4", Load(100, 4_000_000, "lz4"), 2.0),
    Case("100 B zstd", Load(100, 4_000_000, "zstd"), 2.0),
)


def measure(spark: SparkSession, servers: str, case: Case, rounds: int, contestants: list[str]) -> Figures:
    def run(source: str) -> float:
        started = time.perf_counter()
        frame = sources.frame(spark, source, servers, case.load.topic, value_only=case.value_only)
        if case.aggregate:
            rows = _aggregate(frame)
            assert rows == case.load.records, (source, rows)
        else:
            frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - started

    figures = Figures(case.name, {sources.NATIVE: case.bar} if case.bar else {})
    return in_turns(figures, {name: partial(run, name) for name in contestants}, rounds)


def _aggregate(frame: DataFrame) -> int:
    row = frame.selectExpr("count(*)", "sum(length(value))", "max(offset)", "count(DISTINCT partition)").first()
    assert row is not None
    return int(row[0])
