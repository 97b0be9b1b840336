"""Spark's calls of a source: a query with its checkpoint, micro-batches, tasks, and restarts.

A query's driver is a process of the world. It makes the calls of Spark's MicroBatchExecution in Spark's order, and the
files of its checkpoint outlive the driver. A sink that is not ours keeps the records of a batch by the batch's number,
as Delta does, so a replayed batch replaces its previous output. With such a sink, tasks only run if they commit.
"""

from __future__ import annotations

import contextlib
import functools
import json
import traceback
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import DataLossError, KafkaGroupError, LostTransactionsError
from kafka_source.group.siblings import Siblings
from kafka_source.kafka_client import Deadline, KafkaClient, topic_id_of
from kafka_source.model.halt import HaltKind
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query as ReadQuery
from kafka_source.source.read_task import ReadTask
from tests.simulation.brokers.cluster import Cluster, Partition, Range
from tests.simulation.brokers.logs import ABORTED, COMMITTED
from tests.simulation.clients.jobs import OUTPUT, Jobs, JobsWatch, Lost
from tests.simulation.clients.rows import READ_SCHEMA
from tests.simulation.world import Died, Event, Process, World

_T = TypeVar("_T")

# The seconds after which a supervisor restarts a query that its listener has ended.
_STARTS_AGAIN = 3.0
# The limit of each step of the command that accepts a loss, as in `kafkagroup transactions`.
_STEP_SECONDS = 60.0


@dataclass
class Checkpoint:
    """The files of a query's checkpoint: the end of each planned batch, and the number of finished batches."""

    offsets: list[dict[str, Any]] = field(default_factory=list)
    finished: int = 0

    @property
    def newest(self) -> StreamOffset:
        """The end of the newest batch."""
        return StreamOffset.from_json(self.offsets[-1])

    @property
    def in_flight(self) -> bool:
        """Whether a batch is planned and not finished."""
        return len(self.offsets) > self.finished

    def planned_to(self, tp: tuple[str, int], topic_id: str) -> int:
        """Return the end of a batch that is planned and not finished; 0: no such batch of this topic."""
        if not self.in_flight or str(topic_id_of(self.newest.topics.get(tp[0]))) != topic_id:
            return 0
        return self.newest.ends.get(TopicPartition(*tp), 0)


class Output:
    """The output of all queries' sinks: batches by query and number, or records in Kafka.

    Attributes:
        cluster: The cluster that queries read and write.
        in_flight: The batches whose tasks commit their offsets when they have read them (`commit=task`).
        plans: The planned reads of all clients, with their times.
        rewound: The records to read again after a rewind, with the rewind's time and the number of plans before it.
        of_predecessor: By topic id and partition, the offset that a late commit without a topic has given to a topic
            that was created again. Clients may begin there.
        skipped: By topic id and partition, the offset of a rewind that was valid when the rewind began. Meanwhile the
            log has lost records before this offset, or another rewind has set a lower offset.
        unordered: The queries of which several tasks may read one partition.
        accepted: The transactional ids whose lost records count as written, as `--accept-loss` says.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.batches: dict[tuple[str, int], tuple[Range, ...]] = {}
        self.in_flight: dict[tuple[str, int], tuple[Range, ...]] = {}
        self.plans: list[tuple[float, Range]] = []
        self.rewound: list[tuple[Range, float, int]] = []
        self.of_predecessor: dict[tuple[str, int], int] = {}
        self.skipped: dict[tuple[str, int], int] = {}
        self.unordered: set[str] = set()
        self.accepted: set[str] = set()

    def plan(self, ranges: Iterable[Range]) -> None:
        """Record a plan."""
        self.plans += ((self.cluster.world.now, one) for one in ranges)

    def planned_at(self, part: Range) -> list[float]:
        """Return the times at which reads of a range were planned."""
        return [at for at, one in self.plans if one[:3] == part[:3] and one[3] < part[4] and part[3] < one[4]]

    def readable(self, tasks: Iterable[ReadTask]) -> Iterable[Range]:
        """Yield the records that tasks would read now."""
        for task in tasks:
            for r in task.ranges:
                topic_id = topic_id_of(task.topics.get(r.topic_partition.topic))
                yield from self.cluster.fetch(r.topic_partition, r.start, r.end, topic_id, r.epoch)

    def durable(self, *, lost: Container[str] = (), late: bool = False) -> dict[tuple[str, int], int]:
        """Return, by partition, the offset before which all records of its log were written, or skipped by a rewind.

        Records of open transactions count too, as do records of lost transactions with the transactional ids `lost`,
        and with `late` the records before an offset in `of_predecessor`.
        """
        begins = self.skipped | self.of_predecessor if late else self.skipped
        return self._covered((one for _, one in self._written(visible=False, lost=lost)), begins)

    def not_read_again(self) -> list[Range]:
        """Return the records for which no read was planned since the last rewind of their partition."""
        found = []
        newest = {one[:2]: when for one, when, _ in self.rewound}
        for one, when, since in self.rewound:
            if when < newest[one[:2]]:
                continue
            topic_id, number, epoch, at, end = one
            log = self.cluster.log_of(topic_id, number)
            at, end = (end, end) if log is None else (log.read.skip(at), log.of_epoch(epoch, at, end)[1])
            for start, stop in sorted(r[3:] for _, r in self.plans[since:] if r[:3] == one[:3]):
                at = max(at, stop) if start <= at else at
            if at < end:
                found.append((*one[:3], at, end))
        return found

    def _covered(self, ranges: Iterable[Range], begins: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        names = {str(topic.id): name for name, topic in self.cluster.topics.items()}
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for topic_id, number, epoch, start, end in ranges:
            if topic_id in names:
                tp = names[topic_id], number
                found.setdefault(tp, []).append(
                    self.cluster.topics[tp[0]].partitions[number].of_epoch(epoch, start, end)
                )
        reached = {}
        for name, topic in self.cluster.topics.items():
            for number, log in enumerate(topic.partitions):
                at = log.read.skip(begins.get((str(topic.id), number), 0))
                for start, end in sorted(found.get((name, number), ())):
                    if start <= at < end:
                        at = log.read.skip(end)
                reached[name, number] = at
        return reached

    def twice(self, *, of_one_batch: bool) -> list[Range]:
        """Return the records that were written more than once, except records that a rewind lets queries read again.

        Args:
            of_one_batch: Whether to count records that one batch has written more than once.
        """
        found = []
        written: dict[tuple[str, int, int], list[tuple[int, int, str]]] = {}
        for batch, (topic_id, number, epoch, start, end) in self._written(visible=True):
            written.setdefault((topic_id, number, epoch), []).append((start, end, batch))
        for log, parts in written.items():
            at, last = 0, ""
            for start, end, batch in sorted(parts):
                both = (*log, start, min(at, end))
                if start < at and (of_one_batch or batch != last) and not self._is_rewound(both):
                    found.append(both)
                at, last = max((at, last), (end, batch))
        return found

    def out_of_order(self) -> list[Range]:
        """Return the ranges of records in Kafka that follow later records of their partition, without a rewind.

        Tasks with parts of the same partition write simultaneously.
        """
        found = []
        reached: dict[tuple[str, int], tuple[int, int]] = {}
        for batch, one in self._records(visible=True):
            topic_id, number, epoch, start, end = one
            at = reached.get((topic_id, number), (-1, 0))
            again = topic_id, number, epoch, start, min(end, at[1]) if epoch == at[0] else end
            if (epoch, start) < at and not self._is_rewound(again) and batch.split()[0] not in self.unordered:
                found.append(one)
            reached[topic_id, number] = max(at, (epoch, end))
        return found

    def _is_rewound(self, part: Range) -> bool:
        return any(one[:3] == part[:3] and one[3] <= part[3] and part[4] <= one[4] for one, *_ in self.rewound)

    def batches_written_twice(self) -> list[str]:
        """Return the records in Kafka, each with its batch, that are visible more than once."""
        found: list[str] = []
        reached: dict[tuple[str, str, int, int], int] = {}
        for key, start, end in sorted(((batch, *part[:3]), *part[3:]) for batch, part in self._records(visible=True)):
            if start < reached.get(key, 0):
                found.append(f"{key} from {start}")
            reached[key] = max(end, reached.get(key, 0))
        return found

    def open_batches(self) -> int:
        """Return the number of record batches in Kafka that belong to open transactions."""
        return sum(len(one.log.open()) for one in self._in_kafka)

    @property
    def _in_kafka(self) -> list[Partition]:
        topic = self.cluster.topics.get(OUTPUT)
        return [] if topic is None else topic.partitions

    def _records(self, *, visible: bool, lost: Container[str] = ()) -> Iterable[tuple[str, Range]]:
        """Yield the records in Kafka, each with its batch and range, in the order of their logs.

        If a sink takes a committed transaction for lost and writes its records again, the first copies are not visible.
        """
        for appended in (appended for partition in self._in_kafka for appended in partition.log.batches):
            if appended.state == COMMITTED or not (
                visible or (appended.state == ABORTED and appended.transactional_id not in lost)
            ):
                for value in appended.values:
                    batch, topic_id, number, epoch, start, end = json.loads(value)
                    yield batch, (topic_id, number, epoch, start, end)

    def _written(self, *, visible: bool, lost: Container[str] = ()) -> Iterable[tuple[str, Range]]:
        for (query, number), ranges in (self.batches if visible else {**self.in_flight, **self.batches}).items():
            for one in ranges:
                yield f"{query} {number}", one
        yield from self._records(visible=visible, lost=lost)


@dataclass(frozen=True)
class Load:
    """The duration of a query's micro-batches, in seconds: most are short, some are long.

    Attributes:
        pause: The longest pause after a batch of a sink of ours.
        idle: The pause after a trigger with nothing new.
    """

    short: float = 0.3
    long: float = 8.0
    share_of_long: float = 0.1
    pause: float = 2.0
    idle: float = 1.0


class Query:
    """A streaming query, with a driver that is restarted when it has died.

    Attributes:
        process: The current driver; None: the query does not run.
        jobs: The work of the current driver in other processes.
        watch: Observes the batches.
        watch_plan: Observes the plan of a driver, with the time at which its trigger began.
        watch_begin: Observes the begin of a driver's run with `available_now`.
        watch_end: Observes the end of such a run: the driver, its position and its partitions.
        siblings: Returns the query's place among the reads of one group in one application; None: no other reads.
        armed: Functions that cause faults in the next attempts of its tasks; see `Jobs`.
        errors: The errors with which drivers have ended, with their times.
        ended_at: The times at which drivers have ended or were replaced.
        longest: The longest time of a trigger, which also commits the previous batch, and the longest time of a stop.
        is_later: Whether the next driver has a later version of the package.
        listens: Whether a `StopListener` ends the query when its group is stopped; a supervisor starts it again.
        available_now: Whether a run ends when it has read everything that was there when it began.
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
        self.watch_plan: Callable[[Process, StreamOffset, float], None] = lambda *_: None
        self.watch_begin: Callable[[Process], None] = lambda _: None
        self.watch_end: Callable[[Process, StreamOffset, Container[TopicPartition]], None] = lambda *_: None
        self.siblings: Callable[[Process], Siblings | None] = lambda _: None
        self.armed: list[Callable[[Process, int], bool]] = []
        self.jobs: Jobs | None = None
        self.checkpoint = Checkpoint()
        self.process: Process | None = None
        self.errors: list[tuple[float, KafkaGroupError]] = []
        # The ways in which each batch was divided into tasks. A replay may have other owners of partitions.
        self.divisions: dict[int, set[object]] = {}
        self.starts = self.stops = 0
        self.ended_at: list[float] = []
        self.longest: dict[str, float] = {}
        self.wanted = self.is_later = self.listens = self.available_now = False
        self._restart: Event | None = None
        self._closes: Process | None = None
        # The drivers that were suspended and replaced, which notice this in their next batch.
        self._replaced: list[tuple[Process, Jobs | None]] = []

    def start(self) -> None:
        """Start the driver unless it runs."""
        self.wanted = True
        if self.process is not None and self.process.alive:
            if self._closes is self.process:
                # The driver has failed, and is suspended while it closes.
                self._restart_after(3.0)
            return
        self.starts += 1
        self.process = self.world.process(f"{self.name}.{self.starts}")
        if self.is_later:
            self.world.later.add(self.process.name)
        self.jobs = None
        if self.runs_tasks:
            self.jobs = Jobs(self.world, self.output.cluster, self.name, self.starts, self.sink, self.watch, self.armed)
        self.world.tell(self.name, "starts")
        self.process.start(self._main)

    def kill(self, pause: float) -> None:
        """Kill the driver, and start it again after a pause, if the query is still wanted then."""
        if self.process is not None and self.process.alive:
            self.world.tell(self.name, "is killed")
            self._end(self.process, self.jobs)
        self._restart_after(pause)

    def replace(self, seconds: float) -> None:
        """Suspend the driver and start another driver, as a cluster manager does that has lost a driver."""
        for process in (self.process, None if self.jobs is None else self.jobs.driver):
            if process is not None and process.alive and not process.frozen:
                process.freeze(seconds)
        if self.process is not None:
            self._replaced.append((self.process, self.jobs))
        self.process = None
        self.ended_at.append(self.world.now)
        self.start()

    def _end(self, process: Process, jobs: Jobs | None) -> None:
        process.kill()
        self.ended_at.append(self.world.now)
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

    def change_version(self, how: float) -> None:
        """Continue with the other version of the package, after a kill or a stop."""
        self.is_later = not self.is_later
        if how < 0.5:
            self.kill(how * 10)
        else:
            self.stop()
            self.world.after(how * 5, self.start)

    # ---- in the driver

    def _main(self) -> None:
        process, jobs = self.process, self.jobs
        assert process is not None
        planner = None
        try:
            schema = source_schema(headers=False) if jobs is None else READ_SCHEMA
            read = ReadQuery.of(self.options, schema, Where.STREAM, None)
            planner = MicroBatches(read, self.siblings(process))
            if jobs is not None:
                self.watch.started(jobs.run, self.checkpoint.finished)
            while self._run(planner, _Batch(self, process, jobs, read)):
                # As in the stream reader: the group is stopped, and the query begins again when the group is resumed.
                planner.close()
                planner = MicroBatches(read, self.siblings(process))
            self._timed("stop", planner.close)
            self.stops += 1
            self.world.tell(self.name, "has stopped")
            if self.wanted and process is self.process:
                # The query was started again while it stopped, or its next run is due.
                self._restart_after(3.0)
        except Died:
            return
        except (KafkaGroupError, Lost, Replaced) as error:
            self.world.tell(self.name, f"fails: {type(error).__name__}: {error}")
            if process is self.process:
                if isinstance(error, KafkaGroupError):
                    self.errors.append((self.world.now, error))
                if isinstance(error, DataLossError):
                    # Apply the remedy that the error names.
                    self.options["failOnDataLoss"] = "false"
                if isinstance(error, KafkaGroupError) and error.code == ErrorCode.UNRELEASED_INSTANCE_ID:
                    # Apply the remedy: a replaced driver without new records keeps its instance ids.
                    for replaced, its_jobs in self._replaced:
                        if replaced.alive:
                            self._end(replaced, its_jobs)
                self._restart_after(3.0)
            self._closes = process
            self._close(planner)
            if isinstance(error, LostTransactionsError) and process is self.process and self._rows_are_gone(error):
                self._accept_loss(error)
        except Exception:
            self.world.tell(self.name, f"BROKE: {traceback.format_exc()}")
        self._end(process, jobs)

    def _rows_are_gone(self, error: LostTransactionsError) -> bool:
        """Return whether no replay can write the lost records of a decided batch again.

        Its topic was created again, or a replay has failed for the same reason, because the log has lost records or
        because other tasks had the records.
        """
        cluster, batch = self.output.cluster, self.checkpoint.newest
        has_lost_records = any(
            log.lost_from < span.end or log.read.start > span.start
            for log, span in ((cluster.log((tp.topic, tp.partition)), span) for tp, span in batch.partitions.items())
        )
        has_failed = sum(isinstance(one, LostTransactionsError) for _, one in self.errors) > 1
        is_recreated = any(topic_id_of(known) != cluster.topics[name].id for name, known in batch.topics.items())
        are_in_other_tasks = len(self.divisions.get(error.batch, ())) > 1
        return error.decided and (is_recreated or (has_failed and (has_lost_records or are_in_other_tasks)))

    def _accept_loss(self, error: LostTransactionsError) -> None:
        """Continue without lost transactions, as the error advises: `kafkagroup transactions commit --accept-loss`."""
        assert self.sink is not None
        settings = Settings({"bootstrap.servers": self.output.cluster.bootstrap_servers})
        try:
            with contextlib.closing(KafkaClient(settings)) as client:
                phases = TwoPhaseCommit(client, self.sink["transactional.id.prefix"])
                epoch = client.run(phases.begin(Deadline(_STEP_SECONDS), replays=True))
                client.run(phases.accept_loss(epoch, Deadline(_STEP_SECONDS)))
                client.run(phases.abort_undecided(Deadline(_STEP_SECONDS), epoch))
            self.output.accepted.update(error.transactional_ids)
            self.world.tell(self.name, "goes on without lost transactions")
        except KafkaGroupError as error:
            self.world.tell(self.name, f"cannot accept the loss: {error}")

    def _close(self, planner: MicroBatches | None) -> None:
        if planner is not None:
            try:
                planner.close()
            except KafkaGroupError as error:
                self.world.tell(self.name, f"closing fails: {error}")

    def _run(self, planner: MicroBatches, batch: _Batch) -> bool:
        """Run batches until the query is unwanted or its group is stopped; return whether the query stays alive."""
        log = self.checkpoint
        start = StreamOffset()
        if self.available_now:
            self.watch_begin(batch.process)
            # As Spark does, before a replay.
            planner.stop_at_latest()
        if log.in_flight:
            # The last run planned a batch and did not finish it, so run this batch again.
            before = log.offsets[-2] if len(log.offsets) > 1 else None
            start = StreamOffset() if before is None else StreamOffset.from_json(before)
            end = StreamOffset.from_json(log.offsets[-1])
            batch.run(planner, start, end)
            start = end
        elif log.offsets:
            start = StreamOffset.from_json(log.offsets[-1])
        while self.wanted:
            began = self.world.now
            end = self._timed("trigger", functools.partial(planner.next, start, limited=True))
            if end is start:
                if self.available_now:
                    self.watch_end(batch.process, start, planner.owned.slots)
                    return False
                if planner.has_stopped:
                    return True
                self.world.sleep(self.load.idle)
                continue
            self.watch_plan(batch.process, end, began)
            halt = planner.figures(with_latest=False).halt if self.listens else None
            self.pause()
            batch.check_not_replaced()
            log.offsets.append(end.to_json())
            batch.run(planner, start, end)
            start = end
            if halt is not None and halt.kind is HaltKind.STOP:
                self.world.tell(self.name, f"is ended by its listener: {halt}")
                self.stop()
                self.world.after(_STARTS_AGAIN, self.start)
        return False

    def _timed(self, what: str, call: Callable[[], _T]) -> _T:
        began = self.world.now
        try:
            return call()
        finally:
            self.longest[what] = max(self.longest.get(what, 0.0), self.world.now - began)

    def work(self) -> None:
        """Wait for the time that the cluster needs for a batch."""
        long = self.world.random.random() < self.load.share_of_long
        self.world.sleep(self.world.random.uniform(0, self.load.long if long else self.load.short))

    def pause(self) -> None:
        """Let a fault happen between two steps."""
        self.world.sleep(self.world.random.uniform(0, 0.02))


class Replaced(Exception):
    """Another driver has written into the checkpoint; a driver notices this when it writes there itself."""


class _Batch:
    """The run of a batch by one driver of a query."""

    def __init__(self, query: Query, process: Process, jobs: Jobs | None, read: ReadQuery) -> None:
        self._query, self.process, self._jobs, self._read = query, process, jobs, read

    def check_not_replaced(self) -> None:
        if self._query.process is not self.process:
            raise Replaced(f"{self.process}")

    def run(self, planner: MicroBatches, start: StreamOffset, end: StreamOffset) -> None:
        query, world, load = self._query, self._query.world, self._query.load
        number = len(query.checkpoint.offsets) - 1
        tasks = planner.tasks(start, end)
        ranges = tuple(query.output.readable(one for task in tasks for one in task.tasks))
        query.divisions.setdefault(number, set()).add(tuple(tuple(one.ranges for one in task.tasks) for task in tasks))
        query.output.plan(ranges)
        if self._jobs is not None:
            if query.sink is None:
                query.output.in_flight[query.name, number] = ranges
            self._jobs.batch(number, tasks, self._read)
        query.work()
        if query.sink is None:
            query.output.batches[query.name, number] = ranges
        query.pause()
        self.check_not_replaced()
        query.checkpoint.finished = len(query.checkpoint.offsets)
        if self._jobs is not None:
            query.watch.checkpointed(self._jobs.run)
            world.sleep(world.random.uniform(0, load.pause))
