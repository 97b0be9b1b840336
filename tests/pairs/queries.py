"""Queries as Spark drives them, without Spark: streams with a checkpoint, batches, pinned reads."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition

from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.pinned_read import exact_options, pinned_ranges
from kafka_source.schema import source_schema
from kafka_source.source import read_task
from kafka_source.source.batch import BatchReader
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query
from tests.pairs.draws import ROWS_PER_TRIGGER, Draw, Moment
from tests.pairs.model import JSON_START, TIMESTAMP, reads_all_again
from tests.support.queries import Pipe

Note = Callable[[str, Any], object]
"""`Checkpoint.note`, or what sends there."""

SLOTS = 2
_SCHEMA = source_schema(headers=False)


@dataclass(frozen=True)
class Names:
    """What the draw's things are called on the broker. It can be sent to another process."""

    servers: str
    prefix: str

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    @property
    def group(self) -> str:
        return f"{self.prefix}-group"

    @property
    def sink(self) -> str:
        return self.topic("sink")


def options_of(draw: Draw, names: Names, query: str) -> dict[str, str]:
    """The options of a query of the draw."""
    t, u = names.topic("t"), names.topic("u")
    given: dict[str, Any] = {
        "kafka.bootstrap.servers": names.servers,
        "failOnDataLoss": draw.fail_on_data_loss,
        "kafka.heartbeat.interval.ms": 200,
        "kafka.metadata.max.age.ms": 300,
        # No leader of these brokers is away for seconds.
        "data.loss.patience.ms": 1_000,
    }
    if draw.is_stream:
        given["min.records.per.task"] = 1
    if draw.kind != "pinned" or draw.commit != "batch":
        given["commit"] = draw.commit
    if draw.membership == "assign":
        given["assign"] = json.dumps({t: [0, 1], u: [0]})
    else:
        given["subscribe"] = f"{t},{u}"
    if draw.membership != "none":
        given["kafka.group.id"] = names.group
        given["kafka.session.timeout.ms"] = 4_000 if _ends_sessions(draw) else 20_000
    if draw.commit == "task" and not draw.is_stream:
        # So long the slots of a read wait for its tasks.
        given["kafka.max.poll.interval.ms"] = 4_000
    if draw.is_member:
        given |= {
            "rebalance.batch.ms": 50,
            "group.members": SLOTS,
            "kafka.partition.assignment.strategy": draw.strategy,
        }
    if draw.membership == "static":
        given["kafka.group.instance.id"] = f"{names.prefix}-{query}"
    if draw.start == "json":
        by_topic: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in JSON_START.items():
            by_topic.setdefault(names.topic(topic), {})[str(partition)] = offset
        given["startingOffsets"] = json.dumps(by_topic)
    elif draw.start == "timestamp":
        given["startingTimestamp"] = TIMESTAMP
    else:
        given["startingOffsets"] = draw.start
    if draw.limited and draw.is_stream:
        given["maxOffsetsPerTrigger"] = ROWS_PER_TRIGGER
        if draw.kind == "available-now":
            # It orders micro-batches, and changes nothing of what is read.
            given["maxTimestampSkew"] = "1ms"
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def _ends_sessions(draw: Draw) -> bool:
    """Whether the members of a query that has ended must leave the group soon."""
    if draw.commit == "task" and not draw.is_stream:
        return True
    return draw.event == "kill" or (
        draw.membership == "static" and draw.event in ("rewind", "beyond the end", "rebalance")
    )


@dataclass
class Checkpoint:
    """What Spark keeps of a query, and what its sink has.

    Attributes:
        offsets: The offset log, in JSON; batch n is from offsets[n] to offsets[n + 1].
        rows: What the sink has of each batch; a batch that is written again replaces it.
        durable: The number of batches in the commit log.
    """

    offsets: list[dict[str, Any]] = field(default_factory=lambda: [StreamOffset().to_json()])
    rows: dict[int, list[int]] = field(default_factory=dict)
    durable: int = 0

    def note(self, what: str, value: Any) -> None:
        """Change it; the driver calls nothing else, so that a driver in another process can send its calls here."""
        if what == "planned":
            self.offsets.append(value)
        elif what == "written":
            number, rows = value
            self.rows[number] = rows
        elif what == "durable":
            self.durable = value

    @property
    def in_flight(self) -> bool:
        """Whether the last batch is not in the commit log."""
        return len(self.offsets) - 1 > self.durable

    def put_back(self) -> bool:
        """Make it that of the first batch, with its output; False if there are no later ones."""
        if len(self.offsets) < 3:
            return False
        del self.offsets[2:]
        self.rows = {number: rows for number, rows in self.rows.items() if number == 0}
        self.durable = 1
        return True

    def counts(self) -> Counter[int]:
        """How often each record is in the output."""
        return Counter(value for rows in self.rows.values() for value in rows)


class Running(ABC):
    """A query that a draw is played with.

    Args:
        draw: The draw.
        names: Of topics and group.
        query: Tells several queries of a draw apart.
        note: `Checkpoint.note`, or what sends there.
    """

    # Errors that have their reason in how the query is driven.
    may_fail: frozenset[str] = frozenset()
    # How long it may take to read what is there.
    seconds = 150.0

    def __init__(self, draw: Draw, names: Names, query: str = "a", note: Note | None = None) -> None:
        self.draw, self.names = draw, names
        self.checkpoint = Checkpoint()
        self._note = note or (lambda what, value: None)
        self.options = options_of(draw, names, query)
        self.prefix = f"{names.prefix}-{query}"

    @property
    @abstractmethod
    def ended(self) -> bool: ...
    @abstractmethod
    def start(self) -> None: ...
    @abstractmethod
    def go_to(self, moment: Moment) -> None:
        """Start if it has ended, and go on to this moment of the next read, if there is one."""

    @abstractmethod
    def finish(self) -> None:
        """Do the rest of the read that is under way."""

    @abstractmethod
    def poll(self) -> bool:
        """One trigger, or with AvailableNow and batches one run; return whether it has read anything."""

    @abstractmethod
    def stop(self) -> None: ...

    def counts(self) -> Counter[int]:
        """How often each record is in the output."""
        return self.checkpoint.counts()

    def leave_out(self, name: str) -> None:
        """Read only the other topic from now on, with `failOnDataLoss=false` and `strict=false`."""
        options, topic = self.options, self.names.topic(name)
        if "assign" in options:
            options["assign"] = _without(options["assign"], topic)
        else:
            options["subscribe"] = ",".join(t for t in options["subscribe"].split(",") if t != topic)
        if options.get("startingOffsets", "").startswith("{"):
            options["startingOffsets"] = _without(options["startingOffsets"], topic)
        options |= {"failOnDataLoss": "false", "strict": "false"}

    def name_partition(self, name: str, partition: int) -> None:
        """Let the JSON of `startingOffsets` name a partition that was added."""
        starts = json.loads(self.options["startingOffsets"])
        starts[self.names.topic(name)][str(partition)] = -2
        self.options["startingOffsets"] = json.dumps(starts)

    def _did(self, what: str, value: Any) -> None:
        self.checkpoint.note(what, value)
        self._note(what, value)


def _without(text: str, topic: str) -> str:
    return json.dumps({name: value for name, value in json.loads(text).items() if name != topic})


class Stream(Running):
    """A stream: what its driver does, step by step."""

    planner: MicroBatches | None = None
    _pipe: Pipe | None = None
    _query: Query | None = None
    _stage: Moment = "idle"
    _rows: list[int]

    @property
    def ended(self) -> bool:
        return self.planner is None

    # ---- what Spark does, in its order

    def start(self) -> None:
        """Start the query: run the last batch of the offset log again if the commit log does not have it."""
        if self.draw.commit == "sink":
            offsets = [StreamOffset.from_json(one) for one in self.checkpoint.offsets]
            self._pipe = _pipe(self, offsets)
            self.planner, self._query = self._pipe.stream, self._pipe.reading
        else:
            self._query = Query.of(self.options, _SCHEMA, Where.STREAM)
            self.planner = MicroBatches(self._query)
        if self.draw.commit in ("task", "sink"):
            self.planner.join()
        if self.draw.kind == "available-now":
            self.planner.stop_at_latest()
        if self.checkpoint.in_flight:
            self._stage = "planned"
            self.finish()

    def plan(self) -> bool:
        """Plan a batch; return whether there is one."""
        assert self.planner is not None
        before = self.checkpoint.offsets[-1]
        start = StreamOffset.from_json(before)
        end = self.planner.next(start, limited=True)
        if end is start:
            return False
        self._did("planned", end.to_json())
        if self._pipe is not None:
            self._pipe.offsets.append(StreamOffset.from_json(end.to_json()))
        self._stage = "planned"
        return True

    def read(self) -> None:
        """Run the tasks of the batch."""
        assert self.planner is not None
        if self._pipe is not None:
            self._pipe.replay()
            self._rows = self._pipe.read
        else:
            assert self._query is not None
            start, end = (StreamOffset.from_json(one) for one in self.checkpoint.offsets[-2:])
            bundles = self.planner.tasks(start, end)
            batches = [batch for one in bundles for batch in read_task.read_bundle(one, self._query)]
            self._rows = [int(value.as_py()) for batch in batches for value in batch["value"]]
        self._stage = "read"

    def write(self) -> None:
        """Let the sink commit the batch."""
        if self._pipe is not None:
            self._pipe.decide()
        self._did("written", (len(self.checkpoint.offsets) - 2, list(self._rows)))
        self._stage = "written"

    def commit(self) -> None:
        """Write the batch to the commit log."""
        self._did("durable", len(self.checkpoint.offsets) - 1)
        self._stage = "durable"

    def stop(self) -> None:
        """Stop the query; Spark has the sink abort the batch that is under way."""
        if self._pipe is not None and self._stage == "read":
            self._pipe.abort()
        if self.planner is not None:
            self.planner.close()
        self.planner = self._pipe = None
        self._stage = "idle"

    # ---- several steps

    def finish(self) -> None:
        """Do the rest of the batch that is under way."""
        if self._stage == "planned":
            self.read()
        if self._stage == "read":
            self.write()
        if self._stage == "written":
            self.commit()

    def go_to(self, moment: Moment) -> None:
        """Start if it has ended, and go on to this moment of the next batch, if there is one."""
        if self.ended:
            self.start()
        if moment == "idle" or not self.plan():
            return
        for stage, step in (("read", self.read), ("written", self.write), ("durable", self.commit)):
            if self._stage == moment:
                return
            assert stage
            step()

    def poll(self) -> bool:
        """One trigger, or with AvailableNow one run; return whether it has read anything."""
        if self.draw.kind == "stream":
            if self.ended:
                self.start()
            self.finish()
            has_read = self.plan()
            self.finish()
            return has_read
        if self.ended:
            self.start()
        self.finish()
        has_read = False
        while self.plan():
            self.finish()
            has_read = True
        self.stop()
        return has_read


def _pipe(stream: Stream, offsets: list[StreamOffset]) -> Pipe:
    given = dict(stream.options)
    subscribed = given.pop("subscribe")
    names = stream.names
    return Pipe(names.servers, subscribed, names.sink, names.group, stream.prefix, offsets, **given)


class BatchQuery(Running):
    """Batch reads one after the other, each of a plan and its tasks; or pinned reads, each of a block.

    The rows of a read that did not end are in no output: its job has failed.
    """

    _block: ExitStack | None = None

    @property
    def ended(self) -> bool:
        return self._block is None

    @abstractmethod
    def _read(self, *, whole: bool) -> list[int]:
        """Run the tasks that are left, or half of them; return the rows so far."""

    def finish(self) -> None:
        """Run the other tasks; then the block ends, and the rows are written."""
        if self._block is None:
            return
        rows = self._read(whole=True)
        self._block.close()
        self._block = None
        number = 0 if reads_all_again(self.draw) else len(self.checkpoint.rows)
        self._did("written", (number, rows))
        self._did("durable", number)

    def go_to(self, moment: Moment) -> None:
        if moment == "idle":
            return
        self.start()
        if moment == "read":
            self._read(whole=False)
        elif moment != "planned":
            self.finish()

    def poll(self) -> bool:
        before = self.counts()
        if self.ended:
            self.start()
        self.finish()
        return bool(self.counts() - before)

    def stop(self) -> None:
        """Let the job fail that is under way."""
        if self._block is not None:
            block, self._block = self._block, None
            with suppress(JobFailed), block:
                raise JobFailed


class JobFailed(Exception):
    """What ends the job of a batch read."""


class Batches(BatchQuery):
    """Batch reads without Spark."""

    _reader: BatchReader | None = None
    # Of a read that was planned.
    _tasks: list[InputPartition]
    _rows: list[int]

    def start(self) -> None:
        """Plan a read."""
        with ExitStack() as stack:
            options = self.options
            if self.draw.kind == "pinned":
                ranges = stack.enter_context(pinned_ranges(options))
                options = exact_options(options, ranges) if ranges else {}
            self._rows = []
            self._reader = BatchReader(options, _SCHEMA) if options else None
            self._tasks = [] if self._reader is None else list(self._reader.partitions())
            self._block = stack.pop_all()

    def _read(self, *, whole: bool) -> list[int]:
        count = len(self._tasks) if whole else (len(self._tasks) + 1) // 2
        for task in self._tasks[:count]:
            assert self._reader is not None
            batches = list(self._reader.read(task))
            self._rows += [int(value.as_py()) for batch in batches for value in batch["value"]]
        del self._tasks[:count]
        return self._rows


def open_query(draw: Draw, names: Names, query: str = "a", note: Note | None = None) -> Running:
    """The query of a draw."""
    return Stream(draw, names, query, note) if draw.is_stream else Batches(draw, names, query, note)


def check_options(draw: Draw, names: Names) -> None:
    """Raise the OptionError with which the query of a draw is refused."""
    options = options_of(draw, names, "a")
    if draw.kind == "pinned":
        with pinned_ranges(options):
            pass
    else:
        Query.of(options, _SCHEMA, Where.STREAM if draw.is_stream else Where.BATCH)
