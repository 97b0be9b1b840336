"""Spark, as the calls that it makes of a source: a query with its checkpoint, micro-batches, tasks, and restarts.

A query's driver is a process of the world. It makes the calls of Spark's MicroBatchExecution in Spark's order, and the
files of its checkpoint survive it. Tasks read ranges of the simulated logs, and the sink keeps what a batch has written
by the batch's number, so that a batch that is replayed replaces what it has written before, as Delta does.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_source.errors import KafkaGroupError
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query as ReadQuery
from tests.simulation.world import Died, Event, Process, World

Range = tuple[str, int, int, int]
"""A topic, a partition, the first offset, and the next offset after the last one."""


@dataclass
class Checkpoint:
    """The files of a query's checkpoint: the end of each planned batch, and how many batches are finished."""

    offsets: list[dict[str, Any]] = field(default_factory=list)
    finished: int = 0


@dataclass
class Output:
    """What the sinks of all queries have written: ranges by query and number of the batch."""

    batches: dict[tuple[str, int], tuple[Range, ...]] = field(default_factory=dict)

    def durable(self) -> dict[tuple[str, int], int]:
        """Return for each partition the offset before which everything was written."""
        ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for written in self.batches.values():
            for topic, number, start, end in written:
                ranges.setdefault((topic, number), []).append((start, end))
        reached: dict[tuple[str, int], int] = {}
        for tp, found in ranges.items():
            at = 0
            for start, end in sorted(found):
                if start > at:
                    break
                at = max(at, end)
            reached[tp] = at
        return reached

    def twice(self) -> list[tuple[str, int, int, int]]:
        """Return the ranges that were written more than once, as (topic, partition, start, end)."""
        ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for written in self.batches.values():
            for topic, number, start, end in written:
                if start < end:
                    ranges.setdefault((topic, number), []).append((start, end))
        found = []
        for (topic, number), parts in ranges.items():
            at = 0
            for start, end in sorted(parts):
                if start < at:
                    found.append((topic, number, start, min(at, end)))
                at = max(at, end)
        return found


@dataclass(frozen=True)
class Load:
    """How long a query's micro-batches take, in seconds: mostly short, a part of them long."""

    short: float = 0.3
    long: float = 8.0
    share_of_long: float = 0.1


class Query:
    """A streaming query, with a driver that is restarted when it has died.

    Attributes:
        process: The driver of now; None: it does not run.
        errors: The errors with which drivers have ended.
    """

    def __init__(self, world: World, name: str, options: Mapping[str, str], output: Output, load: Load) -> None:
        self.world, self.name, self.options, self.output, self.load = world, name, dict(options), output, load
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
        self.world.tell(self.name, "starts")
        self.process.start(self._main)

    def kill(self, pause: float) -> None:
        """Kill the driver, and start it again after a pause, if it is still wanted then."""
        if self.process is not None and self.process.alive:
            self.world.tell(self.name, "is killed")
            self.process.kill()
        self._restart_after(pause)

    def _restart_after(self, pause: float) -> None:
        if self._restart is not None:
            self._restart.cancel()
        self._restart = self.world.after(pause, lambda: self.start() if self.wanted else None)

    def stop(self) -> None:
        """Stop the query for good, between two triggers, as `query.stop()` does."""
        self.wanted = False

    # ---- in the driver

    def _main(self) -> None:
        process = self.process
        assert process is not None
        planner = None
        try:
            planner = MicroBatches(ReadQuery.of(self.options, source_schema(headers=False), Where.STREAM, None))
            self._run(planner)
            planner.close()
            self.stops += 1
            self.world.tell(self.name, "has stopped")
        except Died:
            return
        except KafkaGroupError as error:
            self.errors.append(error)
            self.world.tell(self.name, f"fails: {type(error).__name__}: {error}")
            self._close(planner)
            process.kill()
            self._restart_after(3.0)
            return
        except Exception:
            self.world.tell(self.name, f"BROKE: {traceback.format_exc()}")
            process.kill()
            return
        process.kill()

    def _close(self, planner: MicroBatches | None) -> None:
        if planner is not None:
            try:
                planner.close()
            except (KafkaGroupError, TimeoutError) as error:
                self.world.tell(self.name, f"closing fails: {error}")

    def _run(self, planner: MicroBatches) -> None:
        log = self.checkpoint
        start = StreamOffset()
        if len(log.offsets) > log.finished:
            # The last run planned a batch and did not finish it: the same batch again.
            before = log.offsets[-2] if len(log.offsets) > 1 else None
            start = StreamOffset() if before is None else StreamOffset.from_json(before)
            end = StreamOffset.from_json(log.offsets[-1])
            self._batch(planner, start, end)
            start = end
        elif log.offsets:
            start = StreamOffset.from_json(log.offsets[-1])
        while self.wanted:
            end = planner.next(start, limited=True)
            if end is start:
                self.world.sleep(1.0)
                continue
            self._pause()
            log.offsets.append(end.to_json())
            if len(log.offsets) > 1:
                planner.finished(start)
            self._batch(planner, start, end)
            start = end

    def _batch(self, planner: MicroBatches, start: StreamOffset, end: StreamOffset) -> None:
        tasks = planner.tasks(start, end)
        ranges = tuple(
            (r.topic_partition.topic, r.topic_partition.partition, r.start, r.end)
            for task in tasks
            for one in task.tasks
            for r in one.ranges
        )
        long = self.world.random.random() < self.load.share_of_long
        self.world.sleep(self.world.random.uniform(0, self.load.long if long else self.load.short))
        number = len(self.checkpoint.offsets) - 1
        self.output.batches[self.name, number] = ranges
        self._pause()
        self.checkpoint.finished = len(self.checkpoint.offsets)

    def _pause(self) -> None:
        """Let a fault happen between two steps."""
        self.world.sleep(self.world.random.uniform(0, 0.02))
