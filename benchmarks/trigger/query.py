"""The query of the benchmark, in a process of its own that can be killed; two files have its speed and triggers.

    python -m benchmarks.trigger.query JOB

JOB is JSON: `servers`, `topic`, `target` and `folder`. The folder has `speed`, the records a second that the rows' work
allows (0: no record), and `triggers`, a line of JSON for each trigger.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.streaming.listener import QueryProgressEvent

from benchmarks.read import sources
from kafkagroup.progress import ProgressListener, sources_of

CORES = 2


class Recorder(ProgressListener):
    """Writes a line for each micro-batch."""

    def __init__(self, lines: Path) -> None:
        self._lines = lines

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        if not progress.numInputRows:
            return
        (source,) = sources_of(progress)
        if source.driver is None:
            return
        line = {
            "ended": time.time(),
            "seconds": progress.durationMs["triggerExecution"] / 1000,
            "rows": progress.numInputRows,
            "limit": source.driver.max_offsets,
            "left": sum(source.behind.values()),
        }
        with self._lines.open("a") as file:
            print(json.dumps(line), file=file)


def main() -> None:
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])
    spark = sources.session(CORES, jars=())
    spark.streams.addListener(Recorder(folder / "triggers"))
    speed = folder / "speed"

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            left = batch.num_rows
            while left > 0:
                # Wait in short steps, so that a new speed takes effect immediately.
                per_second = float(speed.read_text()) / CORES
                time.sleep(0.05)
                left -= round(per_second * 0.05)
            yield batch

    frame = sources.frame(
        spark, sources.NATIVE, job["servers"], job["topic"], stream=True, value_only=True,
        min_records_per_task=1, targetTriggerDuration=job["target"],
    )  # fmt: skip
    writer = frame.mapInArrow(work, frame.schema).writeStream.format("noop")
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main()
