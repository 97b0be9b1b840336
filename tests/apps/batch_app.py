"""A Spark application that copies what is new for a group into a topic, in one batch, and commits it at the end.

    python -m tests.apps.batch_app FOLDER MASTER '{"subscribe": …}' '{"topic": …}'

The records go through a shuffle of six partitions. Each task behind it makes a file in `FOLDER/tasks`, whose name is
its partition, its attempt and its id, and whose content is its process id. If a pattern in the file `FOLDER/hold`
matches that name, the task waits for the file `FOLDER/go`. The application prints `count N` when the block of the read
has ended, which is when its offsets are committed, and `stage attempts N`, the number of the last attempt of any stage.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import kafkagroup
from tests.apps.streaming_app import session

SHUFFLE_PARTITIONS = 6


def noting(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that passes a task's batches on, when the task need not wait any longer."""

    def note(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        notes = Path(folder) / "tasks"
        notes.mkdir(exist_ok=True)
        name = f"{context.partitionId()}-{context.attemptNumber()}-{context.taskAttemptId()}"
        (notes / name).write_text(str(os.getpid()))
        held = any(fnmatch(name, pattern) for pattern in (Path(folder) / "hold").read_text().split())
        while held and not (Path(folder) / "go").exists():
            time.sleep(0.05)
        yield from batches

    return note


def stage_attempts(spark: SparkSession) -> int:
    """Return the number of the last attempt of any stage; 0 if none was run again."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return max(stage.currentAttemptId for stage in stages if stage is not None)


def main(folder: str, master: str, source: str, sink: str) -> None:
    spark = session(master)
    with kafkagroup.pinned(spark, json.loads(source)) as frame:
        count = frame.count()
        moved = frame.select("key", "value").repartition(SHUFFLE_PARTITIONS)
        noted = moved.mapInArrow(noting(folder), moved.schema)
        noted.write.format("kafkagroup").options(**json.loads(sink)).mode("append").save()
    print(f"stage attempts {stage_attempts(spark)}", flush=True)
    print(f"count {count}", flush=True)
    spark.stop()
    print("stopped", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
