"""An exactly-once sink without Spark: its driver and tasks as plain calls, in this process or in one to be killed."""

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from kafka_source.client_config import Settings
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.produce.records import Records
from kafka_source.produce.settings import transaction_timeout_ms
from kafka_source.runtime.deadline import Deadline as Wait
from kafka_source.runtime.failpoints import install
from kafka_source.sink.exactly_once import check_timeout
from kafka_source.sink.two_phase.committer import DriverEpoch, PreparedBatch, TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import list_open
from kafka_source.sink.two_phase.prepare import Prepared, SinkTask, prepare
from kafka_source.transactions.open_transaction import OpenTransaction
from kafka_source.transactions.producers import TransactionalProducers
from kafkagroup.embedded import EmbeddedKafka, run_java

TASKS = 3
SIGKILL = -9


def rows(batch: int, task: int, count: int = 20) -> list[bytes]:
    return [f"{batch}-{task}-{i}".encode() for i in range(count)]


def as_records(values: Sequence[bytes], topic: str, partitions: Sequence[int] | None = None) -> Records:
    chosen = None if partitions is None else pa.array(partitions, pa.int32())
    return Records(pa.array(values, pa.binary()), None, topic, chosen)


def whole(*batches: int) -> list[bytes]:
    return sorted(row for batch in batches for task in range(TASKS) for row in rows(batch, task))


class Sink:
    """One query's sink; `query` tells it from another one of the same prefix.

    Attributes:
        arguments: What makes the same sink in another process.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        query: str = "q",
        prefix: str = "",
        replays: bool = False,
        settings: Mapping[str, str] | None = None,
        engine: str = "auto",
    ) -> None:
        self.arguments = (servers, topic, query, prefix, replays, settings, engine)
        self.settings = Settings({"bootstrap.servers": servers, **(settings or {})})
        self.topic, self.query, self.prefix, self.replays = topic, query, prefix or topic, replays
        self.engine = engine

    def begin(self, seconds: float = 60) -> DriverEpoch:
        """What Spark has the driver do before the tasks of a batch."""
        timeout_ms = transaction_timeout_ms(self.settings)
        self._run(check_timeout(cached_client(self.settings), self.prefix, timeout_ms, Deadline(60)))
        return self._run(self._phases().begin(Deadline(seconds), replays=self.replays))

    def task(self, epoch: DriverEpoch, batch: int, number: int) -> Prepared:
        """What Spark runs as one task."""
        task = SinkTask(self.prefix, self.query, batch, number)
        return prepare(self.settings, task, epoch, [as_records(rows(batch, number), self.topic)], self.engine)

    def tasks(self, epoch: DriverEpoch, batch: int) -> list[Prepared]:
        return [self.task(epoch, batch, number) for number in range(TASKS)]

    def decide(self, epoch: DriverEpoch, batch: int, prepared: Sequence[Prepared], seconds: float = 60) -> None:
        """What Spark calls in the driver after the tasks."""
        transactions = {one.transaction: one.partitions for one in prepared if one.transaction is not None}
        self._run(self._phases().commit(epoch, PreparedBatch(self.query, batch, transactions), Deadline(seconds)))

    def run(self, *batches: int) -> None:
        """Whole batches."""
        for batch in batches:
            epoch = self.begin()
            self.decide(epoch, batch, self.tasks(epoch, batch))

    def in_a_process(self, failpoint: str, *batches: int) -> int | None:
        """Whole batches in a process that dies at a failpoint; its exit code."""
        return in_a_process(failpoint, *self.arguments, batches=batches)

    def abort(self, epoch: DriverEpoch | None = None) -> list[OpenTransaction]:
        """What Spark calls in the driver when a batch failed; the transactions that it aborted."""
        return [one.transaction for one in self._run(self._phases().abort_undecided(Deadline(60), epoch))]

    def open(self) -> list[OpenTransaction]:
        return [
            one.transaction for one in self._run(list_open(cached_client(self.settings), self.prefix, Deadline(30)))
        ]

    def visible(self, until: int = 0, partitions: int = 1, isolation: str = "read_committed") -> list[bytes]:
        """What a reader of the topic sees, as the function `visible`."""
        return visible(self.settings["bootstrap.servers"], self.topic, until, partitions, isolation)

    def decided(self) -> Sequence[OpenTransaction]:
        """The transactions of a decision that is not recorded as finished."""
        found = self._run(self._phases().decided(Deadline(30)))
        return () if found is None else found.transactions

    def _phases(self) -> TwoPhaseCommit:
        return TwoPhaseCommit(cached_client(self.settings), self.prefix)

    def _run(self, work: Any) -> Any:
        return cached_client(self.settings).run(work)


def die_at(moment: str) -> None:
    """Have this process killed at a failpoint."""
    install(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == moment else None)


def run_batches(failpoint: str, arguments: tuple[Any, ...], batches: tuple[int, ...]) -> None:
    die_at(failpoint)
    Sink(*arguments).run(*batches)


def in_a_process(failpoint: str, *sink: Any, batches: tuple[int, ...]) -> int | None:
    """Batches of `Sink(*sink)` in a process that dies at a failpoint; its exit code."""
    process = multiprocessing.get_context("spawn").Process(target=run_batches, args=(failpoint, sink, batches))
    process.start()
    process.join(120)
    return process.exitcode


def take_over(servers: str, transactional_id: str) -> None:
    """What the coordinator does when a transaction runs out of time, and what another query with this id does."""
    TransactionalProducers({"bootstrap.servers": servers}, transactional_id).take(Wait(60))


def set_transaction_version(kafka: EmbeddedKafka, level: int) -> None:
    """Set the feature `transaction.version`; clients learn it with a new connection."""
    direction = "upgrade" if level == 2 else "downgrade"
    arguments = ("--bootstrap-server", kafka.bootstrap_servers, direction, "--feature", f"transaction.version={level}")
    done = run_java("org.apache.kafka.tools.FeatureCommand", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def visible(
    servers: str, topic: str, until: int = 0, partitions: int = 1, isolation: str = "read_committed"
) -> list[bytes]:
    """What a reader sees to the end, once it has seen so many or, if they do not come, after 20 s."""
    config: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "reader"}
    reader = Consumer({**config, "isolation.level": isolation, "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    values: list[bytes] = []
    ended: set[int | None] = set()
    wait = Wait(20)
    while not wait.over:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        elif message is not None:
            ended.add(message.partition())
            if len(ended) == partitions and len(values) >= until:
                break
    reader.close()
    return sorted(values)
