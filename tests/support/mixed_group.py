"""A group of applications of ours, without Spark, and Java consumers that read a topic while the group is watched."""

import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from assignors import TopicPartition
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.model import GroupAssignment
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import java_consumer

# librdkafka's request for a coordinator that creates the offsets topic at that moment has been seen to take a minute.
_DESCRIBE_SECONDS = 10
_NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
)

Shares = Mapping[str, frozenset[int]]
"""The partitions of each member, by member id."""


class Worker:
    """Something that goes on in a thread until it is closed; what went wrong there is raised then."""

    def __init__(self) -> None:
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._run)

    def _run(self) -> None:
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        """Whether it was told to end."""
        return self._closing.is_set()

    @property
    def ended(self) -> bool:
        """Whether it has ended, by itself or because it was told to."""
        return self._running.done()

    def check(self) -> None:
        """Raises what went wrong so far."""
        if self._running.done():
            self._running.result()

    def close(self) -> None:
        """May be called twice."""
        self._closing.set()
        try:
            self._running.result(60)
        finally:
            self._pool.shutdown()


class Trickle(Worker):
    """Writes the numbers 0, 1, 2, ... to a topic, about one a millisecond."""

    def __init__(self, servers: str, topic: str) -> None:
        # Idempotent, so that a record is there once also if a broker is lost.
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
        self._topic = topic
        self.count = 0
        self.places: dict[int, tuple[int, int]] = {}
        """The partition and the offset of each number that the broker has."""
        super().__init__()

    def _run(self) -> None:
        while not self._closing.wait(0.02):
            for number in range(self.count, self.count + 20):
                text = str(number)
                self._producer.produce(self._topic, key=text, value=text, on_delivery=self._note)
            self._producer.poll(0)
            self.count += 20
        assert self._producer.flush(60) == 0
        assert len(self.places) == self.count

    def _note(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.places[int(message.value() or b"")] = (message.partition() or 0, message.offset() or 0)


class Application(Worker):
    """Reads what a membership's slots own in small batches; commits, and only then rejoins if it is time."""

    def __init__(self, name: str, membership: ClassicMembership, servers: str) -> None:
        self.name = name
        self.membership = membership
        self.values: list[int] = []
        self.assignments: list[GroupAssignment] = []
        self._servers = servers
        super().__init__()

    def shares(self) -> list[frozenset[int]]:
        """What each slot has got last; none before it has joined."""
        return [frozenset(tp.partition for tp in slot.partitions) for a in self.assignments[-1:] for slot in a.slots]

    def generation(self) -> int:
        """Of what it has got last; 0 before it has joined."""
        return self.assignments[-1].generation if self.assignments else 0

    def _run(self) -> None:
        with contextlib.closing(self.membership):
            assignment = self.membership.join(60)
            while self._read(assignment):
                assignment = self.membership.rejoin(60)

    def _read(self, assignment: GroupAssignment) -> bool:
        """Read and commit until a rebalance is due, and return true; false: it is told to end.

        With a consumer of its own for each assignment: librdkafka has been seen to stop for a minute after it was
        assigned partitions again and again.
        """
        self.assignments.append(assignment)
        slots = {tp: slot.credentials.slot for slot in assignment.slots for tp in slot.partitions}
        committed = self.membership.committed_entries(slots)
        config = {"bootstrap.servers": self._servers, "group.id": "none", "enable.auto.commit": False}
        with contextlib.closing(Consumer(config)) as consumer:
            consumer.assign([Position(*tp, committed[tp].offset if tp in committed else 0) for tp in slots])
            while not self._closing.is_set():
                if self.membership.rebalance_needed():
                    return True
                ends: dict[int, dict[TopicPartition, int]] = {}
                for message in consumer.consume(200, 0.02):
                    assert message.error() is None, message.error()
                    tp = TopicPartition(message.topic() or "", message.partition() or 0)
                    self.values.append(int(message.value() or b""))
                    ends.setdefault(slots[tp], {})[tp] = (message.offset() or 0) + 1
                self.membership.commit(ends)
        return False


class JavaMember:
    """A consumer of the Java client."""

    def __init__(
        self, name: str, folder: Path, servers: str, group: str, topic: str, strategy: str, instance: str | None = None
    ) -> None:
        self.name = name
        self._app = java_consumer(folder, servers, group, topic, strategy=strategy, instance=instance)
        self.closed = False

    @property
    def values(self) -> list[int]:
        """What it has read."""
        return [int(line.split()[-1]) for line in self._app.lines() if line.startswith("record")]

    def moves(self) -> list[tuple[str, frozenset[int]]]:
        """What it has said of partitions: `assigned` with all that it has, `revoked` or `lost` with what it gave up."""
        said = [line.partition(" ") for line in self._app.lines()]
        return [
            (word, frozenset(int(name.rpartition("-")[2]) for name in names.split(",") if name))
            for word, _, names in said
            if word in ("assigned", "revoked", "lost")
        ]

    def shares(self) -> list[frozenset[int]]:
        """What it said last that it has; none before it has joined."""
        return [partitions for word, partitions in self.moves() if word == "assigned"][-1:]

    def generation(self) -> int:
        """Of what it said last; 0 before it has joined."""
        said = [line for line in self._app.lines() if line.startswith("generation")]
        return int(said[-1].split()[1]) if said else 0

    def check(self) -> None:
        """Raises if it has ended by itself."""
        assert self.closed or self._app.process.poll() is None, self._app.lines()[-5:]

    def close(self) -> None:
        """Makes it leave cleanly. May be called twice."""
        if not self.closed:
            self.closed = True
            self._app.stop()
            assert self._app.process.returncode == 0, self._app.log.read_text()[-3000:]


@dataclass(frozen=True, slots=True)
class Seen:
    """A group as its coordinator described it; `shares` only while it is Stable."""

    state: ConsumerGroupState
    strategy: str
    shares: Shares

    @property
    def stable(self) -> bool:
        return self.state is ConsumerGroupState.STABLE

    def given(self) -> list[int]:
        """All assigned partitions, one that has two owners twice."""
        return sorted(number for share in self.shares.values() for number in share)


class Watch(Worker):
    """Asks the coordinator about a group all the time, and keeps what it saw."""

    def __init__(self, kafka: EmbeddedKafka, group: str) -> None:
        self._admin, self._group = kafka.admin(), group
        self.seen: list[Seen] = []
        super().__init__()

    def _run(self) -> None:
        while not self._closing.wait(0.02):
            found = self._look()
            if found is not None and (not self.seen or self.seen[-1] != found):
                self.seen.append(found)

    def _look(self) -> Seen | None:
        try:
            asked = self._admin.describe_consumer_groups([self._group], request_timeout=_DESCRIBE_SECONDS)
            described = asked[self._group].result(timeout=60)
        except KafkaException as error:
            # The first group of a broker has its coordinator load, or even create, the offsets topic.
            assert error.args[0].retriable() or error.args[0].code() in _NOT_YET, error
            return None
        shares = {m.member_id: frozenset(p.partition for p in m.assignment.topic_partitions) for m in described.members}
        return Seen(described.state, described.partition_assignor, shares)

    def settled(self, members: int, partitions: int, strategy: str) -> Seen | None:
        """What the group holds if that is a complete, disjoint and balanced assignment to so many members."""
        found = self._look()
        if found is None or not found.stable or len(found.shares) != members or found.strategy != strategy:
            return None
        sizes = [len(share) for share in found.shares.values()]
        balanced = max(sizes) - min(sizes) <= 1
        return found if balanced and found.given() == list(range(partitions)) else None
