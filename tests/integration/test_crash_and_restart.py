"""The stream's driver dies by `kill -9` in the middle of a batch, and another goes on from its checkpoint."""

from __future__ import annotations

from tests.apps.process import streaming_app
from tests.support import produce, until, written

COUNT = 60_000


def test_every_record_is_in_the_files_once(spark, kafka, topic, tmp_path):
    name = topic("crash", partitions=4)
    produce(kafka.bootstrap_servers, name, COUNT)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-group",
        "kafka.group.instance.id": f"{name}-app",
        "kafka.session.timeout.ms": 6_000,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 6_000,
    }
    offsets = tmp_path / "checkpoint" / "offsets"
    commits = tmp_path / "checkpoint" / "commits"

    def batches(folder):
        return {path.name for path in folder.glob("[0-9]*")} if folder.exists() else set()

    with streaming_app(tmp_path, options) as app:
        app.wait_for("started")
        until(lambda: len(batches(offsets)) >= 3 and batches(offsets) != batches(commits), "a batch under way")
        app.kill()
    assert batches(offsets) - batches(commits), "the kill came between two batches"
    writer = spark.readStream.format("kafkagroup").options(**options).load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).option("path", str(tmp_path / "out"))
    query = writer.start()
    try:
        until(lambda: len(written(tmp_path / "out")) >= COUNT or not query.isActive, "all records", seconds=150)
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert written(tmp_path / "out") == list(range(COUNT))
