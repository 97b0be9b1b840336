"""A stream in runs that end when there is nothing new, as with Trigger.AvailableNow, without Spark."""

from __future__ import annotations

from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query
from kafkagroup.embedded import EmbeddedKafka


class Job:
    """A query with its checkpoint.

    Args:
        kafka: The broker.
        group: The group.
        options: Of the source, with _ for . in their names.
    """

    def __init__(self, kafka: EmbeddedKafka, group: str, **options: object) -> None:
        named = {key.replace("_", "."): str(value) for key, value in options.items()}
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        self.given = {
            **servers,
            "kafka.group.id": group,
            "startingOffsets": "earliest",
            "kafka.heartbeat.interval.ms": "200",
            **named,
        }
        self.offsets = [StreamOffset()]

    def planner(self, **options: object) -> MicroBatches:
        """One start of the query, which the test drives itself."""
        return MicroBatches(self._query(options))

    def run(self, **options: object) -> list[int]:
        """Start the query, read until nothing is new, and stop; return the values."""
        planner, found = self.planner(**options), []
        try:
            while (end := planner.next(self.offsets[-1], limited=True)) is not self.offsets[-1]:
                self.offsets.append(StreamOffset.from_json(end.to_json()))
                found += self.read(planner, *self.offsets[-2:])
                planner.finished(self.offsets[-1])
        finally:
            planner.close()
        return found

    def read(self, planner: MicroBatches, start: StreamOffset, end: StreamOffset) -> list[int]:
        """What the tasks of a batch read; with `commit=task` they commit."""
        bundles = planner.tasks(start, end)
        batches = [batch for one in bundles for batch in read_task.read_bundle(one, self._query({}))]
        return sorted(int(value.as_py()) for batch in batches for value in batch["value"])

    def _query(self, options: dict[str, object]) -> Query:
        named = {key.replace("_", "."): str(value) for key, value in options.items()}
        return Query.of({**self.given, **named}, source_schema(headers=False), Where.STREAM)
