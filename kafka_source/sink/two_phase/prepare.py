"""A task of two-phase commit: write in a transaction and leave it open, or write nothing if the batch is decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import (
    ApplicationRecoverableError,
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
)
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.produce.delivery import TransactionalDelivery, in_transaction
from kafka_source.produce.records import Records
from kafka_source.runtime.failpoints import failpoint
from kafka_source.sink.two_phase.committer import DriverEpoch, TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import EMPTY, ONGOING, describe
from kafka_source.transactions.open_transaction import OpenTransaction, is_gone

# How long a task asks the coordinators of its transaction and of its driver's.
_COORDINATOR_SECONDS = 60.0


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
    """

    prefix: str
    query: str
    batch: int
    partition: int
    attempt: int = 0

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
    if not _has_to_write(settings, task, epoch):
        for _ in batches:
            # Take all rows nevertheless: stateful operators before the sink keep their state only for rows taken.
            pass
        return Prepared(0)
    delivery: TransactionalDelivery | None = None
    opened: OpenTransaction | None = None
    count = 0
    try:
        for records in batches:
            if not len(records):
                continue
            if delivery is None:
                task = _free_attempt(settings, task)
                _check_undecided(settings, task, epoch)
                delivery = in_transaction(settings, task.transactional_id, engine)
                opened = delivery.transaction or _initialised(settings, task)
                _check_undecided(settings, task, epoch)
            delivery.send(records)
            count += len(records)
        if delivery is None or opened is None:
            return Prepared(0)
        delivery.flush()
        failpoint("task-flushed")
        prepared = _prepared(settings, task, opened, count)
    except BaseException:
        if delivery is not None:
            delivery.abort()
        raise
    delivery.release()
    return prepared


def _free_attempt(settings: Settings, task: SinkTask) -> SinkTask:
    """Return the task with the lowest attempt number, from its own up, whose id nobody uses.

    Spark counts attempts from 0 again when it runs a stage again. A completed attempt of the first run may count, so
    its transaction must not be aborted. Nor is an id taken that another attempt has initialised and will write with.
    """
    client = cached_client(settings)
    while True:
        try:
            found = client.run(describe(client, task.transactional_id, Deadline(_COORDINATOR_SECONDS)))
        except KafkaGroupError as error:
            if is_gone(error):  # This id was never used.
                return task
            raise
        if not found.is_in_use:
            return task
        task = replace(task, attempt=task.attempt + 1)


def _has_to_write(settings: Settings, task: SinkTask, epoch: DriverEpoch) -> bool:
    _check_checkpoint(task, epoch)
    if not epoch.lost or epoch.last is None:
        return not epoch.covers(task.query, task.batch)
    if (epoch.last.query, epoch.last.batch) != (task.query, task.batch):
        client = cached_client(settings)
        raise client.run(TwoPhaseCommit(client, task.prefix).lost_transactions(epoch, Deadline(_COORDINATOR_SECONDS)))
    return epoch.has_lost(task.partition)


def _check_checkpoint(task: SinkTask, epoch: DriverEpoch) -> None:
    """Raise an error if the query's checkpoint is older than the ledger.

    Spark commits a batch in its checkpoint after the sink has decided about it, and before the next batch begins. So a
    replay is always the last decided batch. An earlier one means that the checkpoint was put back, from a backup for
    example. From there Spark plans the batches again, with other records, and the sink would drop all of them up to the
    last decided one as replays.
    """
    last = epoch.last
    if last is None or last.query != task.query or task.batch >= last.batch:
        return
    raise InvalidConfigurationError(
        f"The query runs batch {task.batch}, and the ledger of {task.prefix} has decided about batch {last.batch} "
        "already: the checkpoint is older than the output. The sink would drop the records of every batch up to "
        f"{last.batch} as replays. Nothing was written. Put back the newest checkpoint; with commit=sink a new "
        "checkpoint continues at the group's offsets. A new transactional.id.prefix with the old checkpoint writes the "
        "records after it again."
    )


def _initialised(settings: Settings, task: SinkTask) -> OpenTransaction:
    """Return the transaction that the engine has just initialised, as its coordinator describes it.

    If another process initialises the id in between, the result is that process's transaction. Then the engine is
    fenced at its first record, and the task fails.
    """
    client = cached_client(settings)
    return client.run(describe(client, task.transactional_id, Deadline(_COORDINATOR_SECONDS))).transaction


def _check_undecided(settings: Settings, task: SinkTask, epoch: DriverEpoch) -> None:
    """Raise an error if the batch has ended, with a decision or without.

    Spark runs attempts beside the ones that count, and does not wait for their end. Before an attempt initialises its
    id, this keeps it away from transactions that are decided, in its own batch or in a later one: they may be committed
    and not recorded as finished, and look free. Afterwards, it finds what changed in between: the driver ends what
    attempts have initialised before its decision, and does not know of the others.
    """
    client = cached_client(settings)
    driver = client.run(describe(client, epoch.driver.transactional_id, Deadline(_COORDINATOR_SECONDS)))
    if driver.transaction != epoch.driver or driver.state != EMPTY:
        raise FencedError(
            f"The task of {task.transactional_id} begins when its batch {task.batch} has ended already: the driver's "
            f"transactional id {epoch.driver.transactional_id} is in epoch {driver.transaction.epoch} and "
            f"{driver.state}, and the task belongs to epoch {epoch.driver.epoch}. Nothing of the task is written. If "
            f"another query uses the prefix {task.prefix}, let only one use it."
        )


def _prepared(settings: Settings, task: SinkTask, opened: OpenTransaction, count: int) -> Prepared:
    client = cached_client(settings)
    found = client.run(describe(client, task.transactional_id, Deadline(_COORDINATOR_SECONDS)))
    if found.transaction != opened:
        # The acknowledged records were in a transaction that is aborted. The newest one holds the records of another
        # process, perhaps an attempt of this task that Spark has given up and that still runs.
        raise FencedError(
            f"Another process has initialised {task.transactional_id} while this task wrote: epoch "
            f"{found.transaction.epoch} of producer id {found.transaction.producer_id} instead of epoch {opened.epoch} "
            f"of {opened.producer_id}. The records of this task are aborted. Let only one query use the prefix "
            f"{task.prefix}."
        )
    if not found.is_open:
        raise ApplicationRecoverableError(
            f"The transaction of {task.transactional_id} is {found.state}, not {ONGOING}: another process uses the "
            f"prefix {task.prefix}, or the task took longer than kafka.transaction.timeout.ms."
        )
    return Prepared(count, replace(opened, records=count), found.partitions)
