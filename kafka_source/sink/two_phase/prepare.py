"""A task's part of two-phase commit: write everything in a transaction, and leave it open."""

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
from kafka_source.sink.two_phase.committer import Turn, TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import ONGOING, describe
from kafka_source.transactions.open_transaction import OpenTransaction, is_gone

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SinkTask:
    """A task of an exactly-once sink.

    Attributes:
        prefix: Of the sink's transactional ids.
        query: Which query, or which single write, the batch is of.
        batch: Its number.
        partition: Of the task; with the attempt it makes the transactional id, so that their number stays bounded.
        attempt: Of the task, or a later number: a zombie's transaction is another's, and is aborted by the driver.
        single: Whether it is of a single write, which may be given up while the task runs.
    """

    prefix: str
    query: str
    batch: int
    partition: int
    attempt: int = 0
    single: bool = False

    @property
    def transactional_id(self) -> str:
        """Of this attempt."""
        return f"{self.prefix}-{self.partition}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a task did.

    Attributes:
        records: How many are written.
        transaction: The one that is open; None: no rows, or the batch is decided already.
        places: The partitions that were written to.
    """

    records: int
    transaction: OpenTransaction | None = None
    places: tuple[TopicPartition, ...] = ()


def prepare(
    settings: Settings, task: SinkTask, turn: Turn, batches: Iterable[Records], engine: str = "auto"
) -> Prepared:
    """Write records in a transaction and leave it open for the driver to decide.

    Args:
        settings: Of the Kafka clients.
        task: Which one.
        turn: The driver's, taken before the tasks of the batch began.
        batches: The records; nothing is asked of Kafka's transactions if there are none.
        engine: The option.

    Raises:
        KafkaGroupError: The task failed; its transaction is aborted.
    """
    if not _is_to_write(task, turn):
        for _ in batches:
            # Taken all the same: operators before the sink keep their state only for rows that were taken.
            pass
        return Prepared(0)
    delivery: TransactionalDelivery | None = None
    count = 0
    try:
        for records in batches:
            if not len(records):
                continue
            if delivery is None:
                task = _not_in_use(settings, task)
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


def _not_in_use(settings: Settings, task: SinkTask) -> SinkTask:
    """The task with the first attempt number from its own on that has no transaction open.

    Spark counts attempts from 0 again when it runs a stage again: one that is done may count, and must not be aborted.
    """
    client = cached_client(settings)
    while True:
        try:
            found = client.run(describe(client, task.transactional_id, Deadline(_SECONDS)))
        except KafkaGroupError as error:
            if is_gone(error):  # it was never there
                return task
            raise
        if not found.is_open:
            return task
        task = replace(task, attempt=task.attempt + 1)


def _is_to_write(task: SinkTask, turn: Turn) -> bool:
    last = turn.last
    if not turn.lost or last is None:
        return not turn.covers(task.query, task.batch)
    if (last.query, last.batch) != (task.query, task.batch):
        raise LostTransactionsError(batch=last.batch, transactional_ids=sorted(turn.lost), decided=True)
    return any(name.rpartition("-")[0] == f"{task.prefix}-{task.partition}" for name in turn.lost)


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
