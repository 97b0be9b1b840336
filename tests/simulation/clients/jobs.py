"""Spark's jobs: tasks in workers, whose attempts may fail, run simultaneously, or outlive their driver.

A task reads its ranges with `read_bundle` and writes them with the sink's writer, as in Spark. The writer is created in
a process of the driver and pickled for the tasks; another instance commits the batch. Each row that a task reads is
compared with the log; consecutive rows of a block are written as one row.
"""

import contextlib
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pandas  # noqa: F401 - pyarrow imports it with its first array, which must not take random numbers of a world
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, StructType

from kafka_source.errors import KafkaGroupError
from kafka_source.sink.writer import stream_writer
from kafka_source.source.read_task import Query as ReadQuery
from kafka_source.source.read_task import TaskBundle, read_bundle
from tests.simulation.brokers.cluster import Cluster, Range
from tests.simulation.clients.rows import Rows, WrongRows, in_one_block
from tests.simulation.world import Call, Process, Task, Waiting, World

_T = TypeVar("_T")

SCHEMA = StructType().add("value", BinaryType()).add("partition", IntegerType())
OUTPUT, OUTPUT_PARTITIONS = "copies", 2

# The interval in which a driver looks for slow attempts, the time after which it starts a second attempt beside a slow
# attempt, and the number of failures of a task after which the driver gives up (`spark.task.maxFailures`).
_LOOK_SECONDS = 0.5
_SLOW_SECONDS = 4.0
_MAX_FAILURES = 4
# The longest time in which a task uses a batch of rows.
_ROWS_SECONDS = 0.1


class Lost(Exception):
    """A process that ran something for the driver has died."""


@dataclass
class _Attempt:
    number: int
    worker: Process
    call: Call[WriterCommitMessage]
    began: float


@dataclass
class _Slot:
    """A task of a job, with its attempts."""

    attempts: list[_Attempt] = field(default_factory=list)
    next: int = 0
    failures: int = 0
    message: WriterCommitMessage | None = None


class JobsWatch:
    """Observes the batches of a query; the default does nothing. The number of a driver is the number of its start."""

    def started(self, driver: int, number: int) -> None:
        """Observe that a driver has read Spark's checkpoint, and begins with this batch."""

    def batch_begins(self, driver: int, process: Process, number: int, tasks: int) -> None:
        """Observe that a driver begins a batch with this number of tasks, with its sink in this process."""

    def launched(self, driver: int, worker: Process, task: int) -> None:
        """Observe an attempt of a task."""

    def taken(self, worker: Process) -> None:
        """Observe that Spark takes the attempt of this worker as the result of the task."""

    def checkpointed(self, driver: int) -> None:
        """Observe that a driver's batch is in Spark's checkpoint."""

    def ended(self, driver: int) -> None:
        """Observe that a driver has ended."""


class Jobs:
    """The processes of one start of a query, without the planner: the driver's process for the sink, and the workers.

    Args:
        name: The query's name.
        run: The number of this start.
        sink: The sink's options; None: the query has no sink of ours, and its tasks only read.
        watch: Observes the batches.
        armed: Functions that cause faults in the next attempts. Each gets the worker and the number of the task, and
            returns whether it has caused its fault.
    """

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        name: str,
        run: int,
        sink: Mapping[str, str] | None,
        watch: JobsWatch,
        armed: list[Callable[[Process, int], bool]],
    ) -> None:
        self._world, self._cluster, self._name, self.run, self._options = world, cluster, name, run, sink
        self._watch, self._armed = watch, armed
        self.driver = world.process(f"{name}.{run}.sink")
        self.workers: list[Process] = []
        self._committer: Any = None
        self._tasks: list[_Slot] = []
        self._launch: Callable[[_Slot, int], _Attempt]

    def kill(self) -> None:
        """Kill the driver's process. Each executor notices the end at once, or continues with its task."""
        self.driver.kill()
        for worker in self.workers:
            if worker.task is None or self._world.random.random() < 0.5:
                worker.kill()

    def run_again(self) -> None:
        """Run the current stage again, beside the attempts that still run, as after the loss of an executor."""
        for partition, task in enumerate(self._tasks):
            task.next = 0
            task.attempts.append(self._launch(task, partition))

    def batch(self, number: int, bundles: Sequence[TaskBundle], query: ReadQuery) -> None:
        """Run a micro-batch: begin it, run its tasks, commit it.

        Raises:
            KafkaGroupError: The batch has failed.
            Lost: The driver's process has died.
        """
        if self._options is None:
            self._all(number, bundles, query, None)
            return
        options = self._options
        # If the source has no input partition, Spark runs a task of the sink without rows.
        bundles = bundles or [TaskBundle(())]
        self._watch.batch_begins(self.run, self.driver, number, len(bundles))
        pickled = self._in_driver(lambda: pickle.dumps(stream_writer(options, SCHEMA, overwrite=False)))
        messages: list[WriterCommitMessage | None] = []
        try:
            messages = self._all(number, bundles, query, pickled)
            self._in_driver(lambda: self._writer().commit(messages, number))
        except KafkaGroupError:
            with contextlib.suppress(KafkaGroupError):
                self._in_driver(lambda: self._writer().abort(messages, number))
            raise

    def _writer(self) -> Any:
        if self._committer is None:
            assert self._options is not None
            self._committer = stream_writer(self._options, SCHEMA, overwrite=False, commits=True)
        return self._committer

    def _in_driver(self, work: Callable[[], _T]) -> _T:
        if self.driver.alive:
            call = self.driver.call(work)
            self._wait(call)
            if call.done:
                return call.result()
        raise Lost("the driver's sink")

    def _wait(self, *calls: Call[Any], seconds: float | None = None) -> None:
        """Wait at most this number of seconds until one of these calls has ended or its process has died."""
        waiting = Waiting(self._world, seconds)
        for call in calls:
            call.waiting = waiting
        waiting.wait()

    def _all(
        self, number: int, bundles: Sequence[TaskBundle], query: ReadQuery, pickled: bytes | None
    ) -> list[WriterCommitMessage | None]:
        """Run the tasks, and return their commit messages."""

        def launch(task: _Slot, partition: int) -> _Attempt:
            worker, attempt = self._idle_worker(), task.next
            properties = {
                "sql.streaming.queryId": self._name,
                "streaming.sql.batchId": str(number),
                "spark.jobGroup.id": f"run-{self.run}",
            }
            worker.task = Task(partition, attempt, properties)
            self._world.tell(str(worker), f"runs task {partition} of batch {number}, attempt {attempt}")
            self._watch.launched(self.run, worker, partition)
            self._armed[:] = [happens for happens in self._armed if not happens(worker, partition)]
            task.next += 1
            work = _TaskRun(
                self._world, self._cluster, worker, pickled, bundles[partition], query, f"{self._name} {number}"
            )
            return _Attempt(attempt, worker, worker.call(work), self._world.now)

        self._launch = launch
        self._tasks = [_Slot() for _ in bundles]
        try:
            while any(task.message is None for task in self._tasks):
                for partition, task in enumerate(self._tasks):
                    self._look_at(task, partition)
                attempts = [attempt.call for task in self._tasks for attempt in task.attempts]
                if any(task.message is None for task in self._tasks):
                    self._wait(*attempts, seconds=_LOOK_SECONDS)
            return [task.message for task in self._tasks]
        finally:
            for worker in self.workers:
                # Spark does not wait for attempts whose results it does not need, and cannot end each of them.
                if worker.task is not None:
                    worker.task.awaited = False
                    if self._world.random.random() < 0.5:
                        worker.kill()
            self._tasks = []

    def _look_at(self, task: _Slot, partition: int) -> None:
        for attempt in list(task.attempts):
            if attempt.call.done:
                task.attempts.remove(attempt)
                try:
                    message = attempt.call.result()
                    if task.message is None:
                        task.message = message
                        self._watch.taken(attempt.worker)
                except Exception as error:
                    self._world.tell(str(attempt.worker), f"task {partition} fails: {type(error).__name__}: {error}")
                    task.failures += 1
                    if task.failures >= _MAX_FAILURES or not isinstance(error, KafkaGroupError):
                        raise
            elif not attempt.worker.alive:
                task.attempts.remove(attempt)
        if task.message is None and (not task.attempts or self._is_slow(task)):
            task.attempts.append(self._launch(task, partition))

    def _is_slow(self, task: _Slot) -> bool:
        return len(task.attempts) == 1 and self._world.now - task.attempts[0].began > _SLOW_SECONDS

    def _idle_worker(self) -> Process:
        self.workers = [one for one in self.workers if one.alive]
        for one in self.workers:
            if one.task is None and not one.frozen:
                return one
        self.workers.append(self._world.process(f"{self._name}.{self.run}.worker-{len(self.workers)}"))
        return self.workers[-1]


class _TaskRun:
    """One attempt of a task, in its worker."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        worker: Process,
        pickled: bytes | None,
        bundle: TaskBundle,
        query: ReadQuery,
        batch: str,
    ) -> None:
        self._world, self._cluster, self._worker, self._pickled = world, cluster, worker, pickled
        self._bundle, self._query, self._batch = bundle, query, batch

    def __call__(self) -> WriterCommitMessage:
        try:
            rows = self._rows()
            if self._pickled is None:
                for _ in rows:
                    pass
                return WriterCommitMessage()
            message: WriterCommitMessage = pickle.loads(pickle.dumps(pickle.loads(self._pickled).write(rows)))
            return message
        finally:
            self._worker.task = None

    def _rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows to write. A row names its batch and a range, and the range's partition decides the row's."""
        rows = Rows(self._cluster, self._bundle.tasks)
        # The last range of each partition, whose block may have more rows.
        last: dict[tuple[str, int], Range] = {}
        try:
            for read in read_bundle(self._bundle, self._query):
                self._world.sleep(self._world.random.uniform(0, _ROWS_SECONDS))
                found = []
                for one in rows.take(read):
                    before = last.get(one[:2])
                    if before is not None and before[:3] == one[:3] and in_one_block(before, one[3]):
                        one = (*before[:4], one[4])
                    elif before is not None:
                        found.append(before)
                    last[one[:2]] = one
                yield self._written(found)
            rows.end()
            yield self._written(last.values())
        except WrongRows as error:
            self._world.tell(str(self._worker), f"BROKE: {error}")
            raise

    def _written(self, ranges: Iterable[Range]) -> pa.RecordBatch:
        values = [json.dumps([self._batch, *one]).encode() for one in ranges]
        partitions = [one[1] % OUTPUT_PARTITIONS for one in ranges]
        return pa.record_batch([pa.array(values, pa.binary()), pa.array(partitions, pa.int32())], SCHEMA.names)
