"""The lag by which KEDA's Kafka scaler scales is that of `kafkagroup group`, in every state of a group."""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import OffsetSpec
from jsonschema import Draft202012Validator
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader

from assignors import TopicPartition
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.commands import Command
from tests.support.records import Topic, add_partitions, delete_before, produce, run_to_end, send, stream, write_records
from tests.support.waiting import wait_until

PARTITIONS, COUNT = 3, 30

ROOT = Path(__file__).parents[3]
KEDA = "github.com/kedacore/keda/v2@v2.18.1"


def strict(schema: object) -> object:
    """The schema of a resource without unknown fields, which Kubernetes would drop."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {} if "properties" not in schema else {"additionalProperties": False}
    return {**closed, **{name: strict(one) for name, one in schema.items()}}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("go") is None, reason="KEDA's schemas come with its Go module")
def test_the_manifests_fit_kedas_schemas(tmp_path: Path) -> None:
    # Without -modcacherw pytest could not remove the folder.
    variables = {**os.environ, "GOPATH": str(tmp_path), "GOFLAGS": "-modcacherw"}
    command = ["go", "mod", "download", "-json", KEDA]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, check=True)
    bases = Path(json.loads(done.stdout)["Dir"], "config", "crd", "bases")
    page = (ROOT / "docs" / "guides" / "scale-by-lag.md").read_text()
    manifests = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert [one["kind"] for one in manifests] == ["ScaledObject", "ScaledJob"]
    for manifest in manifests:
        definition = yaml.safe_load((bases / f"keda.sh_{manifest['kind'].lower()}s.yaml").read_text())
        (version,) = definition["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        schema["properties"]["metadata"]["properties"] = {"name": {"type": "string"}}
        Draft202012Validator(strict(schema)).validate(manifest)


@dataclass
class Place:
    """A group, and a topic with 30 records in 3 partitions of which it has committed 4 in each."""

    kafka: EmbeddedKafka
    groups: Groups
    topic: str
    group: str
    open: ExitStack

    def commit(self, offset: int) -> None:
        self.groups.rewind(self.group, {TopicPartition(self.topic, number): offset for number in range(PARTITIONS)})

    def consumer(self, **settings: object) -> Consumer:
        common = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": self.group}
        consumer = Consumer({**common, "auto.offset.reset": "earliest", "enable.auto.commit": False, **settings})
        consumer.subscribe([self.topic])
        wait_until(lambda: consumer.poll(0.1) is not None and len(consumer.assignment()) == PARTITIONS, "its records")
        return consumer

    def transactional(self) -> Producer:
        config = {"bootstrap.servers": self.kafka.bootstrap_servers, "transactional.id": f"{self.group}-id"}
        producer = Producer(config)
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    def keda(self, *, reset: str = "earliest", topic: str | None = None) -> int:
        """The sum that the scaler computes: the end of each partition less the committed offset, or the whole end.

        Without a topic it takes those of which the group has committed offsets, with all their partitions.
        """
        admin = self.kafka.admin()
        asked = [ConsumerGroupTopicPartitions(self.group)]
        committed = {
            (one.topic, one.partition): one.offset
            for one in admin.list_consumer_group_offsets(asked)[self.group].result(30).topic_partitions
        }
        topics = {name for name, _ in committed} if topic is None else {topic}
        existing = admin.list_topics(timeout=30).topics
        partitions = [(name, number) for name in topics & existing.keys() for number in existing[name].partitions]
        found = admin.list_offsets({Position(*one): OffsetSpec.latest() for one in partitions})
        ends = {(one.topic, one.partition): future.result(30).offset for one, future in found.items()}
        without = (lambda end: end) if reset == "earliest" else (lambda _: 1)
        return sum(end - committed[one] if committed.get(one, -1) >= 0 else without(end) for one, end in ends.items())

    def ours(self, *more: str) -> int:
        said = Command(self.kafka.bootstrap_servers).run("group", self.group, "--summary", "-o", "json", *more)
        lag = json.loads(said)["group"][0]["lag"]
        assert isinstance(lag, int)
        return lag


@pytest.fixture
def place(kafka: EmbeddedKafka, topic: Topic, group: str, groups: Groups) -> Iterator[Place]:
    name = topic("scaled", partitions=PARTITIONS)
    records = ({"value": str(number), "partition": number % PARTITIONS} for number in range(COUNT))
    write_records(kafka.bootstrap_servers, name, records)
    groups.create(group, {TopicPartition(name, number): 4 for number in range(PARTITIONS)})
    with ExitStack() as opened:
        yield Place(kafka, groups, name, group, opened)


def no_member(_: Place) -> None:
    """The group as it is."""


def everything_read(place: Place) -> None:
    place.commit(10)


def a_member_that_reads(place: Place) -> None:
    consumer = place.open.enter_context(contextlib.closing(place.consumer()))
    consumer.commit(offsets=[Position(place.topic, 0, 9)], asynchronous=False)


def a_static_member_that_is_away(place: Place) -> None:
    # librdkafka leaves a static membership to the session timeout.
    place.consumer(**{"group.instance.id": f"{place.group}-app", "session.timeout.ms": 45_000}).close()


def a_paused_member(place: Place) -> None:
    consumer = place.open.enter_context(contextlib.closing(place.consumer()))
    consumer.pause(consumer.assignment())
    produce(place.kafka.bootstrap_servers, place.topic, 12)


def records_of_an_open_transaction(place: Place) -> None:
    producer = place.transactional()
    place.open.callback(producer.abort_transaction, 30)
    producer.produce(place.topic, b"open", partition=1)
    producer.flush(30)


def offsets_of_an_open_transaction(place: Place) -> None:
    consumer = place.open.enter_context(contextlib.closing(place.consumer()))
    producer = place.transactional()
    place.open.callback(producer.abort_transaction, 30)
    offsets = [Position(place.topic, 0, 9)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)


def an_aborted_transaction(place: Place) -> None:
    producer = place.transactional()
    producer.produce(place.topic, b"aborted", partition=1)
    producer.abort_transaction(30)


def a_rewind(place: Place) -> None:
    place.commit(1)


def offsets_below_the_logs_start(place: Place) -> None:
    delete_before(place.kafka, place.topic, {0: 8})


def side_groups(place: Place) -> None:
    for name in ("read-by-query", "read-by-stream"):
        place.groups.create(f"{place.group}-{name}", {TopicPartition(place.topic, 0): 2})


def partitions_that_were_added(place: Place) -> None:
    add_partitions(place.kafka, place.topic, PARTITIONS + 1)
    send(place.kafka, place.topic, ["added"], PARTITIONS)


STATES = (
    no_member,
    everything_read,
    a_member_that_reads,
    a_static_member_that_is_away,
    a_paused_member,
    records_of_an_open_transaction,
    offsets_of_an_open_transaction,
    an_aborted_transaction,
    a_rewind,
    offsets_below_the_logs_start,
    side_groups,
    partitions_that_were_added,
)


@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__.replace("_", " "))
def test_the_lag_of_a_topic_is_kedas(place: Place, make: Callable[[Place], None]) -> None:
    make(place)
    wait_until(lambda: place.ours("-t", place.topic) == place.keda(topic=place.topic), "the same lag")


def test_the_lag_over_topics_is_kedas(place: Place, topic: Topic) -> None:
    other = topic("scaled-too", partitions=2)
    produce(place.kafka.bootstrap_servers, other, 7)
    place.groups.rewind(place.group, {TopicPartition(other, number): 1 for number in range(2)})
    assert place.ours() == place.keda()
    assert place.ours("-t", other) == place.keda(topic=other)


@pytest.mark.skipif(
    not hasattr(DataSourceStreamReader, "getDefaultReadLimit"),
    reason="Spark before 4.2 commits the last batch of a run in the next run",
)
def test_a_scaled_job_starts_with_lag_and_leaves_none(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    for lag in (18, 7):
        assert place.keda(topic=place.topic) == lag
        frame = stream(spark, place.kafka, place.topic, kafka_group_id=place.group).writeStream.format("noop")
        job = run_to_end(frame.option("checkpointLocation", str(tmp_path)))
        assert sum(progress.numInputRows for progress in job.recentProgress) == lag
        wait_until(lambda: place.keda(topic=place.topic) == 0, "the last commit")
        assert place.ours("-t", place.topic) == 0
        produce(place.kafka.bootstrap_servers, place.topic, 7)


def test_where_keda_differs(place: Place, group: str) -> None:
    everything = [TopicPartition(place.topic, number) for number in range(PARTITIONS)]
    # An offset beyond the log's end, as of a topic that was created again, is subtracted from the others.
    place.groups.rewind(group, dict.fromkeys(everything[:1], 15))
    assert (place.ours("-t", place.topic), place.keda(topic=place.topic)) == (12, 12 - 5)
    # Nothing is committed: the whole end, also of what retention has deleted, or one for each partition.
    offsets_below_the_logs_start(place)
    place.groups.delete(group)
    assert sum(row.behind or 0 for row in place.groups.lag(group, topics=[place.topic])) == COUNT - 8
    assert place.keda(topic=place.topic) == COUNT
    assert place.keda(topic=place.topic, reset="latest") == PARTITIONS
