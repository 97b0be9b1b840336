"""Spark's writers, in any output mode: `write` runs in each task, `commit` and `abort` in the driver."""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafka_source.boundary import short_errors
from kafka_source.client_config import hidden
from kafka_source.client_config.java_settings import Role
from kafka_source.engine_selection import check_engine, engine_of_tasks
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import SinkOptions, sink_options
from kafka_source.produce.delivery import check_settings, check_topic, deliver, writes_native
from kafka_source.produce.records import Records
from kafka_source.produce.settings import check_transactional
from kafka_source.quota.bounds import QuotaSettings
from kafka_source.quota.task_pacer import Pacer, pacer_of
from kafka_source.runtime import spark_processes
from kafka_source.sink.batch_start import PRODUCER_RATE, BatchStart, is_driver_process
from kafka_source.sink.exactly_once import CommitMessage, abort_batch, commit_batch, prepare_task
from kafka_source.sink.records import from_arrow, from_rows, sink_columns
from kafka_source.sink.target import ExactlyOnce, Target
from kafka_source.sink.two_phase.committer import DriverEpoch

log = logging.getLogger(__name__)


class _Writer:
    """The common part of all writers.

    Attributes:
        start: Begins the batch when Spark pickles this writer.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.start = BatchStart(target)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark unpickles a writer in each Python worker that writes or commits, where no other code sets up logging.
        self.__dict__.update(state)
        spark_processes.prepare_worker(self._target.options.log_level, self._target.options.log_format)

    def _write(self, records: Iterable[Records]) -> CommitMessage:
        context = self.start.context()
        if context.ticket is None:
            return self._write_unpaced(records, context.epoch)
        task = TaskContext.get()
        ticket = context.ticket.of(-1 if task is None else task.partitionId(), 1.0)
        with pacer_of(ticket, self._target.settings, PRODUCER_RATE) as pacer:
            return self._write_unpaced(_paced(records, pacer), context.epoch)

    def _write_unpaced(self, records: Iterable[Records], epoch: DriverEpoch | None) -> CommitMessage:
        target = self._target
        if target.exactly_once is None or epoch is None:
            return CommitMessage(deliver(target.settings, records, target.options.engine))
        return prepare_task(target, target.exactly_once, epoch, records)

    def _write_arrow(self, batches: Iterator[pa.RecordBatch]) -> CommitMessage:
        target = self._target
        topic, encodings = target.options.topic, target.encodings
        return self._write(from_arrow(batch, target.columns, topic, encodings) for batch in batches)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> int:
        """Commit the batch, and return its number of records."""
        self.start.close()
        written = _commit_messages(messages)
        if self._target.exactly_once is not None:
            commit_batch(self._target.settings, self._target.exactly_once, written)
        return sum(message.records for message in written)

    def _abort(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        self.start.close()
        written = _commit_messages(messages)
        if self._target.exactly_once is None:
            count = sum(message.records for message in written)
            log.warning("%s failed; the other tasks have written %d records, which stay in the topic", what, count)
            return
        epochs = [self.start.epoch, *(message.epoch for message in written)]
        epoch = next((epoch for epoch in epochs if epoch is not None), None)
        if epoch is not None:
            abort_batch(self._target.settings, self._target.exactly_once, epoch)


@short_errors
class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch: exactly once, or at least once (a task that Spark runs again writes its records again)."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows; return when all of its records are acknowledged."""
        return self._write_arrow(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit in the driver after all tasks are done. The commit makes an exactly-once write visible."""
        records = self._commit(messages)
        log.info("write records=%d", records)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End a failed batch in the driver: abort an exactly-once write, else log."""
        self._abort(messages, "the write")


@short_errors
class _StreamWriter(_Writer, DataSourceStreamWriter):
    """The common part of both kinds of stream writers."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit in the driver after all tasks are done. The commit makes an exactly-once micro-batch visible."""
        records = self._commit(messages)
        log.info("write batch=%d records=%d", batchId, records)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """End a failed batch in the driver; the query writes the batch again when it restarts."""
        self._abort(messages, f"batch {batchId}")


@short_errors
class RowStreamWriter(_StreamWriter):
    """Writes micro-batches of rows, for Spark 4.0, which has no Arrow stream writers."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write a task's rows; return when all of its records are acknowledged."""
        target = self._target
        return self._write(from_rows(iterator, target.columns, target.options.topic, target.encodings))


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):

    @short_errors
    class StreamWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes micro-batches: exactly once, or at least once (a batch that Spark runs again is written again)."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """Write a task's rows; return when all of its records are acknowledged."""
            return self._write_arrow(iterator)

else:
    StreamWriter = RowStreamWriter


def _commit_messages(messages: Iterable[WriterCommitMessage | None]) -> list[CommitMessage]:
    return [message for message in messages if isinstance(message, CommitMessage)]


def _paced(batches: Iterable[Records], pacer: Pacer) -> Iterator[Records]:
    """Yield records in pieces, each of the size and at the time that the quota allows."""
    if not pacer.enabled:
        yield from batches
        return
    for records in batches:
        # For each record, the bytes of all records before it.
        before = [0, *accumulate(records.sizes())]
        at, end = 0, len(before) - 1
        while at < end:
            while (pause := pacer.seconds_to_wait(end - at)) > 0:
                time.sleep(pause)
            limit = pacer.max_bytes(before[-1] / end)
            until = end if limit is None else max(at + 1, bisect_right(before, before[at] + limit) - 1)
            pacer.fetched(before[until] - before[at], until - at)
            yield records if until - at == end else records.slice(at, until - at)
            at = until


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Create the writer of a batch write.

    Args:
        options: The user's options.
        schema: The DataFrame's schema.
        overwrite: Whether the save mode is `overwrite`, which Kafka does not support.

    Raises:
        OptionError: An option is wrong.
        InvalidConfigurationError: The save mode is `overwrite`, or a column cannot be written to Kafka.
        KafkaGroupError: See `values.writer_schema.writer_schema`.
    """
    if overwrite:
        raise InvalidConfigurationError(
            "Save mode overwrite not allowed for Kafka: records can only be appended to a topic. Use mode append."
        )
    return BatchWriter(_with_encodings(_checked(_target(options, schema, write_id=uuid.uuid4().hex)), schema))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, commits: bool = False
) -> DataSourceStreamWriter:
    """Create the writer of a stream, in any output mode. In mode `complete`, each micro-batch appends the whole result.

    Args:
        options: The user's options.
        schema: The stream's schema.
        overwrite: Whether the output mode is `complete`; ignored.
        commits: Whether the writer only commits or aborts a micro-batch, so that it needs neither its topic nor a
            schema of its columns.

    Raises:
        OptionError: An option is wrong.
        InvalidConfigurationError: A column cannot be written to Kafka.
        KafkaGroupError: See `values.writer_schema.writer_schema`.
    """
    target = _target(options, schema, warns=not commits)
    return StreamWriter(target if commits else _with_encodings(_checked(target), schema))


def _checked(target: Target) -> Target:
    """Return the target, after a check of its topic, because each attempt of a task waits 30 s for a missing topic.

    Raises:
        UnknownTopicError: The topic of the option `topic` does not exist, and the brokers do not create it.
        AuthenticationError: This user may not write to the topic.
    """
    if target.options.topic is not None and is_driver_process():
        check_topic(target.settings, target.options.topic)
    return target


def _target(given: Mapping[str, str], schema: StructType, write_id: str | None = None, *, warns: bool = True) -> Target:
    options = sink_options(given)
    exactly_once = _exactly_once(options, write_id)
    check_settings(options.settings, options.engine)
    engine = engine_of_tasks(options.engine)
    # The process that commits logs no warning, because the process that starts a micro-batch has logged it.
    native = writes_native(options.settings, options.engine if warns else engine)
    check_engine(options.engine, options.settings, Role.PRODUCER, native=native)
    options = replace(options, engine=engine)
    if exactly_once is not None:
        check_transactional(options.settings)
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    columns = sink_columns(fields, options.topic, encoded=[one.column for one in options.decoded])
    return Target(options, columns, exactly_once, QuotaSettings.of(options), _name(given))


def _with_encodings(target: Target, schema: StructType) -> Target:
    """Return the target with the schemas of values and keys, so that errors of the registry come before any task."""
    if not target.options.decoded:
        return target
    # Imported here, because most sinks do not need these modules.
    from kafka_source.spark_types import arrow_type
    from kafka_source.values.encoding import ColumnEncoding
    from kafka_source.values.writer_schema import writer_schema

    encodings = []
    for column in target.options.decoded:
        kind = arrow_type(schema[column.column].dataType)
        encodings.append(ColumnEncoding(writer_schema(target.options, column, kind), kind))
    return replace(target, encodings=tuple(encodings))


def _exactly_once(options: SinkOptions, write_id: str | None) -> ExactlyOnce | None:
    prefix, group = options.transactional_id_prefix, options.commit_group
    if prefix is None:
        # `check_sink` ensures that there is a prefix if and only if `transactional` is true.
        return None
    if group is not None and write_id is not None:
        problem = "Option commit.group is for streams; kafkagroup.pinned commits a batch read"
        raise OptionError("commit.group", group, problem=problem)
    return ExactlyOnce(prefix, write_id, group, replays=options.transactional_on_lost == "replay")


def _name(given: Mapping[str, str]) -> str:
    """Return a hash of all options without their secrets. Option names are case-insensitive."""
    public = hidden({name.lower(): value for name, value in given.items()})
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()[:16]
