"""A task's part in two-phase commit: write in a transaction and leave it open, or nothing if the batch is decided."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import (
    ApplicationRecoverableError,
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    UnknownOutcomeError,
)
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.produce.delivery import TransactionalDelivery, in_transaction
from kafka_source.produce.records import Records
from kafka_source.runtime.failpoints import failpoint
from kafka_source.runtime.retry import retry
from kafka_source.sink.two_phase.committer import DriverEpoch, TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import EMPTY, ONGOING, describe
from kafka_source.transactions.open_transaction import FENCED_TIMEOUT_MS, OpenTransaction, initialise, is_gone

# The time limit of a task's requests about its own transaction and about the driver's transaction.
_COORDINATOR_SECONDS = 60.0

IDS_OF_TASK = 7
"""The number of transactional ids that the attempts of a task take in turn. Seven divides 32,767, the number of epochs
of a producer id, so the turns continue in order when the next producer id begins with epoch 0.
"""


@dataclass(frozen=True, slots=True)
class SinkTask:
    """One attempt of an exactly-once sink's task.

    Attributes:
        prefix: The sink's `transactional.id.prefix`.
        query: The id of the query, or of the single write, that the batch belongs to.
        batch: The batch's number in the query.
        partition: The task's partition number.
    """

    prefix: str
    query: str
    batch: int
    partition: int

    @property
    def turns(self) -> str:
        """The transactional id whose epochs number the attempts of this task; the id never has a transaction."""
        return f"{self.prefix}-{self.partition}-turn"

    def transactional_id(self, turn: int) -> str:
        """Return the transactional id of the attempt with this number."""
        return f"{self.prefix}-{self.partition}-{turn % IDS_OF_TASK}"


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
        batches: The records. Without records the task opens no transaction.
        engine: The option `engine`.

    Raises:
        KafkaGroupError: The task failed; its transaction is aborted.
    """
    if not _has_to_write(settings, task, epoch):
        for _ in batches:
            # Take all rows of a replay too, because stateful operators before the sink keep state only for taken rows.
            pass
        return Prepared(0)
    client = cached_client(settings)
    delivery: TransactionalDelivery | None = None
    opened: OpenTransaction | None = None
    count = 0
    try:
        for records in batches:
            if not len(records):
                continue
            if delivery is None:
                name, delivery = _initialised(settings, task, epoch, engine)
                opened = delivery.transaction or client.run(describe(client, name, _deadline())).transaction
                client.run(_check_undecided(client, task, epoch, _deadline()))
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


def _initialised(
    settings: Settings, task: SinkTask, epoch: DriverEpoch, engine: str
) -> tuple[str, TransactionalDelivery]:
    """Return a transactional id that only this attempt has, and a delivery in the id's next transaction."""
    client = cached_client(settings)

    def attempt() -> tuple[str, TransactionalDelivery]:
        name = client.run(_next_id(client, task, epoch, _deadline()))
        return name, in_transaction(settings, name, engine)

    # A request without an answer may have initialised the id, so the attempt takes another turn.
    return retry(attempt, client.settings.retry, on=UnknownOutcomeError, deadline=_deadline())


async def _next_id(client: KafkaClient, task: SinkTask, epoch: DriverEpoch, deadline: Deadline) -> str:
    """Return a transactional id that no other attempt uses.

    InitProducerId on an id in use would end its holder's transaction. But the id `turns` never has a transaction:
    there, InitProducerId numbers its callers by epochs. So simultaneous attempts get different ids, even attempts of a
    repeated stage, which Spark numbers from 0 again.

    Raises:
        FencedError: The batch has ended. Without this check, the id of a committed transaction could look unused.
        ApplicationRecoverableError: Other attempts use all ids of the task.
    """
    used: dict[str, str] = {}
    while len(used) < IDS_OF_TASK:
        turn = await initialise(client, task.turns, FENCED_TIMEOUT_MS, deadline)
        name = task.transactional_id(turn.epoch)
        _, state = await asyncio.gather(
            _check_undecided(client, task, epoch, deadline), _state_in_use(client, name, deadline)
        )
        if state is None:
            return name
        used[name] = state
    raise ApplicationRecoverableError(
        f"Earlier attempts of task {task.partition} of the sink {task.prefix} use all of its transactional ids: "
        f"{', '.join(f'{name} ({used[name]})' for name in sorted(used))}. They still run, or were killed before they "
        "could abort their transactions; the logs of the executors show the reason. Nothing of this attempt is "
        "written. Restart the query: its start aborts these transactions, and the batch is written again."
    )


async def _state_in_use(client: KafkaClient, transactional_id: str, deadline: Deadline) -> str | None:
    """Return the state of an id that another attempt uses; None: no attempt uses the id."""
    try:
        found = await describe(client, transactional_id, deadline)
    except KafkaGroupError as error:
        if is_gone(error):  # This id was never used.
            return None
        raise
    return found.state if found.is_in_use else None


def _has_to_write(settings: Settings, task: SinkTask, epoch: DriverEpoch) -> bool:
    _check_checkpoint(task, epoch)
    if not epoch.lost or epoch.last is None:
        return not epoch.covers(task.query, task.batch)
    if (epoch.last.query, epoch.last.batch) != (task.query, task.batch):
        client = cached_client(settings)
        raise client.run(TwoPhaseCommit(client, task.prefix).lost_transactions(epoch, _deadline()))
    return epoch.has_lost(task.partition)


def _check_checkpoint(task: SinkTask, epoch: DriverEpoch) -> None:
    """Raise an error if the query's checkpoint is older than the ledger.

    Spark commits a batch in its checkpoint after the sink's decision and before the next batch begins, so a replay is
    always the last decided batch. An earlier batch means that the checkpoint was put back, for example from a backup.
    Spark would then plan batches with other records, and the sink would drop these batches as replays.
    """
    last = epoch.last
    if last is None or last.query != task.query or task.batch >= last.batch:
        return
    raise InvalidConfigurationError(
        f"The query runs batch {task.batch}, and the ledger of {task.prefix} has decided about batch {last.batch} "
        "already: the checkpoint is older than the output. The sink would drop the records of every batch up to "
        f"{last.batch} as replays. Nothing was written. Put back the newest checkpoint; with commit=sink a new "
        "checkpoint continues at the group's offsets. A new transactional.id.prefix writes the records after the "
        "checkpoint again."
    )


async def _check_undecided(client: KafkaClient, task: SinkTask, epoch: DriverEpoch, deadline: Deadline) -> None:
    """Raise an error if the batch has ended, with or without a decision.

    Spark does not wait for the end of unsuccessful attempts. The driver fences the ids that attempts have initialised
    before its decision, but does not know later ids. So an attempt checks again after it has initialised its id.
    """
    driver = await describe(client, epoch.driver.transactional_id, deadline)
    if driver.transaction != epoch.driver or driver.state != EMPTY:
        raise FencedError(
            f"Task {task.partition} of the sink {task.prefix} begins when its batch {task.batch} has ended already: "
            f"the driver's transactional id {epoch.driver.transactional_id} is in epoch {driver.transaction.epoch} and "
            f"{driver.state}, and the task belongs to epoch {epoch.driver.epoch}. Nothing of the task is written. If "
            f"another query uses the prefix {task.prefix}, let only one use it."
        )


def _deadline() -> Deadline:
    return Deadline(_COORDINATOR_SECONDS)


def _prepared(settings: Settings, task: SinkTask, opened: OpenTransaction, count: int) -> Prepared:
    client, name = cached_client(settings), opened.transactional_id
    found = client.run(describe(client, name, _deadline()))
    if found.transaction != opened:
        # The acknowledged records were in a transaction that is aborted. The newest transaction is of another process,
        # which may be an abandoned attempt of this task.
        raise FencedError(
            f"Another process has initialised {name} while this task wrote: epoch "
            f"{found.transaction.epoch} of producer id {found.transaction.producer_id} instead of epoch {opened.epoch} "
            f"of {opened.producer_id}. The records of this task are aborted. Let only one query use the prefix "
            f"{task.prefix}."
        )
    if not found.is_open:
        raise ApplicationRecoverableError(
            f"The transaction of {name} is {found.state}, not {ONGOING}: another process uses the "
            f"prefix {task.prefix}, or the task took longer than kafka.transaction.timeout.ms."
        )
    return Prepared(count, replace(opened, records=count), found.partitions)
