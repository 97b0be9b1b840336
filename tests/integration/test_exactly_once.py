"""The exactly-once sink: two-phase commit with its tasks and driver killed between the steps."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from assignors.model import TopicPartition as TP
from kafka_source.client_config import Settings
from kafka_source.datasource import register
from kafka_source.deadline import Deadline as Wait
from kafka_source.embedded import EmbeddedKafka
from kafka_source.errors import KafkaGroupError, LostTransactionsError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.producers import TransactionalProducers
from kafka_source.sink.committer import TwoPhaseCommit
from kafka_source.sink.ongoing import OpenTransaction, open_of
from kafka_source.sink.prepare import Prepared, prepare
from kafka_source.sink.records import Records

Topic = Callable[..., str]

TASKS = 3
SIGKILL = -9


def rows(batch: int, task: int, count: int = 20) -> list[bytes]:
    return [f"{batch}-{task}-{i}".encode() for i in range(count)]


def whole(batch: int) -> list[bytes]:
    return sorted(row for task in range(TASKS) for row in rows(batch, task))


def task(servers: str, topic: str, query: str, batch: int, number: int, attempt: int = 0, prefix: str = "") -> Prepared:
    """What Spark would run as one task."""
    settings = Settings({"bootstrap.servers": servers})
    records = Records(rows(batch, number), None, topic, None, None)
    return prepare(settings, prefix or topic, query, batch, number, attempt, [records])


def decide(servers: str, topic: str, query: str, batch: int, prepared: list[Prepared]) -> None:
    """What Spark would call in the driver."""
    client = KafkaClient(Settings({"bootstrap.servers": servers}))
    transactions = [p.transaction for p in prepared if p.transaction is not None]
    place = min((p.place for p in prepared if p.place is not None), default=None)
    try:
        client.run(TwoPhaseCommit(client, topic).commit(query, batch, transactions, place, Deadline(60)))
    finally:
        client.close()


def run_batch(servers: str, topic: str, query: str, batch: int, failpoint: str = "") -> None:
    """A whole batch, in a process that may be killed at a failpoint."""
    os.environ["KAFKAGROUP_FAILPOINT"] = failpoint
    prepared = [task(servers, topic, query, batch, number) for number in range(TASKS)]
    decide(servers, topic, query, batch, prepared)


def in_a_process(*args: Any) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=run_batch, args=args)
    process.start()
    process.join(120)
    return process.exitcode


def open_transactions(kafka: EmbeddedKafka, prefix: str) -> list[OpenTransaction]:
    client = KafkaClient(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    try:
        return [one.transaction for one in client.run(open_of(client, prefix, Deadline(30)))]
    finally:
        client.close()


def visible(kafka: EmbeddedKafka, topic: str, until: int = 0) -> list[bytes]:
    """What a `read_committed` reader sees, once it has seen so many or, if they do not come, after 20 s.

    Commit markers are written after a commit is answered, so the last records may take a moment.
    """
    config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"}
    reader = Consumer({**config, "isolation.level": "read_committed", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    wait = Wait(20)
    while not wait.over:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        elif message is not None and len(values) >= until:
            break
    reader.close()
    return sorted(values)


def test_batches_become_visible_once_and_nothing_stays_open(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("eo")
    for batch in range(3):
        run_batch(kafka.bootstrap_servers, name, "q", batch)
        run_batch(kafka.bootstrap_servers, name, "q", batch)  # as Spark replays it
    assert visible(kafka, name, 180) == sorted(whole(0) + whole(1) + whole(2))
    assert open_transactions(kafka, name) == []


def test_prepared_records_are_not_visible_before_the_decision(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("eo-prepared")
    prepared = [task(kafka.bootstrap_servers, name, "q", 0, number) for number in range(TASKS)]
    assert visible(kafka, name) == []
    assert len(open_transactions(kafka, name)) == TASKS
    decide(kafka.bootstrap_servers, name, "q", 0, prepared)
    assert visible(kafka, name, 60) == whole(0)


@pytest.mark.parametrize(
    ("failpoint", "count_before_the_replay"),
    [
        ("task-flushed", 0),
        ("sink-prepared", 0),
        ("sink-decided", 0),
        ("sink-half-committed", 20),
        ("sink-committed", 60),
    ],
)
def test_a_kill_between_any_two_steps_loses_and_doubles_nothing(
    kafka: EmbeddedKafka, topic: Topic, failpoint: str, count_before_the_replay: int
) -> None:
    name = topic(f"eo-{failpoint}")
    servers = kafka.bootstrap_servers
    run_batch(servers, name, "q", 0)
    assert visible(kafka, name, 60) == whole(0)
    assert in_a_process(servers, name, "q", 1, failpoint) == SIGKILL
    if count_before_the_replay == 0:
        assert visible(kafka, name) == whole(0)
    assert in_a_process(servers, name, "q", 1) == 0
    assert visible(kafka, name, 120) == sorted(whole(0) + whole(1))
    run_batch(servers, name, "q", 2)
    assert visible(kafka, name, 180) == sorted(whole(0) + whole(1) + whole(2))
    assert open_transactions(kafka, name) == []


def test_a_decided_batch_is_finished_even_if_another_query_takes_over(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("eo-takeover")
    assert in_a_process(kafka.bootstrap_servers, name, "old", 7, "sink-decided") == SIGKILL
    # A new checkpoint: batch 0 of another query is no replay, and its tasks use the same transactional ids.
    run_batch(kafka.bootstrap_servers, name, "new", 0)
    assert visible(kafka, name, 120) == sorted(whole(7) + whole(0))


def test_an_attempt_that_did_not_count_is_aborted(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("eo-attempts")
    servers = kafka.bootstrap_servers
    first = [task(servers, name, "q", 0, number) for number in range(TASKS)]
    again = task(servers, name, "q", 0, 1, attempt=1)
    decide(servers, name, "q", 0, [first[0], again, first[2]])
    assert visible(kafka, name, 60) == whole(0)
    assert open_transactions(kafka, name) == []


@pytest.mark.parametrize("began", [False, True])
def test_a_task_that_still_runs_when_its_write_is_given_up_leaves_nothing(
    kafka: EmbeddedKafka, topic: Topic, began: bool
) -> None:
    name = topic("eo-late")
    servers = kafka.bootstrap_servers
    done = task(servers, name, "write", 0, 0)
    client = KafkaClient(Settings({"bootstrap.servers": servers}))

    def records() -> Iterator[Records]:
        if began:
            yield Records(rows(0, 1), None, name, None, None)
        client.run(TwoPhaseCommit(client, name).give_up("write", done.place or TP(name, 0), Deadline(30)))
        yield Records(rows(0, 2), None, name, None, None)

    try:
        assert prepare(Settings({"bootstrap.servers": servers}), name, "write", 0, 1, 0, records()) == Prepared(0)
    except KafkaGroupError:
        assert began  # its transaction was ended while it wrote
    client.close()
    assert open_transactions(kafka, name) == []
    assert visible(kafka, name) == []


def test_tasks_without_rows_have_no_transaction(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("eo-empty")
    servers = kafka.bootstrap_servers
    empty = prepare(Settings({"bootstrap.servers": servers}), name, "q", 0, 0, 0, [])
    assert empty == Prepared(0)
    decide(servers, name, "q", 0, [empty])
    decide(servers, name, "q", 1, [empty, task(servers, name, "q", 1, 1)])
    assert visible(kafka, name, 20) == sorted(rows(1, 1))


def take_over(servers: str, transactional_id: str) -> None:
    """What the coordinator does when a transaction runs out of time, and what another query with this id does."""
    producers = TransactionalProducers({"bootstrap.servers": servers}, transactional_id, keep_warm=False)
    producers.take(Wait(60))


def test_a_transaction_that_is_gone_before_the_decision_stops_the_batch_and_loses_nothing(
    kafka: EmbeddedKafka, topic: Topic
) -> None:
    name = topic("eo-gone")
    servers = kafka.bootstrap_servers
    prepared = [task(servers, name, "q", 0, number) for number in range(TASKS)]
    take_over(servers, f"{name}-1-0")
    with pytest.raises(LostTransactionsError, match=f"{name}-1-0 are gone.*nothing is lost") as caught:
        decide(servers, name, "q", 0, prepared)
    assert not caught.value.decided
    assert visible(kafka, name) == []
    run_batch(servers, name, "q", 0)
    assert visible(kafka, name, 60) == whole(0)


def test_a_transaction_that_is_gone_after_the_decision_is_a_hard_error_with_its_name(
    kafka: EmbeddedKafka, topic: Topic
) -> None:
    name = topic("eo-lost")
    servers = kafka.bootstrap_servers
    assert in_a_process(servers, name, "q", 0, "sink-decided") == SIGKILL
    take_over(servers, f"{name}-2-0")
    with pytest.raises(LostTransactionsError, match=f"{name}-2-0 are gone.*records of these are lost") as caught:
        run_batch(servers, name, "q", 0)
    assert caught.value.decided
    assert caught.value.transactional_ids == (f"{name}-2-0",)


def test_a_batch_write_is_visible_as_a_whole(spark: SparkSession, kafka: EmbeddedKafka, topic: Topic) -> None:
    register(spark)
    name = topic("eo-batch")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "transactional": "true"}
    options["transactional.id.prefix"] = name
    df = spark.range(0, 100, numPartitions=4).selectExpr("cast(id as string) as value")
    df.write.format("kafkagroup").mode("append").options(**options).save()
    assert visible(kafka, name, 100) == sorted(str(i).encode() for i in range(100))
    broken = df.selectExpr("if(value = '99', raise_error('poison'), value) as value")
    with pytest.raises(Exception, match="poison"):
        broken.write.format("kafkagroup").mode("append").options(**options).save()
    wait = Wait(30)
    while open_transactions(kafka, name):  # a task may be on its way still; it aborts its own
        assert not wait.over
    assert len(visible(kafka, name, 100)) == 100
    with pytest.raises(Exception, match=r"transactional\.id\.prefix is missing"):
        del options["transactional.id.prefix"]
        df.write.format("kafkagroup").mode("append").options(**options).save()


def test_a_stream_that_restarts_writes_every_row_once(
    spark: SparkSession, kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    register(spark)
    name = topic("eo-stream")
    (tmp_path / "in").mkdir()

    def run() -> None:
        query = (
            spark.readStream.option("maxFilesPerTrigger", "1")
            .text(str(tmp_path / "in"))
            .writeStream.format("kafkagroup")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", name)
            .option("transactional", "true")
            .option("transactional.id.prefix", name)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(150)

    for number in range(2):
        (tmp_path / "in" / f"{number}.txt").write_text(f"a{number}\nb{number}\n", encoding="utf-8")
    run()
    # As if the driver had died after the sink's commit and before Spark's own.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    for crc in (tmp_path / "checkpoint" / "commits").glob(".1.crc"):
        crc.unlink()
    (tmp_path / "in" / "2.txt").write_text("a2\nb2\n", encoding="utf-8")
    run()
    assert visible(kafka, name, 6) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
