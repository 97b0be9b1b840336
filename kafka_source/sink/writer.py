"""Spark's writers: `write` runs in each task, `commit` and `abort` in the driver; see `BatchStart` for the begin."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from kafka_source.quota.task_pacer import pacer_of
from kafka_source.runtime import spark_processes
from kafka_source.sink.batch_start import BatchStart
from kafka_source.sink.commit_message import CommitMessage
from kafka_source.sink.delivery import deliver
from kafka_source.sink.exactly_once import commit_batch, give_up_batch, prepare_task
from kafka_source.sink.pacing import PRODUCER_RATE, paced
from kafka_source.sink.records import Records, from_arrow, from_rows
from kafka_source.sink.target import Target
from kafka_source.sink.two_phase.driver_epoch import DriverEpoch

log = logging.getLogger(__name__)


class _Writer:
    """The common part of all writers.

    Args:
        target: What to write and where.

    Attributes:
        start: Begins the batch when Spark pickles this writer.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.start = BatchStart(target)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark unpickles a writer in each Python worker that writes or commits. Nothing else sets up logging there.
        self.__dict__.update(state)
        spark_processes.prepare_worker(self._target.options.log_level, self._target.options.log_format)

    def _write(self, records: Iterable[Records]) -> CommitMessage:
        context = self.start.context()
        if context.ticket is None:
            return self._write_unpaced(records, context.epoch)
        task = TaskContext.get()
        ticket = context.ticket.of(-1 if task is None else task.partitionId(), 1.0)
        with pacer_of(ticket, self._target.settings, PRODUCER_RATE) as pacer:
            return self._write_unpaced(paced(records, pacer), context.epoch)

    def _write_unpaced(self, records: Iterable[Records], epoch: DriverEpoch | None) -> CommitMessage:
        target = self._target
        if target.exactly_once is None or epoch is None:
            return CommitMessage(deliver(target.settings, records, target.options.engine))
        return prepare_task(target, target.exactly_once, epoch, records)

    def _write_arrow(self, batches: Iterator[pa.RecordBatch]) -> CommitMessage:
        target = self._target
        return self._write(from_arrow(batch, target.columns, target.options.topic) for batch in batches)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> int:
        """Commit the batch, and return its number of records."""
        self.start.close()
        written = _of_sink(messages)
        if self._target.exactly_once is not None:
            commit_batch(self._target.settings, self._target.exactly_once, written)
        return sum(message.records for message in written)

    def _abort(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        self.start.close()
        written = _of_sink(messages)
        if self._target.exactly_once is None:
            count = sum(message.records for message in written)
            log.warning("%s failed; the other tasks have written %d records, which stay in the topic", what, count)
            return
        epochs = [self.start.epoch, *(message.epoch for message in written)]
        epoch = next((epoch for epoch in epochs if epoch is not None), None)
        if epoch is not None:
            give_up_batch(self._target.settings, self._target.exactly_once, epoch)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch: exactly once, or at least once (a task that Spark runs again writes its records again)."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows; return when all of its records are acknowledged."""
        return self._write_arrow(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit in the driver, after all tasks are done: an exactly-once write becomes visible now."""
        records = self._commit(messages)
        log.info("write records=%d", records)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up in the driver, after a task failed for good: abort an exactly-once write, else only log."""
        self._abort(messages, "the write")


class _StreamWriter(_Writer, DataSourceStreamWriter):
    """The common part of both kinds of stream writers."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit in the driver, after all tasks are done: an exactly-once micro-batch becomes visible now."""
        records = self._commit(messages)
        log.info("write batch=%d records=%d", batchId, records)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Give up in the driver, after a task failed for good; the query writes the batch again when it restarts."""
        self._abort(messages, f"batch {batchId}")


class RowStreamWriter(_StreamWriter):
    """Writes micro-batches of rows, for Spark 4.0, which has no Arrow stream writers."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write a task's rows; return when all of its records are acknowledged."""
        return self._write(from_rows(iterator, self._target.columns, self._target.options.topic))


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):

    class StreamWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes micro-batches: exactly once, or at least once (a batch that Spark runs again is written again)."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """Write a task's rows; return when all of its records are acknowledged."""
            return self._write_arrow(iterator)

else:
    StreamWriter = RowStreamWriter


def _of_sink(messages: Iterable[WriterCommitMessage | None]) -> list[CommitMessage]:
    return [message for message in messages if isinstance(message, CommitMessage)]
