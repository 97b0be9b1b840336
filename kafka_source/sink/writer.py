"""Spark's writers: what runs in the driver, and in each task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from kafka_source.client_config import Settings
from kafka_source.sink.delivery import deliver
from kafka_source.sink.records import from_arrow, from_rows
from kafka_source.sink.schema import SinkColumns

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a query writes, and from which columns; what its tasks need to know.

    Attributes:
        settings: Of the Kafka clients.
        columns: Of the DataFrame.
        topic: The option `topic`, None: the column says it.
    """

    settings: Settings
    columns: SinkColumns
    topic: str | None


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver: all of its records are acknowledged.

    Attributes:
        records: How many.
    """

    records: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch, at least once: a task that Spark runs again writes its records again."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: returns when all of its records are acknowledged."""
        return _write_arrow(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: all tasks are done."""
        log.info("%d records written", _sum(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: a task failed for good; what other tasks have written stays in the topic."""
        log.warning("the write failed; %d records of other tasks were written and stay", _sum(messages))


class _StreamWriter(DataSourceStreamWriter):
    """What the two kinds of stream writers have in common."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver: all tasks of the micro-batch are done."""
        log.debug("batch %d: %d records written", batchId, _sum(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the driver: a task failed for good; the batch is written again when the query restarts."""
        log.warning("batch %d failed; %d records of other tasks were written and stay", batchId, _sum(messages))


class RowStreamWriter(_StreamWriter):
    """For Spark 4.0, which hands rows to stream writers."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task: returns when all of its records are acknowledged."""
        target = self._target
        return Written(deliver(target.settings, from_rows(iterator, target.columns, target.topic)))


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):

    class StreamWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes micro-batches, at least once: a batch that Spark runs again is written again."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """In a task: returns when all of its records are acknowledged."""
            return _write_arrow(self._target, iterator)

else:
    StreamWriter = RowStreamWriter


def _write_arrow(target: Target, batches: Iterator[pa.RecordBatch]) -> Written:
    records = (from_arrow(batch, target.columns, target.topic) for batch in batches)
    return Written(deliver(target.settings, records))


def _sum(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.records for message in messages if isinstance(message, Written))
