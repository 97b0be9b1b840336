"""Begin a batch when Spark pickles the writer for the batch's tasks, because Spark has no hook for the begin."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyspark import SparkContext, TaskContext

from kafka_source.errors import KafkaGroupError
from kafka_source.quota.bounds import QuotaSettings, Ticket
from kafka_source.quota.server import ticket_of_server_process
from kafka_source.runtime.spark_processes import driver_pid
from kafka_source.sink.exactly_once import begin_batch
from kafka_source.sink.target import Target
from kafka_source.sink.two_phase.committer import DriverEpoch

log = logging.getLogger(__name__)

PRODUCER_RATE = "producer_byte_rate"
"""The name of the brokers' quota for writes (KIP-13)."""


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The driver's data for the tasks of one batch.

    Attributes:
        epoch: The driver's epoch; None for an at-least-once sink.
        ticket: The task's share in the query's quota, before the task's number is set; None for no quota.
    """

    epoch: DriverEpoch | None = None
    ticket: Ticket | None = None


class BatchStart:
    """Begins one batch, once, in the driver, when Spark pickles the writer.

    Before the tasks of a batch start, the driver has to fence other drivers, complete the last decision and start the
    quota's server. Spark's Python data source API has no hook for this: a writer has `write` (in each task), `commit`
    and `abort` (after the tasks). But Spark (4.0 to 4.3) creates a new writer for each batch and micro-batch, in a
    process of the driver (`pyspark.sql.worker.write_into_data_source`), and pickles the writer there before the tasks
    start. So a writer owns a `BatchStart`, which begins the batch when it is pickled with the writer.

    Any code may pickle a writer. These rules make the hook safe:

    - Once per batch: Spark pickles the writer twice, for the tasks and for the commit. The first pickling keeps the
      outcome, and the second returns the same epoch and begins nothing.
    - Only in the driver's process that creates the writer. A pickling in a task (`TaskContext`) or in the user's
      program (`SparkContext`), for example by a debugger, does not begin a batch. A pickling after `commit` or `abort`
      (`close`) begins nothing either, because a start would fence the epoch of the batch that is being committed.
    - `copy.copy` and `copy.deepcopy` share the `BatchStart` and do not pickle it.
    - Spark would report an error of the begin as a failure to pickle, so the writer keeps it, and each task raises it.

    Args:
        target: The target of the write.
        begin: Begins the batch; raises a KafkaGroupError if it cannot.
    """

    def __init__(self, target: Target, begin: Callable[[Target], BatchContext] | None = None) -> None:
        self._target = target
        self._begin = begin or begin_in_driver
        self._outcome: BatchContext | KafkaGroupError | None = None
        self._closed = False

    @property
    def epoch(self) -> DriverEpoch | None:
        """The driver's epoch; None if the batch has not begun, or for an at-least-once sink."""
        return self._outcome.epoch if isinstance(self._outcome, BatchContext) else None

    def context(self) -> BatchContext:
        """Return the context that the driver gave to this task.

        Raises:
            KafkaGroupError: The batch could not begin, or has not begun.
        """
        if isinstance(self._outcome, KafkaGroupError):
            raise self._outcome
        if self._outcome is not None:
            return self._outcome
        if self._target.exactly_once is not None:
            raise KafkaGroupError("An exactly-once write has not begun: Spark did not pickle the writer for its tasks.")
        return BatchContext()

    def begin(self) -> None:
        """Begin the batch; do nothing if it has begun. `context` raises the error of a failed begin."""
        if self._outcome is not None:
            return
        try:
            self._outcome = self._begin(self._target)
        except KafkaGroupError as error:
            self._outcome = error

    def close(self) -> None:
        """Begin no batch after this call: the writer commits or aborts a batch that another process has begun."""
        self._closed = True

    def __getstate__(self) -> tuple[Target, BatchContext | KafkaGroupError | None]:
        if not self._closed and is_driver_process():
            self.begin()
        return self._target, self._outcome

    def __setstate__(self, state: tuple[Target, BatchContext | KafkaGroupError | None]) -> None:
        self._target, self._outcome = state
        # This copy serves a task or a commit. Only the original begins the batch.
        self._closed, self._begin = True, begin_in_driver

    def __copy__(self) -> "BatchStart":
        return self

    def __deepcopy__(self, memo: object) -> "BatchStart":
        return self


def begin_in_driver(target: Target) -> BatchContext:
    """Start the quota's server and begin an exactly-once batch, as the target requires.

    Raises:
        KafkaGroupError: The server or the batch could not start.
    """
    # Start the quota's server first. If it fails, no other driver has been fenced.
    ticket = None if target.quota is None else _ticket(target, target.quota)
    sink = target.exactly_once
    if sink is None:
        return BatchContext(None, ticket)
    epoch = begin_batch(target.settings, sink)
    log.info("begin batch prefix=%s epoch=%d", sink.prefix, epoch.driver.epoch)
    return BatchContext(epoch, ticket)


def is_driver_process() -> bool:
    """Return whether this is the driver's process that creates writers: neither a task nor the user's program."""
    return TaskContext.get() is None and SparkContext._active_spark_context is None


def _ticket(target: Target, quota: QuotaSettings) -> Ticket:
    try:
        return ticket_of_server_process(quota, target.settings, PRODUCER_RATE, driver_pid(), target.name)
    except OSError as error:
        raise KafkaGroupError(f"The process that serves the query's quota could not be started: {error}") from error
