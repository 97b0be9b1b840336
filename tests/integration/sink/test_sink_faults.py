"""Faults of an exactly-once sink's workers, drivers and settings, with a `read_committed` reader watching."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from assignors.model import TopicPartition
from kafka_source.client_config import librdkafka_config
from kafka_source.errors import (
    AuthenticationError,
    InvalidConfigurationError,
    KafkaGroupError,
    LostTransactionsError,
    NotVisibleError,
)
from kafka_source.produce.records import Records
from kafka_source.sink.two_phase.prepare import IDS_OF_TASK, SinkTask, prepare
from kafka_source.sink.writer import BatchWriter, batch_writer
from kafka_source.transactions.producers import TransactionalProducers
from kafka_source.transactions.transactional_loop import run_transaction
from kafkagroup.embedded import EmbeddedKafka, Security
from tests.support.records import CommittedReader, Topic, add_partitions
from tests.support.two_phase import SIGKILL, TASKS, Sink, as_records, die_at, in_a_process, rows, whole
from tests.support.waiting import wait_until


@pytest.fixture
def reader(kafka: EmbeddedKafka, sink: Sink) -> Iterator[CommittedReader]:
    with CommittedReader(kafka.bootstrap_servers, sink.topic) as watching:
        yield watching


def check(sink: Sink, reader: CommittedReader, *batches: int) -> None:
    """I1 to I4, I7 and I8: these batches and nothing else, once, for both readers, and nothing stays open."""
    expected = whole(*batches)
    assert sink.visible(len(expected)) == expected
    reader.wait_for(len(expected))
    assert reader.values == expected
    reader.check_order()
    assert sink.open() == []


def worker(arguments: tuple[Any, ...], epoch: Any, number: int, result: Any, fault: str) -> None:
    """A task in a process of its own."""
    die_at(fault)
    sink = Sink(*arguments)
    if fault != "stop-itself":
        result.put(sink.task(epoch, 0, number))
        result.close()
        result.join_thread()
        os.kill(os.getpid(), signal.SIGKILL)

    def records() -> Iterator[Records]:
        yield as_records(rows(0, number), sink.topic)
        os.kill(os.getpid(), signal.SIGSTOP)
        yield as_records(rows(0, number), sink.topic)

    prepare(sink.settings, SinkTask(sink.prefix, sink.query, 0, number), epoch, records())


def start(sink: Sink, epoch: Any, number: int, fault: str = "") -> tuple[Any, Any]:
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    process = context.Process(target=worker, args=(sink.arguments, epoch, number, result, fault))
    process.start()
    return process, result


def test_f2_a_worker_killed_after_its_flush_leaves_nothing_visible(sink: Sink, reader: CommittedReader) -> None:
    epoch = sink.begin()
    process, _ = start(sink, epoch, 1, "task-flushed")
    process.join(60)
    assert process.exitcode == SIGKILL
    assert [t.transactional_id for t in sink.open()] == [f"{sink.prefix}-1-0"]
    sink.decide(epoch, 0, [sink.task(epoch, 0, 0), sink.task(epoch, 0, 1), sink.task(epoch, 0, 2)])
    check(sink, reader, 0)


def test_f3_a_worker_killed_after_it_told_the_driver_loses_nothing(sink: Sink, reader: CommittedReader) -> None:
    epoch = sink.begin()
    process, result = start(sink, epoch, 1)
    prepared = result.get(timeout=60)
    process.join(60)
    assert process.exitcode == SIGKILL
    sink.decide(epoch, 0, [sink.task(epoch, 0, 0), prepared, sink.task(epoch, 0, 2)])
    check(sink, reader, 0)


def test_f4_a_worker_that_was_suspended_writes_nothing_when_it_goes_on(sink: Sink, reader: CommittedReader) -> None:
    epoch = sink.begin()
    zombie, _ = start(sink, epoch, 1, "stop-itself")
    stat = Path(f"/proc/{zombie.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the worker to be suspended")
    sink.decide(epoch, 0, [sink.task(epoch, 0, 0), sink.task(epoch, 0, 1), sink.task(epoch, 0, 2)])
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.join(90)
    assert zombie.exitcode == 1  # it failed, with an error of its own
    check(sink, reader, 0)
    sink.run(1)
    check(sink, reader, 0, 1)


@pytest.mark.parametrize("failpoint", ["sink-prepared", "sink-decided", "sink-half-committed", "sink-committed"])
def test_f6_f7_f8_a_driver_killed_around_its_decision(sink: Sink, reader: CommittedReader, failpoint: str) -> None:
    assert sink.in_a_process(failpoint, 0) == SIGKILL
    sink.run(0, 1)
    check(sink, reader, 0, 1)


def test_f9_a_driver_that_is_away_for_longer_than_the_transaction_timeout(kafka: EmbeddedKafka, topic: Topic) -> None:
    # This is long enough for three tasks and the decision on a busy machine.
    away = {"transaction.timeout.ms": "8000"}
    stops = Sink(kafka.bootstrap_servers, topic("away"), settings=away)
    replays = Sink(kafka.bootstrap_servers, topic("away"), replays=True, settings=away)
    undecided = Sink(kafka.bootstrap_servers, topic("away"), settings=away)
    for one, failpoint in (
        (stops, "sink-half-committed"),
        (replays, "sink-half-committed"),
        (undecided, "sink-prepared"),
    ):
        arguments = (kafka.bootstrap_servers, one.topic, "q", "", False, away)
        assert in_a_process(failpoint, *arguments, batches=(0,)) == SIGKILL
    wait_until(lambda: not (stops.open() or replays.open() or undecided.open()), "the transactions to run out of time")
    with pytest.raises(LostTransactionsError, match="records of the named transactions are lost") as caught:
        stops.run(0)
    assert set(caught.value.transactional_ids) == {f"{stops.prefix}-1-0", f"{stops.prefix}-2-0"}
    assert stops.visible(20) == sorted(rows(0, 0))
    for one in (replays, undecided):
        one.run(0, 1)
        assert one.visible(120) == whole(0, 1)


def test_f12_one_task_that_fails_holds_no_reader_up(sink: Sink, reader: CommittedReader) -> None:
    epoch = sink.begin()
    sink.task(epoch, 0, 0)

    def poisoned() -> Iterator[Records]:
        yield as_records(rows(0, 1), sink.topic)
        raise ZeroDivisionError("poison")

    with pytest.raises(ZeroDivisionError):
        prepare(sink.settings, SinkTask(sink.prefix, sink.query, 0, 1), epoch, poisoned())
    sink.abort()
    assert sink.open() == []
    sink.run(0)
    check(sink, reader, 0)


def test_f41_a_record_that_is_too_large_leaves_no_half_batch(kafka: EmbeddedKafka, topic: Topic) -> None:
    sink = Sink(kafka.bootstrap_servers, topic("large", config={"max.message.bytes": 2000}))
    epoch = sink.begin()
    sink.task(epoch, 0, 0)
    records = as_records([b"small", b"x" * 3000], sink.topic)
    with pytest.raises(InvalidConfigurationError, match=r"max\.message\.bytes"):
        prepare(sink.settings, SinkTask(sink.prefix, sink.query, 0, 1), epoch, [records])
    sink.abort()
    assert sink.open() == []
    assert sink.visible() == []


def test_f38_a_timeout_above_the_brokers_is_told_before_anything_is_written(kafka: EmbeddedKafka, topic: Topic) -> None:
    sink = Sink(kafka.bootstrap_servers, topic("timeout"), settings={"transaction.timeout.ms": "3600000"})
    with pytest.raises(InvalidConfigurationError) as caught:
        sink.begin()
    assert "kafka.transaction.timeout.ms=3600000" in str(caught.value)
    assert "transaction.max.timeout.ms=900000" in str(caught.value)


def test_a_timeout_is_checked_again_where_it_is_another_one(kafka: EmbeddedKafka, topic: Topic) -> None:
    """The process that began with a prefix may begin with it again: in another cluster, or with another timeout."""
    name = topic("timeouts")

    def begin(timeout_ms: int) -> BatchWriter:
        """Do what happens when Spark pickles the writer for its tasks."""
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "transactional": "true"}
        more = {"transactional.id.prefix": name, "kafka.transaction.timeout.ms": str(timeout_ms)}
        writer = batch_writer(options | more, StructType().add("value", "string"), overwrite=False)
        assert isinstance(writer, BatchWriter)
        writer.start.begin()
        return writer

    with pytest.raises(KafkaGroupError, match="this is no Spark task"):
        begin(60_000).write(iter(()))
    with pytest.raises(InvalidConfigurationError, match=r"kafka\.transaction\.timeout\.ms=3600000"):
        begin(3_600_000).write(iter(()))


@pytest.mark.requires_native
def test_f39_missing_rights_are_told_before_anything_is_written() -> None:
    with EmbeddedKafka(security=Security("SASL_PLAINTEXT", {"alice": "correct-horse"}, acls=True)) as own:
        own.create_topic("orders")
        own.allow("alice", "DESCRIBE", "WRITE", name="orders")
        settings = {k: v for k, v in own.java_client_config("alice", "PLAIN").items() if k != "bootstrap.servers"}

        def sink() -> Sink:
            return Sink(own.bootstrap_servers, "orders", settings=settings)

        with pytest.raises(AuthenticationError, match="transactional id orders-driver"):
            sink().begin()
        own.allow("alice", "DESCRIBE", "WRITE", resource="transactional_id")
        with pytest.raises(AuthenticationError, match=r"group orders-(ledger|finished)"):
            sink().begin()
        own.allow("alice", "READ", resource="group")
        # Alice may not read the brokers' limit, so the coordinator is asked to take the timeout.
        too_long = Sink(own.bootstrap_servers, "orders", settings={**settings, "transaction.timeout.ms": "3600000"})
        with pytest.raises(
            InvalidConfigurationError, match=r"timeout\.ms=3600000 is above .*which this user cannot read"
        ):
            too_long.begin()
        with pytest.raises(AuthenticationError, match="orders-0: TOPIC_AUTHORIZATION_FAILED"):
            sink().run(0)
        own.allow("alice", "READ", name="orders")
        sink().run(0, 1)
        assert own_visible(own, "orders", 120) == whole(0, 1)
        own.create_topic("closed")
        own.allow("alice", "DESCRIBE", "READ", name="closed")
        closed = Sink(own.bootstrap_servers, "closed", settings=settings, engine="librdkafka")
        with pytest.raises(AuthenticationError, match=r"closed-0 .*Topic authorization failed.* WRITE on the topic"):
            closed.run(0)
        with pytest.raises(AuthenticationError, match=r"closed-0 .*TOPIC_AUTHORIZATION_FAILED.* rights .* topic"):
            Sink(own.bootstrap_servers, "closed", settings=settings, engine="native").run(0)
        producers = TransactionalProducers(librdkafka_config(closed.settings), "closed")
        # librdkafka tells it of the record or, on a busy machine, first of the transaction.
        told = r"(Producing to closed-0|Committing a transaction of closed) .*TOPIC_AUTHORIZATION_FAILED"
        with pytest.raises(AuthenticationError, match=told):
            run_transaction(producers, lambda transaction: transaction.produce("closed", b"v"), timeout=60)


def own_visible(kafka: EmbeddedKafka, topic: str, count: int) -> list[bytes]:
    with CommittedReader(kafka.internal_bootstrap_servers, topic) as reader:
        reader.wait_for(count)
        return reader.values


def handles() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@pytest.mark.parametrize(
    ("batches", "tasks"), [(12, 3), pytest.param(100, 8, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_f42_handles_and_transactional_ids_stay_bounded(sink: Sink, batches: int, tasks: int) -> None:
    ids: set[str] = set()
    before = handles()
    for batch in range(batches):
        epoch = sink.begin()
        prepared = [sink.task(epoch, batch, number) for number in range(tasks)]
        ids |= {one.transaction.transactional_id for one in prepared if one.transaction is not None}
        sink.decide(epoch, batch, prepared)
        if batch == 2:
            before = handles()
    assert len(ids) == IDS_OF_TASK * tasks
    # Producers that were let go close their connections in the background.
    wait_until(lambda: all(now <= then for now, then in zip(handles(), before, strict=True)), f"no more than {before}")


def test_what_cannot_be_seen_is_told_at_every_start_until_it_can(kafka: EmbeddedKafka, sink: Sink) -> None:
    epoch = sink.begin()
    prepared = sink.tasks(epoch, 0)
    # A partition that nobody can look at.
    nowhere = replace(prepared[0], partitions=(*prepared[0].partitions, TopicPartition(sink.topic, 1)))
    with pytest.raises(NotVisibleError, match=f"{sink.topic}-1"):
        sink.decide(epoch, 0, [nowhere, *prepared[1:]], seconds=4)
    assert sink.visible(TASKS * 20) == whole(0)
    with pytest.raises(NotVisibleError, match=f"{sink.topic}-1"):
        sink.begin(seconds=4)
    add_partitions(kafka, sink.topic, 2)
    sink.run(0, 1)
    assert sink.visible(TASKS * 40, partitions=2) == whole(0, 1)
