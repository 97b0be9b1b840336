"""Time of a trigger: micro-batches of a topic that already contains all records."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.read import sources
from benchmarks.read.figures import Figures, in_turns


@dataclass(frozen=True, slots=True)
class Case:
    """One workload.

    Attributes:
        name: The name of the case.
        per_trigger: Records per trigger.
        triggers: The number of triggers that are measured.
        skipped: The number of earlier triggers, which are not measured.
        four: The bar with four slots: the JVM connector's time divided by kafkagroup's.
        two: The bar with two slots.
    """

    name: str
    per_trigger: int
    triggers: int
    skipped: int
    four: float = 1.0
    two: float = 1.0


CASES = (
    Case("stream, 1,000 records a trigger", 1_000, 30, 10, 1.0, 1.0),
    Case("stream, 400,000 records a trigger", 400_000, 6, 3, 1 / 0.75, 1 / 0.75),
)
DEADLINE_SECONDS = 180


def measure(spark: SparkSession, servers: str, topic: str, case: Case, rounds: int) -> tuple[Figures, dict[str, Any]]:
    details: dict[str, Any] = {}

    def run(name: str, source: str, **options: Any) -> float:
        options["maxOffsetsPerTrigger"] = case.per_trigger
        frame = sources.frame(spark, source, servers, topic, stream=True, **options)
        details[name] = parts = medians(durations_of(frame.writeStream.format("noop"), case, source))
        return parts["triggerExecution"] / 1000

    figures = Figures(case.name, {"native, 4 slots": case.four, "native, 2 slots": case.two})
    in_turns(
        figures,
        {
            "jvm": lambda: run("jvm", sources.JVM),
            "native, 4 slots": lambda: run("native, 4 slots", sources.NATIVE, **sources.new_group(4)),
            "native, 2 slots": lambda: run("native, 2 slots", sources.NATIVE, **sources.new_group(2)),
            "native, no group": lambda: run("native, no group", sources.NATIVE),
        },
        rounds,
    )
    return figures, details


def medians(durations: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each of Spark's parts of a trigger; a missing part counts as 0."""
    return {part: median(each.get(part, 0) for each in durations) for part in durations[0]}


def durations_of(
    writer: DataStreamWriter,
    case: Case,
    source: str,
    *,
    within: float = DEADLINE_SECONDS,
    at_end: Callable[[], object] | None = None,
) -> list[dict[str, int]]:
    """Return Spark's `durationMs` of each measured trigger, in ms; call `at_end` before the query is stopped.

    Raises:
        RuntimeError: The query failed, or the triggers took longer than `within` seconds.
    """
    folder = tempfile.mkdtemp(prefix="kafkagroup-checkpoint-")
    query = writer.option("checkpointLocation", folder).start()
    try:
        deadline = time.monotonic() + within
        while True:
            # The limit is divided among the partitions in proportion, and rounded for each.
            full = [p for p in query.recentProgress if p["numInputRows"] > case.per_trigger // 2]
            if len(full) >= case.skipped + case.triggers:
                if at_end is not None:
                    at_end()
                break
            if not query.isActive or time.monotonic() > deadline:
                raise RuntimeError(f"{source}: {len(full)} triggers, {query.exception()}")
            time.sleep(0.2)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return [dict(p["durationMs"]) for p in full[case.skipped : case.skipped + case.triggers]]


def read_to_the_end(frame: DataFrame) -> list[StreamingQueryProgress]:
    """Read a topic with AvailableNow, and return the progress of each micro-batch with rows."""
    with tempfile.TemporaryDirectory(prefix="kafkagroup-checkpoint-", ignore_cleanup_errors=True) as folder:
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
    return [progress for progress in query.recentProgress if progress.numInputRows]
