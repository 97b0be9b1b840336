"""A task's part of two-phase commit: write all records in one transaction, and leave it open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError, KafkaGroupError, LostTransactionsError
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.runtime.failpoints import failpoint
from kafka_source.sink.delivery import TransactionalDelivery, in_transaction
from kafka_source.sink.records import Records
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.sink.two_phase.driver_epoch import DriverEpoch
from kafka_source.sink.two_phase.open_transactions import ONGOING, describe
from kafka_source.transactions.open_transaction import OpenTransaction, is_gone

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SinkTask:
    """One attempt of a task of an exactly-once sink.

    Attributes:
        prefix: The sink's `transactional.id.prefix`.
        query: The id of the query, or of the single write, that the batch belongs to.
        batch: The batch's number in the query.
        partition: The task's partition number. With the attempt number it makes the transactional id, so the number of
            ids stays bounded.
        attempt: The task's attempt number, or a higher one. Each attempt has a transactional id of its own, so the
            driver can abort the transaction of an attempt that did not count.
        single: Whether this is a single write, which may be given up while the task runs.
    """

    prefix: str
    query: str
    batch: int
    partition: int
    attempt: int = 0
    single: bool = False

    @property
    def transactional_id(self) -> str:
        """The transactional id of this attempt."""
        return f"{self.prefix}-{self.partition}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of a task.

    Attributes:
        records: The number of records written.
        transaction: The open transaction; None if the task had no rows, or if the batch is decided already.
        partitions: The partitions that the transaction has written to.
    """

    records: int
    transaction: OpenTransaction | None = None
    partitions: tuple[TopicPartition, ...] = ()


def prepare(
    settings: Settings, task: SinkTask, epoch: DriverEpoch, batches: Iterable[Records], engine: str = "auto"
) -> Prepared:
    """Write records in a transaction and leave it open for the driver's decision.

    Args:
        settings: Settings of the Kafka clients.
        task: The task.
        epoch: The driver's epoch, from before the tasks of the batch began.
        batches: The records. Without any, the task opens no transaction.
        engine: The option `engine`.

    Raises:
        KafkaGroupError: The task failed; its transaction is aborted.
    """
    if not _has_to_write(task, epoch):
        for _ in batches:
            # Take all rows nevertheless: stateful operators before the sink keep their state only for rows taken.
            pass
        return Prepared(0)
    delivery: TransactionalDelivery | None = None
    count = 0
    try:
        for records in batches:
            if not len(records):
                continue
            if delivery is None:
                task = _free_attempt(settings, task)
                delivery = in_transaction(settings, task.transactional_id, engine)
            delivery.send(records)
            count += len(records)
        if delivery is None:
            return Prepared(0)
        delivery.flush()
        failpoint("task-flushed")
        prepared = _prepared(settings, task, count)
        if prepared.transaction is None:
            delivery.abort()
    except BaseException:
        if delivery is not None:
            delivery.abort()
        raise
    delivery.release()
    return prepared


def _free_attempt(settings: Settings, task: SinkTask) -> SinkTask:
    """Return the task with the lowest attempt number, from its own up, whose id has no open transaction.

    Spark counts attempts from 0 again when it runs a stage again. A completed attempt of the first run may count, so
    its transaction must not be aborted.
    """
    client = cached_client(settings)
    while True:
        try:
            found = client.run(describe(client, task.transactional_id, Deadline(_SECONDS)))
        except KafkaGroupError as error:
            if is_gone(error):  # This id was never used.
                return task
            raise
        if not found.is_open:
            return task
        task = replace(task, attempt=task.attempt + 1)


def _has_to_write(task: SinkTask, epoch: DriverEpoch) -> bool:
    if epoch.lost is None:
        return not epoch.covers(task.query, task.batch)
    decision, ids = epoch.lost.decision, epoch.lost.transactional_ids
    if (decision.query, decision.batch) != (task.query, task.batch):
        raise LostTransactionsError(batch=decision.batch, transactional_ids=sorted(ids), decided=True)
    return any(name.rpartition("-")[0] == f"{task.prefix}-{task.partition}" for name in ids)


def _prepared(settings: Settings, task: SinkTask, count: int) -> Prepared:
    client = cached_client(settings)
    found = client.run(describe(client, task.transactional_id, Deadline(_SECONDS)))
    if not found.is_open:
        raise ApplicationRecoverableError(
            f"The transaction of {task.transactional_id} is {found.state}, not {ONGOING}: another process uses the "
            f"prefix {task.prefix}, or the task took longer than kafka.transaction.timeout.ms."
        )
    if task.single and client.run(
        TwoPhaseCommit(client, task.prefix).is_decided(task.query, task.batch, Deadline(_SECONDS))
    ):
        return Prepared(0)
    return Prepared(count, replace(found.transaction, records=count), found.partitions)
