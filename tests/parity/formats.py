"""The same reads and streams with `format("kafka")` and with both engines of `format("kafkagroup")`, compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chispa.rows_comparer import assert_basic_rows_equality
from chispa.schema_comparer import assert_schema_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from kafkagroup.embedded import EmbeddedKafka
from tests.support.native import reason_to_skip
from tests.support.records import Topic, send
from tests.support.waiting import wait_until

SPARK = "kafka"
OURS = ("native", "librdkafka") if reason_to_skip() is None else ("librdkafka",)
ALL = (SPARK, *OURS)
# Where a scenario is about the plan and not about the engine: the engine that serves here, and the other in long runs.
ONE_DAILY = [OURS[0], *(pytest.param(other, marks=pytest.mark.long) for other in OURS[1:])]

Row = tuple[str, int, int, str | None]
"""Topic, partition, offset, value."""

_CONDITION = re.compile(r"(?:KAFKA_|MISMATCHED_|UNRESOLVED_|RESOLVED_)[A-Z_]+(?:\.[A-Z_]+)?")
# In the order in which they are looked for. Spark names its conditions in the exception and not always in the text.
_KINDS = {
    "The resolved start offset": "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
    "The specified start offset and end offset should have": (
        "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET"
    ),
    "The specified start offset": "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
    "timestamp based start offsets don't match": "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED",
    "start offsets don't match": "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
    "Could not read records in offset": "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
    "instead of 0": "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
    "offset was changed from": "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
    "have been deleted.": "KAFKA_DATA_LOSS.PARTITIONS_DELETED",
    "not supported": "not supported",
    "UnknownTopicOrPartitionException": "unknown topic",
    "does not exist, or this user may not see it": "unknown topic",
    "No offset matched": "no offset of this time",
    "No record of": "no offset of this time",
    "can't be": "option",
    "Option ": "option",
    "option": "option",
    "must be": "option",
    "NumberFormatException": "option",
    "For input string": "option",
    "Expected": "option",
    "startingOffsets": "option",
}


def kind_of(error: BaseException) -> str:
    """The kind of an error: the name of Spark's condition where there is one."""
    text = str(error)
    found = _CONDITION.search(text)
    if found is not None:
        return found[0]
    return next((kind for words, kind in _KINDS.items() if words in text), text)


@dataclass
class Frames:
    """A batch read with each format; nothing is loaded before it is looked at."""

    makers: Mapping[str, Callable[[], DataFrame]]
    loaded: dict[str, DataFrame] = field(default_factory=dict)

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self.loaded:
            self.loaded[name] = self.makers[name]()
        return self.loaded[name]

    def map(self, change: Callable[[DataFrame], DataFrame]) -> Frames:
        """The frames after a transformation."""
        return Frames({name: partial(_changed, self, name, change) for name in self.makers})

    def same(self) -> list[str]:
        """Compare the rows of all formats, with counts and all columns, and return their values."""
        # One action for each format: assert_df_equality would run several, and sort in Spark.
        found = {name: sorted(self[name].collect(), key=repr) for name in self.makers}
        for name in OURS:
            assert_schema_equality(self[name].schema, self[SPARK].schema, ignore_nullable=True)
            assert_basic_rows_equality(found[name], found[SPARK])
        return sorted(bytes(row["value"]).decode() for row in found[SPARK])

    def same_numbers(self) -> list[int]:
        """The same for values that are numbers."""
        return sorted(map(int, self.same()))

    def same_error(self) -> str:
        """Compare the kinds of the errors with which all formats fail, and return the kind."""
        kinds = {name: _kind_of_failure(partial(_collected, self, name)) for name in self.makers}
        assert len(set(kinds.values())) == 1, kinds
        return kinds[SPARK]

    def tasks(self) -> dict[str, int]:
        """The number of tasks with which each format reads."""
        return {name: self[name].rdd.getNumPartitions() for name in self.makers}


@dataclass
class Queries:
    """A stream with each format, each with a checkpoint of its own; `foreachBatch` keeps the rows of each batch."""

    formats: Formats
    folder: Path
    given: Mapping[str, object]
    trigger: Mapping[str, Any]
    rows: dict[str, list[list[Row]]] = field(default_factory=lambda: {name: [] for name in ALL})
    running: dict[str, StreamingQuery] = field(default_factory=dict)

    def start(self, **changed: object) -> Queries:
        """Start all queries, with options that replace those of before."""
        for name in ALL:
            frame = self.formats.stream_of(name, {**self.given, **changed})
            writer = frame.writeStream.foreachBatch(self._keeper(name))
            checkpoint = str(self.folder / name)
            query = writer.trigger(**self.trigger).option("checkpointLocation", checkpoint).start()
            # Spark gives a Python process 10 seconds to start, which several at once may not have on a busy machine.
            wait_until(partial(_has_begun, query), "the first trigger of a query")
            self.running[name] = query
        return self

    def _keeper(self, name: str) -> Callable[[DataFrame, int], None]:
        def keep(frame: DataFrame, _: int) -> None:
            picked = frame.selectExpr("topic", "partition", "offset", "CAST(value AS STRING)").collect()
            if picked:
                self.rows[name].append(sorted(tuple(row) for row in picked))

        return keep

    def process(self) -> Queries:
        """Wait until all have read what is there."""
        for query in self.running.values():
            query.processAllAvailable()
        return self

    def finish(self) -> Queries:
        """Wait until all have ended by themselves."""
        for query in self.running.values():
            assert query.awaitTermination(200)
        return self

    def stop(self) -> None:
        """Stop all."""
        for query in self.running.values():
            query.stop()

    def same_batches(self) -> list[list[str]]:
        """Compare the batches that had rows, and return the values of each."""
        for name in OURS:
            assert self.rows[name] == self.rows[SPARK], name
        return [sorted(row[3] or "" for row in batch) for batch in self.rows[SPARK]]

    def same_rows(self) -> list[str]:
        """Compare all rows with their counts, whatever batches they came in, and return their values."""
        found = {name: sorted(row for batch in batches for row in batch) for name, batches in self.rows.items()}
        for name in OURS:
            assert found[name] == found[SPARK], name
        return sorted(row[3] or "" for row in found[SPARK])

    def same_numbers(self) -> list[int]:
        """The same for values that are numbers."""
        return sorted(map(int, self.same_rows()))

    def same_error(self) -> str:
        """Wait until all have failed, compare the kinds of their errors, and return the kind."""
        kinds = {name: _kind_of_failure(query.processAllAvailable) for name, query in self.running.items()}
        assert len(set(kinds.values())) == 1, kinds
        return kinds[SPARK]


class Formats:
    """Makes reads and streams of one topic, or of none, with each format.

    Args:
        spark: A session with the JVM connector.
        kafka: The cluster.
        topic: The fixture.
        folder: A folder for checkpoints.
    """

    def __init__(self, spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, folder: Path) -> None:
        self.spark, self.servers, self.folder = spark, kafka.bootstrap_servers, folder
        self._kafka, self._new_topic = kafka, topic
        self._started: list[Queries] = []

    def topic(self, prefix: str, *values: Iterable[object]) -> str:
        """A fresh topic, which has a partition with each of these series of values."""
        name = self._new_topic(prefix, partitions=len(values))
        for partition, of_partition in enumerate(values):
            self.send(name, of_partition, partition)
        return name

    def send(self, topic: str, values: Iterable[object], partition: int = 0, timestamp: int | None = None) -> None:
        """Write values to a partition, in this order."""
        send(self._kafka, topic, values, partition, timestamp)

    def read(self, **options: object) -> Frames:
        """A batch read; `_` in an option's name stands for a dot."""
        return Frames({name: partial(self._batch_of, name, options) for name in ALL})

    def _batch_of(self, name: str, options: Mapping[str, object]) -> DataFrame:
        frame: DataFrame = self._with(self.spark.read, name, options).load()
        return frame

    def stream_of(self, name: str, options: Mapping[str, object]) -> DataFrame:
        """A stream with one format."""
        frame: DataFrame = self._with(self.spark.readStream, name, options).load()
        return frame

    def streams(self, trigger: Mapping[str, Any] | None = None, /, **options: object) -> Queries:
        """A stream with each format, not started; without a trigger it runs batch after batch."""
        folder = self.folder / f"queries-{len(self._started)}"
        self._started.append(Queries(self, folder, options, trigger or {"processingTime": "0 seconds"}))
        return self._started[-1]

    def available_now(self, **options: object) -> Queries:
        """A stream with each format that has read all that was there."""
        return self.streams({"availableNow": True}, **options).start().finish()

    def close(self) -> None:
        """Stop all queries."""
        for queries in self._started:
            queries.stop()

    def _with(self, source: Any, name: str, options: Mapping[str, object]) -> Any:
        source = source.format(SPARK if name == SPARK else "kafkagroup")
        source = source.option("kafka.bootstrap.servers", self.servers)
        if name != SPARK:
            # No leader of this broker is away for seconds.
            source = source.option("engine", name).option("data.loss.patience.ms", 1_000)
        for option, value in options.items():
            source = source.option(option.replace("_", "."), str(value))
        return source


def _has_begun(query: StreamingQuery) -> bool:
    return not query.isActive or "Initializing" not in query.status["message"]


def _changed(frames: Frames, name: str, change: Callable[[DataFrame], DataFrame]) -> DataFrame:
    return change(frames[name])


def _collected(frames: Frames, name: str) -> object:
    return frames[name].collect()


def _kind_of_failure(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return kind_of(error)
    raise AssertionError("it did not fail")
