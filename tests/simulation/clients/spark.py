"""Spark, as the calls that it makes of a source: a query with its checkpoint, micro-batches, tasks, and restarts.

A query's driver is a process of the world. It makes the calls of Spark's MicroBatchExecution in Spark's order, and the
files of its checkpoint survive it. A sink that is not ours keeps what a batch has read by the batch's number, so that a
batch that is replayed replaces what it has written before, as Delta does. Then tasks only run if they commit.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import topic_id_of
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query as ReadQuery
from kafka_source.source.read_task import ReadTask
from tests.simulation.brokers.cluster import Cluster, Partition
from tests.simulation.brokers.logs import ABORTED, COMMITTED
from tests.simulation.clients.jobs import OUTPUT, SCHEMA, Jobs, JobsWatch, Lost
from tests.simulation.world import Died, Event, Process, World

Range = tuple[str, int, int, int]
"""A topic, a partition, the first offset, and the next offset after the last one."""


@dataclass
class Checkpoint:
    """The files of a query's checkpoint: the end of each planned batch, and how many batches are finished."""

    offsets: list[dict[str, Any]] = field(default_factory=list)
    finished: int = 0

    @property
    def in_flight(self) -> bool:
        """Whether a batch is planned and not finished."""
        return len(self.offsets) > self.finished


class Output:
    """What the sinks of all queries have written: in batches by query and number, or as records in Kafka.

    Attributes:
        in_flight: The batches whose tasks commit their offsets when they have read them (`commit=task`).
        losses: How often records of the source were lost.
        lost_from: The lowest offset from which records of a partition were lost.
        reached: Where the logs of these partitions ended before that.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.batches: dict[tuple[str, int], tuple[Range, ...]] = {}
        self.in_flight: dict[tuple[str, int], tuple[Range, ...]] = {}
        self.losses = 0
        self.lost_from: dict[tuple[str, int], int] = {}
        self.reached: dict[tuple[str, int], int] = {}
        self._lost: list[tuple[tuple[str, int], int]] = []

    def lose(self, tp: tuple[str, int], end: int, before: int) -> None:
        """Forget the records of a partition from an offset on: its log has lost them, and will have others there."""
        self.reached[tp] = max(self.reached.get(tp, 0), before)
        self.lost_from[tp] = min(end, self.lost_from.get(tp, end))
        self.losses += 1
        self._lost.append((tp, end))
        self.batches = {batch: tuple(_cut(ranges, tp, end)) for batch, ranges in self.batches.items()}

    def readable(self, tasks: Iterable[ReadTask]) -> Iterable[Range]:
        """Yield what tasks would read now: what the logs have of it, and nothing of a topic that was created again.

        A task ends where the records of the epoch end with whose leader it was planned.
        """
        for task in tasks:
            for r in task.ranges:
                name, number = r.topic_partition
                known, topic = topic_id_of(task.topics.get(name)), self._cluster.topics[name]
                if known in (None, topic.id):
                    log = topic.partitions[number]
                    yield name, number, r.start, min(r.end, log.end if r.epoch < 0 else log.end_of(r.epoch))

    def write(self, query: str, number: int, ranges: tuple[Range, ...], *, since: int) -> None:
        """Keep what a batch has read that was planned after so many losses."""
        for tp, end in self._lost[since:]:
            ranges = tuple(_cut(ranges, tp, end))
        self.batches[query, number] = ranges

    def durable(self) -> dict[tuple[str, int], int]:
        """Return for each partition the offset before which everything was written, also by open transactions."""
        reached: dict[tuple[str, int], int] = {}
        for tp, found in self._ranges(visible=False).items():
            at = 0
            for start, end in sorted(found):
                if start > at:
                    break
                at = max(at, end)
            reached[tp] = at
        return reached

    def twice(self) -> list[Range]:
        """Return the ranges that were written more than once."""
        found = []
        for (topic, number), parts in self._ranges(visible=True).items():
            at = 0
            for start, end in sorted(parts):
                if start < at:
                    found.append((topic, number, start, min(at, end)))
                at = max(at, end)
        return found

    def out_of_order(self) -> list[Range]:
        """Return the ranges of records in Kafka that come after later ones of their partition."""
        found = []
        reached: dict[tuple[str, int], int] = {}
        for _, (topic, number, start, end) in self._records(visible=True):
            at = reached.get((topic, number), 0)
            if start < end and start < at:
                found.append((topic, number, start, end))
            reached[topic, number] = max(at, end)
        return found

    def batches_written_twice(self) -> list[str]:
        """Return the records in Kafka, each with its batch, that are visible more than once."""
        seen: set[str] = set()
        found = []
        for batch, part in self._records(visible=True):
            name = f"{batch}: {part}"
            if name in seen:
                found.append(name)
            seen.add(name)
        return found

    def open_batches(self) -> int:
        """Return how many record batches in Kafka belong to open transactions."""
        return sum(len(one.log.open()) for one in self._in_kafka)

    @property
    def _in_kafka(self) -> list[Partition]:
        topic = self._cluster.topics.get(OUTPUT)
        return [] if topic is None else topic.partitions

    def _records(self, *, visible: bool) -> Iterable[tuple[str, Range]]:
        """Yield the records in Kafka in the order of their logs: batch and range."""
        for appended in (appended for partition in self._in_kafka for appended in partition.log.batches):
            if appended.state == COMMITTED or not (visible or appended.state == ABORTED):
                for value in appended.values:
                    batch, *part = json.loads(value)
                    yield batch, tuple(part)

    def _ranges(self, *, visible: bool) -> dict[tuple[str, int], list[tuple[int, int]]]:
        ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
        batches = self.batches if visible else {**self.in_flight, **self.batches}
        written = (one for batch in batches.values() for one in batch)
        records = (one for _, one in self._records(visible=visible))
        for topic, number, start, end in (*written, *records):
            if start < end:
                ranges.setdefault((topic, number), []).append((start, end))
        return ranges


def _cut(ranges: Iterable[Range], tp: tuple[str, int], end: int) -> Iterable[Range]:
    for topic, number, start, stop in ranges:
        if (topic, number) != tp:
            yield topic, number, start, stop
        elif start < end:
            yield topic, number, start, min(stop, end)


@dataclass(frozen=True)
class Load:
    """How long a query's micro-batches take, in seconds: mostly short, a part of them long.

    Attributes:
        pause: The longest pause after a batch of a sink of ours.
    """

    short: float = 0.3
    long: float = 8.0
    share_of_long: float = 0.1
    pause: float = 2.0


class Query:
    """A streaming query, with a driver that is restarted when it has died.

    Attributes:
        process: The driver of now; None: it does not run.
        jobs: What the driver of now runs in other processes.
        watch: Looks at the batches.
        armed: What happens to the next attempts of its tasks; see `Jobs`.
        errors: The errors with which drivers have ended.
    """

    def __init__(
        self,
        world: World,
        name: str,
        options: Mapping[str, str],
        output: Output,
        load: Load,
        *,
        runs_tasks: bool,
        sink: Mapping[str, str] | None,
    ) -> None:
        self.world, self.name, self.options, self.output, self.load = world, name, dict(options), output, load
        self.runs_tasks, self.sink = runs_tasks, sink
        self.watch = JobsWatch()
        self.armed: list[Callable[[Process, int], bool]] = []
        self.jobs: Jobs | None = None
        self.checkpoint = Checkpoint()
        self.process: Process | None = None
        self.errors: list[KafkaGroupError] = []
        self.starts = self.stops = 0
        self.wanted = False
        self._restart: Event | None = None

    def start(self) -> None:
        """Start the driver, unless it runs."""
        self.wanted = True
        if self.process is not None and self.process.alive:
            return
        self.starts += 1
        self.process = self.world.process(f"{self.name}.{self.starts}")
        self.jobs = None
        if self.runs_tasks:
            self.jobs = Jobs(self.world, self.name, self.starts, self.sink, self.watch, self.armed)
        self.world.tell(self.name, "starts")
        self.process.start(self._main)

    def kill(self, pause: float) -> None:
        """Kill the driver, and start it again after a pause, if it is still wanted then."""
        if self.process is not None and self.process.alive:
            self.world.tell(self.name, "is killed")
            self._end(self.process, self.jobs)
        self._restart_after(pause)

    def replace(self, seconds: float) -> None:
        """Let the driver stand still, and start another one meanwhile, as a cluster manager does with a lost driver."""
        for process in (self.process, None if self.jobs is None else self.jobs.driver):
            if process is not None and process.alive and not process.frozen:
                process.freeze(seconds)
        self.process = None
        self.start()

    def _end(self, process: Process, jobs: Jobs | None) -> None:
        process.kill()
        if jobs is not None:
            jobs.kill()
            self.watch.ended(jobs.run)

    def _restart_after(self, pause: float) -> None:
        if self._restart is not None:
            self._restart.cancel()
        self._restart = self.world.after(pause, lambda: self.start() if self.wanted else None)

    def stop(self) -> None:
        """Stop the query for good, between two triggers, as `query.stop()` does."""
        self.wanted = False

    # ---- in the driver

    def _main(self) -> None:
        process, jobs = self.process, self.jobs
        assert process is not None
        planner = None
        try:
            schema = source_schema(headers=False) if jobs is None else SCHEMA
            read = ReadQuery.of(self.options, schema, Where.STREAM, None)
            planner = MicroBatches(read)
            self._run(planner, _Batch(self, process, jobs, read))
            planner.close()
            self.stops += 1
            self.world.tell(self.name, "has stopped")
            if self.wanted and process is self.process:
                # Somebody has started it again while it stopped.
                self._restart_after(3.0)
        except Died:
            return
        except (KafkaGroupError, Lost, Replaced) as error:
            self.world.tell(self.name, f"fails: {type(error).__name__}: {error}")
            if process is self.process:
                if isinstance(error, KafkaGroupError):
                    self.errors.append(error)
                self._restart_after(3.0)
            self._close(planner)
        except Exception:
            self.world.tell(self.name, f"BROKE: {traceback.format_exc()}")
        self._end(process, jobs)

    def _close(self, planner: MicroBatches | None) -> None:
        if planner is not None:
            try:
                planner.close()
            except KafkaGroupError as error:
                self.world.tell(self.name, f"closing fails: {error}")

    def _run(self, planner: MicroBatches, batch: _Batch) -> None:
        log = self.checkpoint
        if self.jobs is not None:
            self.watch.started(self.jobs.run, log.finished)
        start = StreamOffset()
        if log.in_flight:
            # The last run planned a batch and did not finish it: the same batch again.
            before = log.offsets[-2] if len(log.offsets) > 1 else None
            start = StreamOffset() if before is None else StreamOffset.from_json(before)
            end = StreamOffset.from_json(log.offsets[-1])
            batch.run(planner, start, end)
            start = end
        elif log.offsets:
            start = StreamOffset.from_json(log.offsets[-1])
        while self.wanted:
            end = planner.next(start, limited=True)
            if end is start:
                self.world.sleep(1.0)
                continue
            self.pause()
            batch.check_not_replaced()
            log.offsets.append(end.to_json())
            if len(log.offsets) > 1:
                planner.finished(start)
            batch.run(planner, start, end)
            start = end

    def work(self) -> None:
        """Let the cluster work for as long as a batch takes it."""
        long = self.world.random.random() < self.load.share_of_long
        self.world.sleep(self.world.random.uniform(0, self.load.long if long else self.load.short))

    def pause(self) -> None:
        """Let a fault happen between two steps."""
        self.world.sleep(self.world.random.uniform(0, 0.02))


class Replaced(Exception):
    """Another driver has written into the checkpoint, as Spark finds when it writes there itself."""


class _Batch:
    """How one driver of a query runs a batch."""

    def __init__(self, query: Query, process: Process, jobs: Jobs | None, read: ReadQuery) -> None:
        self._query, self._process, self._jobs, self._read = query, process, jobs, read

    def check_not_replaced(self) -> None:
        if self._query.process is not self._process:
            raise Replaced(f"{self._process}")

    def run(self, planner: MicroBatches, start: StreamOffset, end: StreamOffset) -> None:
        query, world, load = self._query, self._query.world, self._query.load
        number = len(query.checkpoint.offsets) - 1
        tasks = planner.tasks(start, end)
        ranges, losses = tuple(query.output.readable(one for task in tasks for one in task.tasks)), query.output.losses
        if self._jobs is not None:
            if query.sink is None:
                query.output.in_flight[query.name, number] = ranges
            self._jobs.batch(number, tasks, self._read)
        query.work()
        if query.sink is None:
            query.output.write(query.name, number, ranges, since=losses)
        query.pause()
        self.check_not_replaced()
        query.checkpoint.finished = len(query.checkpoint.offsets)
        if self._jobs is not None:
            query.watch.checkpointed(self._jobs.run)
            world.sleep(world.random.uniform(0, load.pause))
