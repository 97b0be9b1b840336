"""Batch reads of whole topics."""

import time
from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks.read import sources
from benchmarks.read.cases import Case
from benchmarks.read.figures import Comparison, Figures, in_turns


def measure(spark: SparkSession, servers: str, case: Case, rounds: int, contestants: Sequence[str]) -> Figures:
    if case.load.aborted:
        # The floor returns a row for each offset, also for markers and aborted records here.
        contestants = [name for name in contestants if name != sources.FLOOR]
        for name in contestants:
            rows = _frame(spark, servers, case, name).count()
            assert rows == case.rows, (name, rows)
    figures = Figures(
        case.name,
        {sources.NATIVE: case.bar} if case.bar else {},
        comparisons=(
            Comparison(sources.NATIVE, sources.TUNED, case.tuned_bar),
            Comparison(sources.NATIVE, sources.FLOOR, case.floor_bar),
        ),
    )
    return in_turns(figures, {name: partial(seconds, spark, servers, case, name) for name in contestants}, rounds)


def seconds(spark: SparkSession, servers: str, case: Case, source: str) -> float:
    """Return the time of one read."""
    started = time.perf_counter()
    frame = _frame(spark, servers, case, source)
    if case.aggregate:
        rows = _aggregate(frame)
        assert rows == case.rows, (source, rows)
    else:
        frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def _frame(spark: SparkSession, servers: str, case: Case, source: str) -> DataFrame:
    return sources.frame(spark, source, servers, case.load.topic, value_only=case.value_only, settings=case.options)


def _aggregate(frame: DataFrame) -> int:
    row = frame.selectExpr("count(*)", "sum(length(value))", "max(offset)", "count(DISTINCT partition)").first()
    assert row is not None
    return int(row[0])
