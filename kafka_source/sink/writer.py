"""Spark's writers: what runs in the driver, and in each task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.quota.settings import Ticket
from kafka_source.quota.task import pacer_of
from kafka_source.sink.committer import TwoPhaseCommit
from kafka_source.sink.delivery import deliver
from kafka_source.sink.ongoing import OpenTransaction
from kafka_source.sink.pace import PRODUCER_RATE, paced
from kafka_source.sink.prepare import prepare
from kafka_source.sink.records import Records, from_arrow, from_rows
from kafka_source.sink.schema import SinkColumns

log = logging.getLogger(__name__)

_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where a query writes, and from which columns; what its tasks need to know.

    Attributes:
        settings: Of the Kafka clients.
        columns: Of the DataFrame.
        topic: The option `topic`, None: the column says it.
        prefix: Of transactional ids, for an exactly-once sink; None: at least once.
        write_id: Of a single write; None: a stream, whose query and batch the tasks know.
        ticket: The query's quota; None: nothing is held back.
    """

    settings: Settings
    columns: SinkColumns
    topic: str | None
    prefix: str | None = None
    write_id: str | None = None
    ticket: Ticket | None = None


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver: all of its records are acknowledged.

    Attributes:
        records: How many.
        query: Of an exactly-once sink: which query or write they are of.
        transaction: The open transaction that holds them.
        place: A partition that they were written to.
    """

    records: int
    query: str = ""
    transaction: OpenTransaction | None = None
    place: TopicPartition | None = None


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch, at least once: a task that Spark runs again writes its records again."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: returns when all of its records are acknowledged."""
        return _write_arrow(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: all tasks are done; an exactly-once write becomes visible now."""
        if self._target.prefix is not None:
            _decide(self._target, self._target.prefix, messages, 0)
        log.info("%d records written", _sum(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: a task failed for good; what other tasks wrote stays, unless the sink is exactly-once."""
        if self._target.prefix is not None:
            _give_up(self._target, self._target.prefix, messages)
            return
        log.warning("the write failed; %d records of other tasks were written and stay", _sum(messages))


class _StreamWriter(DataSourceStreamWriter):
    """What the two kinds of stream writers have in common."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver: all tasks of the micro-batch are done; of an exactly-once sink it becomes visible now."""
        if self._target.prefix is not None:
            _decide(self._target, self._target.prefix, messages, batchId)
        log.debug("batch %d: %d records written", batchId, _sum(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the driver: a task failed for good; the batch is written again when the query restarts."""
        if self._target.prefix is not None:
            _give_up(self._target, self._target.prefix, messages)
            return
        log.warning("batch %d failed; %d records of other tasks were written and stay", batchId, _sum(messages))


class RowStreamWriter(_StreamWriter):
    """For Spark 4.0, which hands rows to stream writers."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task: returns when all of its records are acknowledged."""
        target = self._target
        return _write(target, from_rows(iterator, target.columns, target.topic))


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):

    class StreamWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes micro-batches, at least once: a batch that Spark runs again is written again."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """In a task: returns when all of its records are acknowledged."""
            return _write_arrow(self._target, iterator)

else:
    StreamWriter = RowStreamWriter


def _write_arrow(target: Target, batches: Iterator[pa.RecordBatch]) -> Written:
    return _write(target, (from_arrow(batch, target.columns, target.topic) for batch in batches))


def _write(target: Target, records: Iterable[Records]) -> Written:
    if target.ticket is None:
        return _write_now(target, records)
    task = TaskContext.get()
    ticket = replace(target.ticket, part=-1 if task is None else task.partitionId())
    with pacer_of(ticket, target.settings, PRODUCER_RATE) as pacer:
        return _write_now(target, paced(records, pacer))


def _write_now(target: Target, records: Iterable[Records]) -> Written:
    if target.prefix is None:
        return Written(deliver(target.settings, records))
    task = TaskContext.get()
    if task is None:
        raise KafkaGroupError("An exactly-once write needs Spark's TaskContext; this is no Spark task.")
    query = target.write_id or task.getLocalProperty("sql.streaming.queryId") or ""
    batch = 0 if target.write_id else int(task.getLocalProperty("streaming.sql.batchId") or 0)
    done = prepare(target.settings, target.prefix, query, batch, task.partitionId(), task.attemptNumber(), records)
    return Written(done.records, query, done.transaction, done.place)


def _decide(target: Target, prefix: str, messages: list[WriterCommitMessage | None], batch: int) -> None:
    written = [message for message in messages if isinstance(message, Written)]
    prepared = [message.transaction for message in written if message.transaction is not None]
    place = min((message.place for message in written if message.place is not None), default=None)
    if not written:
        return
    client = KafkaClient(target.settings)
    try:
        client.run(TwoPhaseCommit(client, prefix).commit(written[0].query, batch, prepared, place, Deadline(_SECONDS)))
    finally:
        client.close()


def _give_up(target: Target, prefix: str, messages: list[WriterCommitMessage | None]) -> None:
    places = [message.place for message in messages if isinstance(message, Written) and message.place is not None]
    place = min(places, default=None if target.topic is None else TopicPartition(target.topic, 0))
    client = KafkaClient(target.settings)
    phases, deadline = TwoPhaseCommit(client, prefix), Deadline(_SECONDS)
    try:
        if target.write_id is None or place is None:
            client.run(phases.abort_undecided(deadline))
        else:
            client.run(phases.give_up(target.write_id, place, deadline))
    finally:
        client.close()


def _sum(messages: list[WriterCommitMessage | None]) -> int:
    return sum(message.records for message in messages if isinstance(message, Written))
