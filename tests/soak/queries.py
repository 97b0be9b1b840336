"""The three queries of the soak, each with a driver of its own, and the Java consumers that share groups with two."""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import list_open
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from testbed.processes import session_of
from tests.apps.process import App, java_consumer, spark_app
from tests.support.records import CommittedReader, written_rows
from tests.support.waiting import wait_until

PARTITIONS = 4
INPUT = "soak-in"
PREFIX = "soak"

# Each driver gets one of the three cores, and little more than the memory that Spark asks for, so that a leak shows.
CONF = {
    "spark.cores.max": 1,
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    # Faults come faster here than anywhere else.
    "spark.task.maxFailures": 20,
}

Place = tuple[int, int]
"""Partition and offset of a record of the input."""


@dataclass(eq=False)
class Query:
    """A query that is started again whenever it has ended.

    Attributes:
        name: The query's name: that of its folder, and part of its group's name.
        folder: For its files.
        master: Spark's master.
        kafka: The brokers.
        to_topic: The topic that it writes to; None: it writes files.
        exactly_once: Whether it commits by its sink.
        strategy: The assignor that all members of the group have in common.
        preferred: Assignors that it prefers, another one at each start; empty: none.
        lossy: Topics that it reads besides, which may lose records.
        conf: More of Spark's configuration.
    """

    name: str
    folder: Path
    master: str
    kafka: EmbeddedKafka
    to_topic: str | None
    exactly_once: bool = False
    strategy: str = "range"
    preferred: Sequence[str] = ()
    lossy: Sequence[str] = ()
    conf: Mapping[str, object] = field(default_factory=dict)
    app: App | None = None
    starts: int = 0
    ended_by_itself: list[str] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"soak-{self.name}"

    @property
    def running(self) -> bool:
        return self.app is not None and self.app.process.poll() is None

    def start(self) -> None:
        """Have it run, after an end of its own too."""
        if self.running:
            return
        if self.app is not None and not self._killed:
            failed = [line for line in self.app.lines() if line.startswith("failed")]
            self.ended_by_itself.append("; ".join(failed)[-600:] or self.app.log.read_text(errors="replace")[-600:])
            self.app.kill()
        self._killed = False
        options = [self._source(), *([self._sink()] if self.to_topic else [])]
        program = "copying_app" if self.to_topic else "streaming_app"
        self.app = spark_app(program, self.folder, self.master, *options, conf={**CONF, **self.conf})
        self.starts += 1

    _killed = False

    def kill(self) -> None:
        """Kill the driver and its Python processes; `start` starts it again."""
        if self.app is not None and self.running:
            self._killed = True
            self.app.kill()

    def stop(self) -> None:
        """Stop it as a user does; no process of it is left."""
        self.start()
        assert self.app is not None
        app, self._killed = self.app, True
        app.stop(120)
        wait_until(lambda: not session_of(app.process.pid), f"the end of all processes of {self.name}", 30)
        assert "stopped" in app.lines(), app.log.read_text(errors="replace")[-3000:]

    def pids(self) -> list[int]:
        """The process ids of the driver and its Python processes."""
        return self.app.family() if self.app is not None and self.running else []

    def committed(self) -> dict[int, int]:
        """The group's committed offsets, by partition."""
        found = Groups(Settings({"bootstrap.servers": self.kafka.internal_bootstrap_servers})).committed(self.group)
        return {tp.partition: offset for tp, offset in found.items() if tp.topic == INPUT}

    def written_places(self) -> set[Place]:
        """The places of the records of the input in its files, if it writes files."""
        rows = written_rows(self.folder / "out", "topic", "partition", "offset")
        return {(partition, offset) for topic, partition, offset in rows if topic == INPUT}

    def written_numbers(self, topic: str) -> set[int]:
        """The numbers of another topic in its files."""
        rows = written_rows(self.folder / "out", "topic", "value")
        return {int(value) for of, value in rows if of == topic}

    def _source(self) -> Mapping[str, object]:
        commits = {"commit": "sink"} if self.exactly_once else {}
        loses = {"failOnDataLoss": "false"} if self.lossy else {}
        first = [self.preferred[self.starts % len(self.preferred)]] if self.preferred else []
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "subscribe": ",".join([INPUT, *self.lossy]),
            "startingOffsets": "earliest",
            "kafka.group.id": self.group,
            "kafka.group.instance.id": f"{self.group}-app",
            "kafka.session.timeout.ms": 20_000,
            "kafka.partition.assignment.strategy": ",".join([*first, self.strategy]),
            "group.members": 2,
            "maxOffsetsPerTrigger": 2_000,
            **commits,
            **loses,
        }

    def _sink(self) -> Mapping[str, object]:
        sink = {"kafka.bootstrap.servers": self.kafka.bootstrap_servers, "topic": self.to_topic}
        if not self.exactly_once:
            return sink
        return {**sink, "transactional": "true", "transactional.id.prefix": PREFIX, "commit.group": self.group}


@dataclass(eq=False)
class JavaConsumer:
    """A Java consumer in a query's group, started again when it was killed."""

    query: Query
    folder: Path
    app: App | None = None
    places: set[Place] = field(default_factory=set)
    starts: int = 0

    def start(self) -> None:
        """Have it run."""
        if self.app is not None and self.app.process.poll() is None:
            return
        self.gather()
        servers, group = self.query.kafka.bootstrap_servers, self.query.group
        self.folder.mkdir(parents=True, exist_ok=True)
        self.app = java_consumer(self.folder, servers, group, INPUT, strategy=self.query.strategy)
        self.starts += 1

    def gather(self) -> None:
        """Note the places of all records that it has read."""
        if self.app is not None:
            words = (line.split() for line in self.app.lines() if line.startswith("record"))
            self.places.update((int(partition), int(offset)) for _, partition, offset, _ in words)
            self.app.seen.clear()

    def kill(self) -> None:
        if self.app is not None:
            self.app.kill()
            self.gather()

    def stop(self) -> None:
        """Have it leave the group."""
        if self.app is not None and self.app.process.poll() is None:
            self.app.stop()
            self.gather()


@dataclass(eq=False)
class Output:
    """What the exactly-once copy has written, as a reader of committed records sees it."""

    query: Query
    reader: CommittedReader
    compared: int = 0

    def finish_and_compare(self) -> None:
        """Finish what a killed driver had decided, as its next start would, and compare output and offsets."""
        settings = Settings({"bootstrap.servers": self.query.kafka.internal_bootstrap_servers})
        with closing(KafkaClient(settings)) as client:
            phases = TwoPhaseCommit(client, PREFIX)
            client.run(phases.begin(Deadline(120)))
            client.run(phases.abort_undecided(Deadline(120)))
            assert client.run(list_open(client, PREFIX, Deadline(60))) == []
        seen: dict[str, object] = {}

        def same() -> bool:
            with contextlib.suppress(KafkaGroupError):
                seen["committed"] = self.query.committed()
                seen["copied"] = Counter(partition for partition, *_ in list(self.reader.records))
                return seen["committed"] == seen["copied"]
            return False

        wait_until(same, f"the group's offsets to be what is in the output: {seen}", 120)
        self.compared += 1


@dataclass(eq=False)
class Shared:
    """A query that writes at least once, and the Java consumer that shares its group.

    Attributes:
        query: The query.
        java: The consumer.
        copies: A reader of the query's output topic; None if it writes files.
        place_of: The place of each value in the input.
    """

    query: Query
    java: JavaConsumer
    copies: CommittedReader | None
    place_of: Mapping[bytes, Place]
    compared: int = 0

    def durable(self) -> set[Place]:
        """The places of all records that are in the query's output, or that the consumer has printed."""
        self.java.gather()
        if self.copies is None:
            return self.query.written_places() | self.java.places
        return {self.place_of[value] for *_, value in list(self.copies.records)} | self.java.places

    def check_offsets(self) -> None:
        """No offset is committed before its records are durable (I5)."""
        committed = self.query.committed()
        expected = {(partition, number) for partition, offset in committed.items() for number in range(offset)}
        missing: set[Place] = set()

        def nothing_is_missing() -> bool:
            # The input's reader may not have seen yet what the output has.
            missing.clear()
            with contextlib.suppress(KeyError):
                missing.update(expected - self.durable())
                return not missing
            return False

        wait_until(nothing_is_missing, f"records below the committed offsets {committed}: {sorted(missing)[:5]}", 30)
        self.compared += 1


def wait_started(query: Query) -> None:
    """Wait until a query that was started for the first time has begun."""
    app = query.app
    assert app is not None
    wait_until(lambda: "started" in app.lines() or not query.running, f"the start of {query.name}", 120)
    assert "started" in app.lines(), app.log.read_text(errors="replace")[-3000:]
