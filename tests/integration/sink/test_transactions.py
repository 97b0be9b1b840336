"""Offsets and records committed in transactions, on a real broker."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from kafka.admin import KafkaAdminClient

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import AbortableError, InvalidConfigurationError, RetriableError, error_for_code
from kafka_source.model.credentials import SlotCredentials
from kafka_source.runtime.deadline import Deadline
from kafka_source.transactions import Transaction, TransactionalProducers, run_transaction
from kafka_source.transactions.offset_committer import TransactionalCommitter
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic
from tests.support.two_phase import visible


@contextmanager
def member(
    kafka: EmbeddedKafka, topic: str, group: str, instance: str | None = None
) -> Iterator[tuple[Consumer, SlotCredentials]]:
    """A real member of the group, by librdkafka, and its credentials."""
    config: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    config |= {"auto.offset.reset": "earliest"}
    config |= {"enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer(config if instance is None else {**config, "group.instance.id": instance})
    consumer.subscribe([topic])
    deadline = Deadline(30)
    while not consumer.assignment():
        assert not deadline.over
        consumer.poll(0.1)
    metadata: bytes = consumer.consumer_group_metadata()
    generation = struct.unpack("<i", metadata[7:11])[0]
    yield consumer, SlotCredentials(group, generation, consumer.memberid(), instance)
    consumer.close()


def committed(consumer: Consumer, topic: str, partitions: int = 4) -> list[int]:
    """The group's offsets; waits until no transaction over them is open."""
    found = consumer.committed([Position(topic, p) for p in range(partitions)], timeout=20)
    return [p.offset for p in found]


@pytest.mark.parametrize("wrong", [{"generation": -1}, {"member_id": ""}])
def test_a_commit_that_no_broker_would_fence_is_never_sent(wrong: dict[str, object]) -> None:
    credentials = replace(SlotCredentials("g", 3, "m", None), **wrong)  # type: ignore[arg-type]
    committer = TransactionalCommitter(Settings({"bootstrap.servers": "127.0.0.1:1"}), "unfenced", timeout=1)
    with pytest.raises(ValueError, match="must join the group"):
        committer.commit_as([(credentials, {TopicPartition("t", 0): 1})])


def test_every_transaction_has_an_epoch_of_its_own(kafka: EmbeddedKafka, topic: Topic) -> None:
    name = topic("epochs", partitions=1)
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    producers = TransactionalProducers({"bootstrap.servers": kafka.bootstrap_servers}, "epochs")
    epochs = []

    def work(transaction: Transaction) -> None:
        transaction.produce(name, b"x")
        epochs.append(admin.describe_transactions(["epochs"])["epochs"].producer_epoch)

    for _ in range(3):
        run_transaction(producers, work, timeout=30)
    admin.close()
    assert len(set(epochs)) == 3
    assert epochs == sorted(epochs)


def test_no_broker_is_told_within_the_deadline() -> None:
    committer = TransactionalCommitter(Settings({"bootstrap.servers": "127.0.0.1:1"}), "nobody", timeout=2)
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:1"):
        committer.commit_as([(SlotCredentials("g", 1, "m", None), {TopicPartition("t", 0): 1})])


class Demo:
    """KIP-1050's demo loop in small: consume, transform, produce, send offsets, with one error on the way."""

    def __init__(self, kafka: EmbeddedKafka, source: str, sink: str, injected: Exception | None) -> None:
        self.sink, self.source, self.injected = sink, source, injected
        self.tries = 0
        self.rewinds = 0
        self.producers = TransactionalProducers(
            {"bootstrap.servers": kafka.bootstrap_servers, "transaction.timeout.ms": 20_000}, sink
        )

    def run(self, consumer: Consumer) -> int:
        return run_transaction(self.producers, lambda t: self.work(t, consumer), timeout=30, rewind=self.rewind)

    def work(self, transaction: Transaction, consumer: Consumer) -> int:
        self.tries += 1
        for word in ("a", "b"):
            transaction.produce(self.sink, f"{word}{self.tries}", word, headers=[("try", b"1")])
        transaction.send_offsets({TopicPartition(self.source, 0): 2}, consumer.consumer_group_metadata())
        if self.injected is not None and self.tries == 1:
            raise self.injected
        return self.tries

    def rewind(self) -> None:
        self.rewinds += 1


@pytest.mark.parametrize(
    ("injected", "seen", "offset"),
    [
        (None, [b"a1", b"b1"], 2),
        (error_for_code(120, "Injected"), [b"a2", b"b2"], 2),
        (error_for_code(7, "Injected"), [b"a2", b"b2"], 2),
        (error_for_code(6, "Injected"), [b"a2", b"b2"], 2),
        (error_for_code(90, "Injected"), [], -1001),
        (error_for_code(-1, "Injected"), [], -1001),
        (error_for_code(29, "Injected"), [], -1001),
        (ZeroDivisionError("of the work itself"), [], -1001),
    ],
    ids=lambda value: getattr(value, "code_name", None) or type(value).__name__,
)
def test_each_category_of_error_in_the_demo_loop(
    kafka: EmbeddedKafka, topic: Topic, injected: Exception | None, seen: list[bytes], offset: int
) -> None:
    source, sink = topic("demo-in", partitions=1), topic("demo-out", partitions=1)
    with member(kafka, source, sink) as (consumer, _):
        demo = Demo(kafka, source, sink, injected)
        if seen:
            assert demo.run(consumer) == demo.tries
        else:
            assert injected is not None
            with pytest.raises(type(injected)):
                demo.run(consumer)
        assert (demo.tries, demo.rewinds) == ((2, 1) if seen == [b"a2", b"b2"] else (1, 0))
        assert visible(kafka.bootstrap_servers, sink, len(seen)) == seen
        assert committed(consumer, source, 1) == [offset]


def test_a_record_that_cannot_be_delivered_fails_the_transaction_with_its_name(
    kafka: EmbeddedKafka, topic: Topic
) -> None:
    name = topic("small", partitions=1, config={"max.message.bytes": 1000})
    producers = TransactionalProducers({"bootstrap.servers": kafka.bootstrap_servers}, name)

    def work(transaction: Transaction) -> None:
        transaction.produce(name, b"fits")
        transaction.produce(name, b"x" * 2000)

    with pytest.raises(
        InvalidConfigurationError, match=rf"Producing to {name}.*MESSAGE_TOO_LARGE.*max\.message\.bytes"
    ):
        run_transaction(producers, work, timeout=30)
    assert visible(kafka.bootstrap_servers, name) == []


def test_the_time_is_over_for_all_tries_together(kafka: EmbeddedKafka) -> None:
    producers = TransactionalProducers({"bootstrap.servers": kafka.bootstrap_servers}, "endless")
    tries: list[int] = []

    def work(transaction: Transaction) -> None:
        tries.append(1)
        raise error_for_code(120, "Injected")

    with pytest.raises(AbortableError):
        run_transaction(producers, work, timeout=10)
    assert len(tries) > 1
