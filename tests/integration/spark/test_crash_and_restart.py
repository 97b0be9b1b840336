"""The stream's driver dies by `kill -9` at a moment with a name, and another goes on from its checkpoint."""

import json

import pytest

from kafka_source.model.stream_offset import StreamOffset
from tests.apps.process import halting, streaming_app
from tests.support.mapped import COPIED
from tests.support.records import run_to_end, to_files, written
from tests.support.waiting import wait_until, wait_until_committed

COUNT = 4_000
BATCH = 1_000


@pytest.mark.parametrize("function", [{}, pytest.param(COPIED, marks=pytest.mark.long)], ids=["plain", "mapped"])
@pytest.mark.parametrize(
    ("commit", "moment", "passes"),
    [
        # Spark's offset log does not have the batch.
        pytest.param("batch", "batch-planned", 2, marks=pytest.mark.long),
        # The group has the offsets of the batch before, and Spark does not know yet that they are committed.
        ("batch", "offsets-committed", 1),
        # The group has a part of the offsets of a batch whose rows are not written.
        pytest.param("task", "task-committed", 5, marks=pytest.mark.long),
    ],
)
def test_every_record_is_in_the_files_once(spark, kafka, topic, groups, tmp_path, commit, moment, passes, function):
    name = topic("crash", partitions=4, records=COUNT)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-group",
        "kafka.group.instance.id": f"{name}-app",
        "kafka.session.timeout.ms": 6_000,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": BATCH,
        "group.members": 4,
        "min.records.per.task": 1,
        "commit": commit,
        **function,
    }
    offsets = tmp_path / "checkpoint" / "offsets"
    commits = tmp_path / "checkpoint" / "commits"

    def batches(folder) -> int:
        return len(list(folder.glob("[0-9]*"))) if folder.exists() else 0

    def end(batch: int) -> int:
        written = json.loads((offsets / str(batch)).read_text().splitlines()[-1])
        return sum(StreamOffset.from_json(written).ends.values())

    with streaming_app(tmp_path, options, environment=halting(tmp_path, moment, passes)) as app:
        app.wait_for("started")
        wait_until((tmp_path / "halted").exists, f"the failpoint {moment}")
        app.kill()
    if moment == "batch-planned":
        assert batches(offsets) == batches(commits) == passes
    elif moment == "offsets-committed":
        assert batches(offsets) == batches(commits)
        wait_until_committed(groups, f"{name}-group", end(batches(commits) - 1))
    else:
        assert batches(offsets) == batches(commits) + 1
        committed = sum(groups.committed(f"{name}-group").values())
        assert end(batches(commits) - 1) < committed < end(batches(offsets) - 1)
    run_to_end(to_files(spark.readStream.format("kafkagroup").options(**options).load(), tmp_path))
    assert written(tmp_path / "out") == list(range(COUNT))
    wait_until_committed(groups, f"{name}-group", COUNT)
