"""Spark applications that read a group as a batch with `commit=task`, again and again.

Each batch is planned in a process of its own, which starts the keeper of the batch's slots and ends. The tasks commit
their records before Spark has written the output of the batch, so after a failure the records are not read again.
"""

import traceback
from collections.abc import Callable
from typing import TypeVar

from kafka_source.errors import DataLossError, KafkaGroupError
from kafka_source.options import Where
from kafka_source.source.batch import BatchReader
from kafka_source.source.read_task import Query as ReadQuery
from kafka_source.source.read_task import ReadTask, TaskBundle
from tests.simulation.clients.jobs import Jobs, Lost
from tests.simulation.clients.rows import READ_SCHEMA
from tests.simulation.clients.spark import Query
from tests.simulation.world import Died, Process, Waiting

_T = TypeVar("_T")

# The longest pause between two batches.
_PAUSE_SECONDS = 4.0


class BatchApplication(Query):
    """A batch application; when its driver has died, a new driver continues with the next batch.

    Attributes:
        planned: The number of batches that it has planned.
    """

    planned = 0
    _planner: Process | None = None

    def processes(self) -> list[Process]:
        """Return its live processes: driver, planner, workers, and the keepers of slots."""
        workers = [] if self.jobs is None else self.jobs.workers
        known = (self.process, self._planner, *workers, *self.keepers())
        return [one for one in known if one is not None and one.alive]

    def keepers(self) -> list[Process]:
        """Return the live keepers of all of its drivers."""
        return [one for one in self.world.side_processes if one.alive and one.driver.name.startswith(f"{self.name}.")]

    # ---- in the driver

    def _main(self) -> None:
        process, jobs = self.process, self.jobs
        assert process is not None and jobs is not None
        try:
            while self.wanted:
                self._run_batch(process, jobs)
                self.world.sleep(self.world.random.uniform(0, _PAUSE_SECONDS))
            self.stops += 1
        except Died:
            return
        except Exception:
            self.world.tell(self.name, f"BROKE: {traceback.format_exc()}")
        self._end(process, jobs)

    def _run_batch(self, process: Process, jobs: Jobs) -> None:
        """Plan and run a batch, which may fail."""
        self.planned += 1
        name, output = (self.name, self.planned), self.output
        try:
            inputs = self._plan(process, lambda: BatchReader(self.options, READ_SCHEMA).partitions())
            tasks = [one for one in inputs if isinstance(one, ReadTask)]
            output.in_flight[name] = ranges = tuple(output.readable(tasks))
            output.plan(ranges)
            # While tasks wait for executors, other members request the partitions.
            self.work()
            bundles = [TaskBundle((task,)) for task in tasks]
            jobs.batch(self.planned, bundles, ReadQuery.of(self.options, READ_SCHEMA, Where.BATCH, None))
            self.pause()
            output.batches[name] = ranges
        except (KafkaGroupError, Lost) as error:
            self.world.tell(self.name, f"batch {self.planned} fails: {type(error).__name__}: {error}")
            if isinstance(error, KafkaGroupError):
                self.errors.append((self.world.now, error))
            if isinstance(error, DataLossError):
                self.options["failOnDataLoss"] = "false"

    def _plan(self, driver: Process, work: Callable[[], _T]) -> _T:
        self._planner = planner = self.world.process(f"{driver.name}.planner-{self.planned}", driver)
        call = planner.call(work)
        call.waiting = waiting = Waiting(self.world, None)
        waiting.wait()
        planner.kill()
        if call.done:
            return call.result()
        raise Lost("the planner")
