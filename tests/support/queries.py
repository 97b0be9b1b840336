"""Queries without Spark: from Kafka to Kafka in a group, and streams in runs that end when nothing is new.

What Spark does between source and sink is done here step by step, so that a test can do something else in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kafka_source.client_config import Settings
from kafka_source.commits.handoff import BatchOfRun, publish
from kafka_source.commits.source_offsets import SourceOffsets, offsets_of_sources, renewed_offsets
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.sink.two_phase.committer import PreparedBatch, TwoPhaseCommit
from kafka_source.sink.two_phase.prepare import SinkTask, prepare
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query
from kafkagroup.embedded import EmbeddedKafka
from tests.support.two_phase import as_records

_runs = itertools.count(1)


def query_of(given: Mapping[str, object]) -> Query:
    """The query of a stream; its options may have _ for . in their names."""
    named = {key.replace("_", "."): str(value) for key, value in given.items()}
    return Query.of(named, source_schema(headers=False), Where.STREAM)


class Pipe:
    """One start of a query.

    Args:
        servers: Brokers.
        source: Topic.
        sink: Topic.
        group: Of the source.
        name: Of the query: its checkpoint, the prefix of its transactions.
        checkpoint: The offsets log of an earlier start.
        options: Of the source, besides.
    """

    def __init__(
        self,
        servers: str,
        source: str,
        sink: str,
        group: str,
        name: str,
        checkpoint: list[StreamOffset] | None = None,
        **options: object,
    ) -> None:
        given: dict[str, object] = {
            "kafka.bootstrap.servers": servers,
            "subscribe": source,
            "kafka.group.id": group,
            "group.members": "2",
            "startingOffsets": "earliest",
            "commit": "sink",
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        if given.get("kafka.group.protocol") != "consumer":
            given["kafka.heartbeat.interval.ms"] = "200"
        self.settings = Settings({"bootstrap.servers": servers})
        self.group, self.name, self.topic = group, name, sink
        self.run = f"run-{next(_runs)}"
        self.offsets = list(checkpoint or [StreamOffset()])
        self.reading = query_of(given)
        self.stream = MicroBatches(self.reading)
        self.read: list[int] = []
        self._phases = TwoPhaseCommit(cached_client(self.settings), name)

    def batch(self) -> int:
        """Plans a batch, and does all but deciding about it; its number, or -1 if there is nothing new."""
        end = self.stream.next(self.offsets[-1], limited=True)
        if end is self.offsets[-1]:
            return -1
        self.offsets.append(end)
        return self.replay()

    def replay(self) -> int:
        """The last batch that was planned, as Spark runs it after a restart."""
        start, end = (StreamOffset.from_json(offset.to_json()) for offset in self.offsets[-2:])
        number = len(self.offsets) - 2
        self.epoch = self._run(self._phases.begin(Deadline(60), replays=True))
        self.prepared, self.read = [], []
        for partition, bundle in enumerate(self.stream.tasks(start, end)):
            if bundle.handoffs:
                batch = BatchOfRun(self.name, self.run, number)
                self._run(publish(cached_client(self.settings), batch, bundle.handoffs, Deadline(60)))
            read = read_task.read_bundle(replace(bundle, handoffs=()), self.reading)
            values = [value.as_py() for records in read for value in records["value"]]
            self.read += map(int, values)
            records = as_records(values, self.topic)
            one = prepare(self.settings, SinkTask(self.name, self.name, number, partition), self.epoch, [records])
            self.prepared.append(one)
        if not self.prepared:
            # Spark runs a task of the sink without rows where the source has no input partition.
            task = SinkTask(self.name, self.name, number, 0)
            self.prepared.append(prepare(self.settings, task, self.epoch, []))
        return number

    def foreign_batch(self, values: list[bytes]) -> None:
        """A batch whose rows are all of another source of the query, as in a union; all but deciding about it."""
        self.offsets.append(self.offsets[-1])
        number = len(self.offsets) - 2
        self.epoch = self._run(self._phases.begin(Deadline(60)))
        task = SinkTask(self.name, self.name, number, 0)
        self.prepared, self.read = [prepare(self.settings, task, self.epoch, [as_records(values, self.topic)])], []

    def sources(self) -> SourceOffsets:
        """What the sink commits for the source."""
        batch = BatchOfRun(self.name, self.run, len(self.offsets) - 2)
        client, wrote = cached_client(self.settings), any(one.transaction is not None for one in self.prepared)
        decided = self.epoch.covers(self.name, batch.number)
        return self._run(offsets_of_sources(client, self.group, batch, Deadline(60), wrote=wrote, decided=decided))

    def decide(self) -> None:
        """What Spark calls in the driver after the tasks."""
        number = len(self.offsets) - 2
        transactions = {one.transaction: one.partitions for one in self.prepared if one.transaction is not None}
        batch = PreparedBatch(self.name, number, transactions, self.sources())
        of_run, deadline = BatchOfRun(self.name, self.run, number), Deadline(60)
        renew = partial(renewed_offsets, cached_client(self.settings), self.group, of_run, deadline)
        self._run(self._phases.commit(self.epoch, batch, deadline, renew))

    def whole_batch(self) -> int:
        """Plan, read, write, decide."""
        number = self.batch()
        if number >= 0:
            self.decide()
        return number

    def abort(self) -> None:
        """What Spark calls in the driver when a batch failed."""
        self._run(self._phases.abort_undecided(Deadline(60)))

    def restarted(self, **options: object) -> Pipe:
        """The query after a restart from its checkpoint."""
        servers = self.settings["bootstrap.servers"]
        options.setdefault("kafka.group.protocol", self.reading.options.group_protocol)
        (source,) = self.reading.options.subscribe or ()
        return Pipe(servers, source, self.topic, self.group, self.name, self.offsets, **options)

    def close(self) -> None:
        """The end of the driver."""
        self.stream.close()

    def _run(self, work):
        return cached_client(self.settings).run(work)


class Job:
    """A query with its checkpoint.

    Args:
        kafka: The broker.
        group: The group.
        options: Of the source, with _ for . in their names.
    """

    def __init__(self, kafka: EmbeddedKafka, group: str, **options: object) -> None:
        self.given: dict[str, object] = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.group.id": group,
            "startingOffsets": "earliest",
            "kafka.heartbeat.interval.ms": "200",
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        self.offsets = [StreamOffset()]

    def planner(self, **options: object) -> MicroBatches:
        """One start of the query, which the test drives itself."""
        return MicroBatches(self.query(options))

    def run(self, **options: object) -> list[int]:
        """Start the query, read until nothing is new, and stop; return the values."""
        planner, found = self.planner(**options), []
        try:
            while (end := planner.next(self.offsets[-1], limited=True)) is not self.offsets[-1]:
                self.offsets.append(StreamOffset.from_json(end.to_json()))
                found += self.read(planner, *self.offsets[-2:])
        finally:
            planner.close()
        return found

    def read(self, planner: MicroBatches, start: StreamOffset, end: StreamOffset) -> list[int]:
        """What the tasks of a batch read; with `commit=task` they commit."""
        bundles = planner.tasks(start, end)
        batches = [batch for one in bundles for batch in read_task.read_bundle(one, self.query({}))]
        return sorted(int(value.as_py()) for batch in batches for value in batch["value"])

    def query(self, options: dict[str, object]) -> Query:
        """The query of one start."""
        return query_of({**self.given, **options})
