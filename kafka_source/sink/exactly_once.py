"""An exactly-once write, step by step: begin in the driver, prepare in each task, commit or give up in the driver.

`two_phase/` knows nothing of Spark. This module connects it to Spark's tasks and commit messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from pyspark import TaskContext

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.sink.commit_message import CommitMessage
from kafka_source.sink.records import Records
from kafka_source.sink.target import ExactlyOnce, Target
from kafka_source.sink.two_phase.committer import PreparedBatch, TwoPhaseCommit
from kafka_source.sink.two_phase.driver_epoch import DriverEpoch
from kafka_source.sink.two_phase.prepare import SinkTask, prepare
from kafka_source.sink.two_phase.source_offsets import offsets_of_sources, renewed_offsets
from kafka_source.sink.two_phase.timeout import check_timeout_once
from kafka_source.source_sink_handoff import BatchOfRun
from kafka_source.transactions.offset_transaction import GroupOffsets

_SECONDS = 120.0


def begin_batch(settings: Settings, sink: ExactlyOnce) -> DriverEpoch:
    """Begin a batch in the driver, before its tasks; see `TwoPhaseCommit.begin` and `check_timeout`.

    Raises:
        KafkaGroupError: The batch cannot begin; nothing of it exists.
    """
    client, deadline = cached_client(settings), Deadline(_SECONDS)
    client.run(check_timeout_once(client, settings, sink.prefix, deadline))
    return client.run(TwoPhaseCommit(client, sink.prefix).begin(deadline, replays=sink.replays))


def prepare_task(target: Target, sink: ExactlyOnce, epoch: DriverEpoch, records: Iterable[Records]) -> CommitMessage:
    """Write a task's records in a transaction and leave it open; see `prepare`.

    Raises:
        KafkaGroupError: The task failed, or this is no Spark task.
    """
    task = TaskContext.get()
    if task is None:
        raise KafkaGroupError("An exactly-once write needs Spark's TaskContext; this is no Spark task.")
    batch = BatchOfRun(sink.write_id, "", 0) if sink.write_id else BatchOfRun.of_task()
    sink_task = SinkTask(sink.prefix, batch.query, batch.number, task.partitionId(), task.attemptNumber())
    prepared = prepare(target.settings, sink_task, epoch, records, target.options.engine)
    return CommitMessage(prepared.records, batch, epoch.in_message, prepared)


def commit_batch(settings: Settings, sink: ExactlyOnce, messages: Sequence[CommitMessage]) -> None:
    """Commit the batch that these messages belong to; see `TwoPhaseCommit.commit`.

    Raises:
        KafkaGroupError: The batch is not committed, or not visible; the error says which.
    """
    known = next(((m.epoch, m.batch) for m in messages if m.epoch is not None and m.batch is not None), None)
    if known is None:
        return
    epoch, batch = known
    prepared = [m.prepared for m in messages if m.prepared is not None]
    transactions = {one.transaction: one.partitions for one in prepared if one.transaction is not None}
    client, deadline = cached_client(settings), Deadline(_SECONDS)
    sources: tuple[GroupOffsets, ...] = ()
    renew = None
    if sink.source_group is not None:
        wrote, decided = bool(transactions), epoch.covers(batch.query, batch.number)
        work = offsets_of_sources(client, sink.source_group, batch, deadline, wrote=wrote, decided=decided)
        sources = client.run(work)
        renew = partial(renewed_offsets, client, sink.source_group, batch, deadline)
    prepared_batch = PreparedBatch(batch.query, batch.number, transactions, sources)
    client.run(TwoPhaseCommit(client, sink.prefix).commit(epoch, prepared_batch, deadline, renew))


def give_up_batch(settings: Settings, sink: ExactlyOnce, epoch: DriverEpoch) -> None:
    """Abort the transactions of a batch that failed, and fence its tasks; see `TwoPhaseCommit.abort_undecided`."""
    client = cached_client(settings)
    client.run(TwoPhaseCommit(client, sink.prefix).abort_undecided(Deadline(_SECONDS), epoch))
