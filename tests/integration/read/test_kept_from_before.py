"""Checkpoints and ledgers that earlier versions wrote are continued by this one.

The files in a folder of `tests/kept` were written by the commit that it names; `tests/kept/generate.py` says how. Never
write them again with a newer version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from kafkagroup.embedded import EmbeddedKafka
from tests.kept.restore import Kept, Row, value
from tests.support.two_phase import visible
from tests.support.waiting import wait_until

COMMITS = ("3904155", pytest.param("44d44fa", marks=pytest.mark.long))

_IN_GROUP = {"kafka.group.id": "{group}", "group.members": "2", "min.records.per.task": "1"}
_SINK = {"topic": "{sink}", "transactional": "true", "transactional.id.prefix": "{prefix}"}

# All options of the project's own that these tests use, in today's names and with the values of `tests.kept.generate`.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "every source": {"subscribe": "{source}", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"},
    "alone": {},
    "split": {"minPartitions": "5", "maxRecordsPerPartition": "3"},
    "group": _IN_GROUP,
    "group-done": _IN_GROUP,
    "quota": {**_IN_GROUP, "quota.records.per.second": "1000", "quota.bytes.per.second": "1000000"},
    "copies": {
        **_IN_GROUP,
        "kafka.partition.assignment.strategy": "redundant",
        "redundant.copies": "2",
        "redundant.emit": "all",
    },
    "by sink": {**_IN_GROUP, "commit": "sink"},
    "wide": {"maxRecordsPerPartition": "1", "maxOffsetsPerTrigger": "240"},
    "sink": _SINK,
    "sink that commits": {**_SINK, "commit.group": "{group}"},
    "replay": {"transactional.on.lost": "replay"},
}

Restore = Callable[[str], Kept]


@pytest.fixture(params=COMMITS)
def restore(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Restore:
    """Restores a case that a commit has left."""
    return lambda case: Kept(kafka, request.param, case, tmp_path)


def options(kafka: EmbeddedKafka, kept: Kept, *names: str) -> dict[str, str]:
    places = {"source": kept.source, "sink": kept.sink, "group": kept.group, "prefix": kept.prefix}
    given = {key: text.format(**places) for name in names for key, text in OPTIONS[name].items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **given}


class Looked:
    """What a stream without a sink of ours has read in each batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, Row]]] = {}

    def __call__(self, rows: DataFrame, batch: int) -> None:
        read = rows.select(spark_partition_id(), "partition", "offset", "value").collect()
        assert batch not in self.batches
        self.batches[batch] = [(task, (partition, offset)) for task, partition, offset, _ in read]
        assert all(bytes(text).decode() == value((partition, offset)) for _, partition, offset, text in read)

    def rows(self, batch: int) -> list[Row]:
        return sorted(row for _, row in self.batches[batch])

    def tasks(self, batch: int) -> list[list[tuple[int, int, int]]]:
        """The rows that each input partition has read, as partition, start and end."""
        places: dict[int, dict[int, list[int]]] = {}
        for task, (partition, offset) in sorted(self.batches[batch]):
            places.setdefault(task, {}).setdefault(partition, []).append(offset)
        return [[(p, min(o), max(o) + 1) for p, o in by_task.items()] for _, by_task in sorted(places.items())]


@pytest.mark.parametrize(
    ("case", "copies"), [("alone", 1), ("split", 1), ("group", 1), ("group-done", 1), ("quota", 1), ("copies", 2)]
)
def test_a_stream_goes_on_where_its_checkpoint_stands(
    spark: SparkSession, kafka: EmbeddedKafka, restore: Restore, case: str, copies: int
) -> None:
    kept = restore(case)
    kept.commit_groups()
    done = sorted(set(kept.planned(0, 1)))
    frame = spark.readStream.format("kafkagroup").options(**options(kafka, kept, "every source", case)).load()
    looked = Looked()
    query = (
        frame.writeStream.foreachBatch(looked)
        .option("checkpointLocation", str(kept.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    assert min(looked.batches) == 2
    if case != "group-done":
        assert looked.tasks(2) == kept.tasks
        assert looked.rows(2) == sorted(kept.planned(2) * copies)
    read = Counter(row for batch in looked.batches for row in looked.rows(batch))
    assert read == {row: copies for row in kept.rows if row not in done}
    if case in ("group", "group-done", "quota"):
        ends = Counter(partition for partition, _ in kept.rows)
        # A commit is seen once the marker of its transaction is written.
        wait_until(
            lambda: {partition: offset for partition, (offset, _) in kept.committed().items()} == ends, "the commit"
        )


def test_a_groups_offsets_from_before_are_used_by_a_query_with_a_new_checkpoint(
    spark: SparkSession, kafka: EmbeddedKafka, restore: Restore, tmp_path: Path
) -> None:
    kept = restore("group-done")
    kept.commit_groups()
    frame = spark.readStream.format("kafkagroup").options(**options(kafka, kept, "every source", "group")).load()
    looked = Looked()
    query = (
        frame.writeStream.foreachBatch(looked)
        .option("checkpointLocation", str(tmp_path / "new"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    stood = {partition: offset for partition, (offset, _) in kept.before().items()}
    assert all(stood.values())
    read = sorted(row for batch in looked.batches for row in looked.rows(batch))
    assert read == sorted(row for row in kept.rows if row[1] >= stood[row[0]])


def copy(spark: SparkSession, kafka: EmbeddedKafka, kept: Kept, *more: str, source: str = "by sink") -> dict[int, int]:
    """Run a kept query from Kafka to Kafka to the end of what there is; how many rows each batch read."""
    to_sink = "sink that commits" if source == "by sink" else "sink"
    frame = spark.readStream.format("kafkagroup").options(**options(kafka, kept, "every source", source)).load()
    query = (
        frame.select("value", "partition")
        .writeStream.format("kafkagroup")
        .options(**options(kafka, kept, to_sink, *more))
        .option("checkpointLocation", str(kept.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    return {progress["batchId"]: progress["numInputRows"] for progress in query.recentProgress}


def check_whole(kafka: EmbeddedKafka, kept: Kept) -> None:
    """Every record of the source is in the sink's topic once, for a reader of committed records."""
    assert out(kafka, kept, len(kept.rows)) == sorted(map(value, kept.rows))


def out(kafka: EmbeddedKafka, kept: Kept, count: int) -> list[str]:
    return [text.decode() for text in visible(kafka, kept.sink, count, partitions=2)]


def check_group(kept: Kept) -> None:
    """The source's group stands at the end, and its offsets have the mark of the stream that the checkpoint has."""
    ends = Counter(partition for partition, _ in kept.rows)
    at_the_end = {partition: (ends[partition], mark) for partition, (_, mark) in kept.before().items()}
    # A commit is seen once the marker of its transaction is written.
    wait_until(lambda: kept.committed() == at_the_end, "the commit")
    assert all(mark for _, mark in kept.before().values())


def test_a_sink_that_was_done_goes_on(spark: SparkSession, kafka: EmbeddedKafka, restore: Restore) -> None:
    kept = restore("sink-done")
    kept.commit_groups()
    kept.write(kept.sink, kept.planned(0, 1))
    assert min(copy(spark, kafka, kept)) == 2
    check_whole(kafka, kept)
    check_group(kept)


def test_a_batch_that_was_finished_is_not_written_again(
    spark: SparkSession, kafka: EmbeddedKafka, restore: Restore
) -> None:
    kept = restore("sink-done")
    kept.commit_groups()
    kept.write(kept.sink, kept.planned(0, 1))
    kept.forget_commit(1)
    read = copy(spark, kafka, kept)
    # It is read again, as a whole: operators between source and sink want to see its rows.
    assert min(read) == 1
    assert read[1] == len(kept.planned(1))
    check_whole(kafka, kept)
    check_group(kept)


@pytest.mark.parametrize("committed", [1, *(pytest.param(count, marks=pytest.mark.long) for count in (0, 2))])
def test_a_batch_that_was_decided_is_finished_and_not_written_again(
    spark: SparkSession, kafka: EmbeddedKafka, restore: Restore, committed: int
) -> None:
    kept = restore("sink-decided")
    assert kept.pending == [2]
    kept.write(kept.sink, kept.planned(0, 1))
    transactions = kept.reopen(2)
    assert len(transactions) == len(kept.decided) == 2
    for transaction in transactions[:committed]:
        transaction.commit_transaction()
    kept.commit_groups()
    read = copy(spark, kafka, kept)
    assert min(read) == 2
    assert read[2] == len(kept.planned(2))
    check_whole(kafka, kept)
    check_group(kept)


def test_a_decided_batch_whose_transactions_are_gone_stops_the_query(
    spark: SparkSession, kafka: EmbeddedKafka, restore: Restore
) -> None:
    kept = restore("sink-decided")
    kept.commit_groups()
    kept.write(kept.sink, kept.planned(0, 1))
    with pytest.raises(StreamingQueryException) as caught:
        copy(spark, kafka, kept)
    lost = sorted(f"{kept.prefix}-{name}" for name in kept.decided)
    assert f"transactions {', '.join(lost)} no longer exist" in str(caught.value)
    done = kept.planned(0, 1)
    assert out(kafka, kept, len(done)) == sorted(map(value, done))


def test_a_decided_batch_whose_transactions_are_gone_is_written_again_from_its_replay(
    spark: SparkSession, kafka: EmbeddedKafka, restore: Restore
) -> None:
    kept = restore("sink-decided")
    kept.commit_groups()
    kept.write(kept.sink, kept.planned(0, 1))
    copy(spark, kafka, kept, "replay")
    check_whole(kafka, kept)
    check_group(kept)


def test_a_batch_that_was_not_decided_is_written(spark: SparkSession, kafka: EmbeddedKafka, restore: Restore) -> None:
    kept = restore("sink-prepared")
    assert kept.pending == [2]
    kept.commit_groups()
    kept.write(kept.sink, kept.planned(0, 1))
    # What its tasks had left open, had Spark not had the time to abort it.
    left = kept.open(f"{kept.prefix}-0-0", kept.planned(2))
    read = copy(spark, kafka, kept)
    assert min(read) == 2
    assert read[2] == len(kept.planned(2))
    check_whole(kafka, kept)
    check_group(kept)
    del left


def test_a_decision_that_is_longer_than_an_offsets_metadata_is_read_to_its_end(
    spark: SparkSession, kafka: EmbeddedKafka, restore: Restore
) -> None:
    kept = restore("sink-wide")
    assert len(kept.decided) == 240
    kept.commit_groups()
    with pytest.raises(StreamingQueryException) as caught:
        copy(spark, kafka, kept, source="wide")
    first = sorted(f"{kept.prefix}-{name}" for name in kept.decided)[:10]
    assert f"transactions {', '.join(first)} and 230 more no longer exist" in str(caught.value)
