"""What a query says when it joins a group that others use: its members, its committed offsets, and what to set."""

import logging
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.group.rebalance_log import OtherMembers
from kafka_source.kafka_client import KafkaClient
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from kafka_source.source.micro_batches import MicroBatches
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.apps.process import java_consumer, streaming_app
from tests.support.memberships import Memberships
from tests.support.queries import query_of
from tests.support.records import Topic, produce
from tests.support.waiting import wait_until

Said = Callable[[int], list[str]]
Stream = Callable[..., MicroBatches]

LABEL = "group.membership=false"
SETTINGS = {
    "kafka.session.timeout.ms": "10000",
    "kafka.heartbeat.interval.ms": "300",
    "startingOffsets": "earliest",
    "group.members": "2",
}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, group: str) -> Said:
    """Returns the lines of a level about the group that name the option which makes its id a label."""
    caplog.set_level(logging.INFO, "kafka_source")

    def lines(level: int) -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno == level]
        return [line for line in found if group in line and LABEL in line]

    return lines


@pytest.fixture
def given(kafka: EmbeddedKafka, group: str) -> dict[str, str]:
    """The options of a read in the group."""
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": group, **SETTINGS}


@pytest.fixture
def stream(given: dict[str, str], opened: ExitStack) -> Stream:
    """Makes a stream of a topic in the group, as its process in the driver does."""

    def make(topic: str, **options: str) -> MicroBatches:
        changed = {name.replace("_", "."): value for name, value in options.items()}
        return opened.enter_context(closing(MicroBatches(query_of({**given, "subscribe": topic, **changed}))))

    return make


def test_nothing_is_said_of_a_group_that_nobody_else_uses(topic: Topic, stream: Stream, said: Said):
    name = topic("alone", partitions=2)
    batches = stream(name)
    end = batches.next(StreamOffset(), limited=True)
    batches.next(end, limited=True)
    assert said(logging.WARNING) == said(logging.INFO) == []


@pytest.mark.parametrize(("option", "level"), [({}, logging.WARNING), ({"group_membership": "true"}, logging.INFO)])
def test_the_members_of_another_application_are_told_once(
    kafka: EmbeddedKafka, topic: Topic, group: str, stream: Stream, said: Said, option: dict[str, str], level: int
):
    name = topic("theirs", partitions=4)
    with closing(ConfluentConsumer(kafka.bootstrap_servers, group, name)) as other:
        wait_until(lambda: bool(other.assigned), "partitions for the other application")
        batches = stream(name, **option)
        for _ in range(2):
            batches.next(StreamOffset(), limited=True)
        (line,) = said(level)
        assert "has other members: rdkafka-" in line
        assert "shares the partitions with them" in line
        assert said(logging.INFO + logging.WARNING - level) == []


@pytest.mark.parametrize(
    ("option", "level"),
    [
        ({}, logging.WARNING),
        ({"commit": "sink"}, logging.WARNING),
        ({"group_membership": "true"}, logging.INFO),
        ({"startingOffsets": "committed"}, logging.INFO),
    ],
)
def test_offsets_that_others_have_committed_are_told_at_the_first_start_only(
    topic: Topic, group: str, groups: Groups, stream: Stream, said: Said, option: dict[str, str], level: int
):
    name = topic("left", partitions=2, records=40)
    groups.rewind(group, {TopicPartition(name, 0): 3})
    first = stream(name, **option)
    end = first.next(StreamOffset(), limited=True)
    assert end.partitions[TopicPartition(name, 0)].start == 3
    (line,) = said(level)
    assert "has committed offsets in 1 of this query's partitions" in line
    assert "not where startingOffsets" in line
    assert "kafkagroup rewind" in line
    assert said(logging.INFO + logging.WARNING - level) == []


def test_a_query_with_a_checkpoint_is_not_told_of_committed_offsets(
    topic: Topic, group: str, groups: Groups, stream: Stream, said: Said, kafka: EmbeddedKafka
):
    name = topic("known", partitions=1, records=10)
    tp = TopicPartition(name, 0)
    first = stream(name)
    end = first.next(StreamOffset(), limited=True)
    first.close()
    groups.rewind(group, {tp: 10}, checkpoints_follow=False)
    produce(kafka.bootstrap_servers, name, 5)
    restarted = stream(name)
    assert restarted.next(end, limited=True).partitions[tp].start == 10
    assert said(logging.WARNING) == said(logging.INFO) == []


def test_a_batch_is_told_of_committed_offsets_too(
    topic: Topic, group: str, groups: Groups, given: dict[str, str], said: Said
):
    name = topic("nightly", partitions=1, records=10)
    groups.rewind(group, {TopicPartition(name, 0): 3})
    reader = BatchReader({**given, "subscribe": name}, source_schema(headers=False))
    for _ in range(2):
        reader.partitions()
    (line,) = said(logging.WARNING)
    assert "committed offsets" in line
    assert "overwrite the group's offsets" not in line


def test_another_read_of_the_driver_is_not_taken_for_another_application(
    members: Memberships, topic: Topic, group: str, said: Said
):
    name = topic("twice", partitions=2)
    first = members.make(name, app="driver-stream", slots=1)
    first.join(30)
    settings = members.settings(app="driver-batch", driver=f"{group}-driver-")
    with closing(KafkaClient(members.config)) as client:
        client.run(OtherMembers(client, settings).look_up([name]))
        (line,) = said(logging.WARNING)
        assert line.startswith("Two reads of group")
        client.run(OtherMembers(client, replace(settings, driver=None)).look_up([name]))
        assert f"{group}-driver-stream-0 at " in said(logging.WARNING)[-1]
        # The slots of this query, or of an earlier run of it that had more of them.
        ours = replace(settings, group=group, instance_id_prefix=f"{group}-driver-stream", slots=0)
        client.run(OtherMembers(client, ours).look_up([name]))
        assert len(said(logging.WARNING)) == 2


def test_members_of_a_group_of_the_consumer_protocol_are_told_too(
    topic: Topic, kafka: EmbeddedKafka, group: str, members: Memberships, said: Said
):
    name = topic("kip848", partitions=2)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "group.protocol": "consumer"})
    with closing(consumer), closing(KafkaClient(members.config)) as client:
        consumer.subscribe([name])
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "its assignment")
        client.run(OtherMembers(client, members.settings()).look_up(()))
        (line,) = said(logging.WARNING)
        assert "has other members: " in line


def test_a_group_that_cannot_be_described_is_left_to_the_join(
    members: Memberships, group: str, said: Said, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "kafka_source")
    nobody = Settings({"bootstrap.servers": "127.0.0.1:1", "client.id": "nobody"})
    with closing(KafkaClient(nobody)) as client:
        client.run(OtherMembers(client, members.settings()).look_up(()))
    assert said(logging.WARNING) == []
    assert any(r.getMessage().startswith(f"describe group={group} failed") for r in caplog.records)


def test_a_driver_says_that_it_joins_the_group_of_a_java_application(
    kafka: EmbeddedKafka, topic: Topic, group: str, given: dict[str, str], tmp_path: Path
):
    name = topic("java", partitions=4, records=40)
    with java_consumer(tmp_path, kafka.bootstrap_servers, group, name) as java:
        java.wait_for("assigned ")
        with streaming_app(tmp_path / "spark", {**given, "subscribe": name}) as app:
            app.wait_for("started", seconds=240)
            wait_until(lambda: LABEL in app.log.read_text(errors="replace"), "the line about the other application")
            app.stop(seconds=120)
        told = app.log.read_text(errors="replace")
    assert told.count(f"group={group} has other members: ") == 1
    assert told.count("has committed offsets in") <= 1
