"""Spark's writers: what runs in the driver, and in each task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.options import SinkOptions
from kafka_source.quota.server_process import ticket_of_server_process
from kafka_source.quota.settings import QuotaSettings, Ticket
from kafka_source.quota.task_pacer import pacer_of
from kafka_source.runtime import log_setup
from kafka_source.runtime.driver_pid import driver_pid
from kafka_source.sink.commit_message import CommitMessage
from kafka_source.sink.delivery import deliver
from kafka_source.sink.pacing import PRODUCER_RATE, paced
from kafka_source.sink.records import Records, from_arrow, from_rows
from kafka_source.sink.schema import SinkColumns
from kafka_source.sink.two_phase.committer import PreparedBatch, TwoPhaseCommit
from kafka_source.sink.two_phase.driver_epoch import DriverEpoch
from kafka_source.sink.two_phase.prepare import SinkTask, prepare
from kafka_source.sink.two_phase.source_offsets import offsets_of_sources
from kafka_source.sink.two_phase.timeout import check_timeout_once
from kafka_source.source_sink_handoff import BatchOfRun
from kafka_source.transactions.offset_transaction import GroupOffsets

log = logging.getLogger(__name__)

_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """What an exactly-once sink knows besides.

    Attributes:
        prefix: Of transactional ids.
        write_id: Of a single write; None: a stream, whose query and batch the tasks know.
        source_group: Whose offsets are committed with the batch; None: nobody's.
        replays: Whether what is lost of a decided batch may come from its replay.
    """

    prefix: str
    write_id: str | None = None
    source_group: str | None = None
    replays: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """What a user asked to write, and where; travels to every task.

    Attributes:
        options: The options, which hold the settings of the Kafka clients too.
        columns: Of the DataFrame.
        exactly_once: None: at least once.
        quota: None: the query has no quota.
        name: What tells the query's quota from that of the driver's other writes.
    """

    options: SinkOptions
    columns: SinkColumns
    exactly_once: ExactlyOnce | None
    quota: QuotaSettings | None
    name: str

    @property
    def settings(self) -> Settings:
        """The settings of the Kafka clients."""
        return self.options.settings


class _Writer:
    """What all writers have in common."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._epoch: DriverEpoch | KafkaGroupError | None = None
        self._ticket: Ticket | KafkaGroupError | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles a writer for its tasks, before each batch: here the driver begins the batch, and sees that there
        # is somebody to hand out the quota. A writer that only commits is not pickled. An error is told by the tasks:
        # from here it would be called one of pickling.
        target = self._target
        if target.exactly_once is not None and self._epoch is None:
            try:
                self._epoch = _begin(target.settings, target.exactly_once)
            except KafkaGroupError as error:
                self._epoch = error
        if target.quota is not None and self._ticket is None:
            try:
                self._ticket = _ticket(target.quota, target.settings, target.name)
            except KafkaGroupError as error:
                self._ticket = error
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark unpickles a writer in each process that writes or commits: Python workers, whose log nobody sets up.
        log_setup.set_up()
        self.__dict__.update(state)

    def _write(self, records: Iterable[Records]) -> CommitMessage:
        ticket = self._ticket
        if ticket is None:
            return self._write_now(records)
        if isinstance(ticket, KafkaGroupError):
            raise ticket
        task = TaskContext.get()
        part = ticket.of(-1 if task is None else task.partitionId(), 1.0)
        with pacer_of(part, self._target.settings, PRODUCER_RATE) as pacer:
            return self._write_now(paced(records, pacer))

    def _write_now(self, records: Iterable[Records]) -> CommitMessage:
        sink = self._target.exactly_once
        if sink is None:
            return CommitMessage(deliver(self._target.settings, records, self._target.options.engine))
        if isinstance(self._epoch, KafkaGroupError):
            raise self._epoch
        if self._epoch is None:
            raise KafkaGroupError("An exactly-once write has not begun: Spark did not pickle the writer for its tasks.")
        task = TaskContext.get()
        if task is None:
            raise KafkaGroupError("An exactly-once write needs Spark's TaskContext; this is no Spark task.")
        batch = BatchOfRun(sink.write_id, "", 0) if sink.write_id else BatchOfRun.of_task()
        prepared = prepare(
            self._target.settings,
            SinkTask(
                sink.prefix, batch.query, batch.number, task.partitionId(), task.attemptNumber(), bool(sink.write_id)
            ),
            self._epoch,
            records,
            self._target.options.engine,
        )
        return CommitMessage(prepared.records, batch, self._epoch, prepared)

    def _write_arrow(self, batches: Iterator[pa.RecordBatch]) -> CommitMessage:
        target = self._target
        return self._write(from_arrow(batch, target.columns, target.options.topic) for batch in batches)

    def _commit(self, messages: list[WriterCommitMessage | None]) -> int:
        """How many records were written."""
        written = [message for message in messages if isinstance(message, CommitMessage)]
        if self._target.exactly_once is not None:
            _decide(self._target.settings, self._target.exactly_once, written)
        return sum(message.records for message in written)

    def _abort(self, messages: list[WriterCommitMessage | None], what: str) -> None:
        written = [message for message in messages if isinstance(message, CommitMessage)]
        if self._target.exactly_once is not None:
            epochs = [self._epoch, *(message.epoch for message in written)]
            epoch = next((epoch for epoch in epochs if isinstance(epoch, DriverEpoch)), None)
            if epoch is not None:
                _give_up(self._target, self._target.exactly_once, epoch, written)
        else:
            count = sum(message.records for message in written)
            log.warning("%s failed; %d records of other tasks were written and stay", what, count)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch, at least once: a task that Spark runs again writes its records again."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: returns when all of its records are acknowledged."""
        return self._write_arrow(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: all tasks are done; an exactly-once write becomes visible now."""
        records = self._commit(messages)
        log.info("write records=%d", records)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver: a task failed for good; what other tasks wrote stays, unless the sink is exactly-once."""
        self._abort(messages, "the write")


class _StreamWriter(_Writer, DataSourceStreamWriter):
    """What the two kinds of stream writers have in common."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """In the driver: all tasks of the micro-batch are done; of an exactly-once sink it becomes visible now."""
        records = self._commit(messages)
        log.info("write batch=%d records=%d", batchId, records)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the driver: a task failed for good; the batch is written again when the query restarts."""
        self._abort(messages, f"batch {batchId}")


class RowStreamWriter(_StreamWriter):
    """For Spark 4.0, which hands rows to stream writers."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task: returns when all of its records are acknowledged."""
        return self._write(from_rows(iterator, self._target.columns, self._target.options.topic))


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):

    class StreamWriter(_StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Writes micro-batches, at least once: a batch that Spark runs again is written again."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            """In a task: returns when all of its records are acknowledged."""
            return self._write_arrow(iterator)

else:
    StreamWriter = RowStreamWriter


def _ticket(quota: QuotaSettings, settings: Settings, name: str) -> Ticket:
    try:
        return ticket_of_server_process(quota, settings, PRODUCER_RATE, driver_pid(), name)
    except OSError as error:
        raise KafkaGroupError(f"The process that hands out the query's quota could not be started: {error}") from error


def _begin(settings: Settings, sink: ExactlyOnce) -> DriverEpoch:
    client, deadline = cached_client(settings), Deadline(_SECONDS)
    client.run(check_timeout_once(client, settings, sink.prefix, deadline))
    return client.run(TwoPhaseCommit(client, sink.prefix).begin(deadline, replays=sink.replays))


def _decide(settings: Settings, sink: ExactlyOnce, written: list[CommitMessage]) -> None:
    told = next(((m.epoch, m.batch) for m in written if m.epoch is not None and m.batch is not None), None)
    if told is None:
        return
    epoch, batch = told
    prepared = [m.prepared for m in written if m.prepared is not None]
    places = {one.transaction: one.partitions for one in prepared if one.transaction is not None}
    client, deadline = cached_client(settings), Deadline(_SECONDS)
    sources: tuple[GroupOffsets, ...] = ()
    if sink.source_group is not None and not epoch.covers(batch.query, batch.number):
        sources = client.run(offsets_of_sources(client, sink.source_group, batch, deadline, wrote=bool(places)))
    phases = TwoPhaseCommit(client, sink.prefix)
    client.run(phases.commit(epoch, PreparedBatch(batch.query, batch.number, places, sources), deadline))


def _give_up(target: Target, sink: ExactlyOnce, epoch: DriverEpoch, written: list[CommitMessage]) -> None:
    places = [tp for m in written if m.prepared is not None for tp in m.prepared.partitions]
    topic = target.options.topic
    place = min(places, default=None if topic is None else TopicPartition(topic, 0))
    client, deadline = cached_client(target.settings), Deadline(_SECONDS)
    phases = TwoPhaseCommit(client, sink.prefix)
    if sink.write_id is None:
        client.run(phases.abort_undecided(deadline, epoch))
    else:
        client.run(phases.give_up(epoch, sink.write_id, place, deadline))
