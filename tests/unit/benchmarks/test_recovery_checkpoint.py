"""When micro-batches began and were committed, by the files of a checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.recovery.checkpoint import committed, first_commit_after


def batch(checkpoint: Path, number: int, began: float, done: float | None) -> None:
    """Write what Spark writes of a micro-batch; `done` is when it was committed."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(exist_ok=True)
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int(began * 1000), "conf": {}})
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{metadata}\n{{}}")
    if done is not None:
        commit = checkpoint / "commits" / str(number)
        commit.write_text('v1\n{"nextBatchWatermarkMs":0}')
        os.utime(commit, (done, done))


def test_the_first_micro_batch_that_began_after_the_moment_counts(tmp_path: Path) -> None:
    for number, (began, done) in enumerate([(100, 101), (101, 108), (108, 109), (109, 110), (110, 111)]):
        batch(tmp_path, number, began, done)
    # It was running when the moment came.
    assert first_commit_after(tmp_path, 105) == 109
    assert first_commit_after(tmp_path, 108.5) == 110


def test_a_micro_batch_that_is_not_committed_does_not_count(tmp_path: Path) -> None:
    batch(tmp_path, 9, 100, 101)
    batch(tmp_path, 10, 103, None)
    (tmp_path / "commits" / ".10.crc").touch()
    assert committed(tmp_path) == [9]
    assert first_commit_after(tmp_path, 102) is None


def test_a_query_that_has_not_begun_has_no_micro_batches(tmp_path: Path) -> None:
    assert committed(tmp_path) == []
    assert first_commit_after(tmp_path, 0) is None
