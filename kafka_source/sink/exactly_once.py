"""An exactly-once write, step by step, with the driver's time limits; the check of the transactions' timeout.

This module connects `two_phase/`, which is independent of Spark, to Spark's tasks and commit messages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from kafka_source.client_config import Settings
from kafka_source.commits.handoff import BatchOfRun
from kafka_source.commits.source_offsets import SourceOffsets, offsets_of_sources, renewed_offsets
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import InvalidConfigurationError, KafkaGroupError, error_for_code
from kafka_source.kafka_client import TRANSACTION, Deadline, KafkaClient, cached_client, to_coordinator
from kafka_source.kafka_client.messages.cluster import DescribeConfigsRequest
from kafka_source.produce.records import Records
from kafka_source.produce.settings import transaction_timeout_ms
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.sink.target import ExactlyOnce, Target
from kafka_source.sink.two_phase.committer import DriverEpoch, PreparedBatch, TwoPhaseCommit
from kafka_source.sink.two_phase.prepare import Prepared, SinkTask, prepare
from kafka_source.transactions.open_transaction import initialise

# The driver's time limit to begin, commit or abort a batch. After a crash the begin waits at most this long for the
# transactions that the last driver has left open.
_DRIVER_STEP_SECONDS = 120.0
_BROKER = 4  # `ConfigResource.Type.BROKER`
_LIMIT = "transaction.max.timeout.ms"


@dataclass(frozen=True, slots=True)
class CommitMessage(WriterCommitMessage):
    """A task's result, when all of its records are acknowledged.

    Attributes:
        records: The number of records.
        batch: The batch that the task belongs to; exactly-once sink only.
        epoch: The driver's epoch in which the task ran; exactly-once sink only. The commit runs in another process than
            the begin, and that process gets the epoch from this field.
        prepared: The task's open transaction; exactly-once sink only.
    """

    records: int
    batch: BatchOfRun | None = None
    epoch: DriverEpoch | None = None
    prepared: Prepared | None = None


def begin_batch(settings: Settings, sink: ExactlyOnce) -> DriverEpoch:
    """Begin a batch in the driver, before its tasks; see `TwoPhaseCommit.begin` and `check_timeout`.

    Raises:
        KafkaGroupError: The batch cannot begin; nothing of the batch exists.
    """
    client, deadline = cached_client(settings), Deadline(_DRIVER_STEP_SECONDS)
    client.run(_check_timeout_once(client, settings, sink.prefix, deadline))
    return client.run(TwoPhaseCommit(client, sink.prefix).begin(deadline, replays=sink.replays))


def prepare_task(target: Target, sink: ExactlyOnce, epoch: DriverEpoch, records: Iterable[Records]) -> CommitMessage:
    """Write a task's records in a transaction and leave it open; see `prepare`.

    Raises:
        KafkaGroupError: The task failed, or this is no Spark task.
    """
    task = TaskContext.get()
    if task is None:
        raise KafkaGroupError("An exactly-once write needs Spark's TaskContext; this is no Spark task.")
    batch = BatchOfRun(sink.write_id, "", 0) if sink.write_id else BatchOfRun.of_task(TaskContext.get())
    sink_task = SinkTask(sink.prefix, batch.query, batch.number, task.partitionId())
    prepared = prepare(target.settings, sink_task, epoch, records, target.options.engine)
    return CommitMessage(prepared.records, batch, epoch.in_message, prepared)


def commit_batch(settings: Settings, sink: ExactlyOnce, messages: Sequence[CommitMessage]) -> None:
    """Commit the batch that these messages belong to; see `TwoPhaseCommit.commit`.

    Raises:
        KafkaGroupError: The batch is not committed, or not visible, as the error states.
    """
    known = next(((m.epoch, m.batch) for m in messages if m.epoch is not None and m.batch is not None), None)
    if known is None:
        return
    epoch, batch = known
    prepared = [m.prepared for m in messages if m.prepared is not None]
    transactions = {one.transaction: one.partitions for one in prepared if one.transaction is not None}
    client, deadline = cached_client(settings), Deadline(_DRIVER_STEP_SECONDS)
    sources, renew = SourceOffsets(), None
    if sink.source_group is not None:
        wrote, decided = bool(transactions), epoch.covers(batch.query, batch.number)
        work = offsets_of_sources(client, sink.source_group, batch, deadline, wrote=wrote, decided=decided)
        sources = client.run(work)
        renew = partial(renewed_offsets, client, sink.source_group, batch, deadline)
    prepared_batch = PreparedBatch(batch.query, batch.number, transactions, sources)
    client.run(TwoPhaseCommit(client, sink.prefix).commit(epoch, prepared_batch, deadline, renew))


def abort_batch(settings: Settings, sink: ExactlyOnce, epoch: DriverEpoch) -> None:
    """Abort the transactions of a batch that failed, and fence its tasks; see `TwoPhaseCommit.abort_undecided`."""
    client = cached_client(settings)
    client.run(TwoPhaseCommit(client, sink.prefix).abort_undecided(Deadline(_DRIVER_STEP_SECONDS), epoch))


class _Check:
    """Whether the brokers have accepted the timeout."""

    def __init__(self, _: tuple[Settings, str]) -> None:
        self.done = False


_checks = ProcessCache(_Check, max_size=64)


async def _check_timeout_once(client: KafkaClient, settings: Settings, prefix: str, deadline: Deadline) -> None:
    """Call `check_timeout` once in this process for each prefix, cluster and timeout.

    Raises:
        InvalidConfigurationError: As for `check_timeout`.
    """
    check = _checks.of((settings, prefix))
    if not check.done:
        await check_timeout(client, prefix, transaction_timeout_ms(settings), deadline)
        check.done = True


async def check_timeout(client: KafkaClient, prefix: str, timeout_ms: int, deadline: Deadline) -> None:
    """Check the timeout against `transaction.max.timeout.ms` of the broker that coordinates `{prefix}-driver`.

    The check reads the broker's configuration (DescribeConfigs), which needs the right DESCRIBE_CONFIGS on the cluster.
    If the broker returns no limit, the check initialises `{prefix}-driver` with the timeout, and the coordinator
    refuses a timeout that is too high. The initialisation fences other drivers of the prefix, as the next batch does.

    Args:
        client: Client of the cluster that the sink writes to.
        prefix: The sink's `transactional.id.prefix`.
        timeout_ms: Timeout of the tasks' transactions, in milliseconds.
        deadline: Limit for the whole call.

    Raises:
        InvalidConfigurationError: The timeout is above the limit.
        AuthenticationError: The user has no right to the transactional id.
        KafkaGroupError: The coordinator does not answer in time.
    """
    limit = await _limit(client, f"{prefix}-driver", deadline)
    if limit is None:
        await _check_by_initialising(client, prefix, timeout_ms, deadline)
    elif timeout_ms > limit:
        raise _too_high(timeout_ms, f"{_LIMIT}={limit}")


async def _check_by_initialising(client: KafkaClient, prefix: str, timeout_ms: int, deadline: Deadline) -> None:
    try:
        await initialise(client, f"{prefix}-driver", timeout_ms, deadline)
    except InvalidConfigurationError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise _too_high(timeout_ms, f"{_LIMIT}, which this user cannot read") from None


def _too_high(timeout_ms: int, limit: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"kafka.transaction.timeout.ms={timeout_ms} is above the brokers' limit, {limit}. Lower the timeout or raise "
        "the limit.",
        code=ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    )


async def _limit(client: KafkaClient, transactional_id: str, deadline: Deadline) -> int | None:
    """Return the limit of the broker that coordinates a transactional id, in milliseconds; None: no limit returned."""
    what = f"Reading {_LIMIT} of the coordinator of transactional id {transactional_id} failed"

    async def ask() -> int | None:
        node_id = (await client.coordinator(transactional_id, deadline, TRANSACTION)).node_id
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[_LIMIT]
        )
        request = DescribeConfigsRequest(resources=[resource])
        answer = await to_coordinator(client, TRANSACTION, transactional_id, request, deadline)
        (result,) = answer.results
        if result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return None
        if result.error_code:
            raise error_for_code(result.error_code, what)
        # A managed service may leave out settings that its users cannot change.
        return next((int(config.value) for config in result.configs if config.name == _LIMIT and config.value), None)

    return await client.retrying(ask, deadline)
