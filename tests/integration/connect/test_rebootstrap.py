"""Queries that outlive the loss of every broker they know, and stop at another cluster behind the name (F35-F37)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.model.topic_selection import TopicSelection
from kafkagroup.embedded import EmbeddedKafka
from kafkagroup.embedded.tcp_proxy import Frame, TcpProxy
from tests.support.records import numbers, produce, written
from tests.support.waiting import wait_until

METADATA = 3
REBOOTSTRAP_REQUIRED = 129
FIRST, MORE = 2000, 1000


@dataclass
class Place:
    """A topic of 2 partitions behind a bootstrap name that can be pointed elsewhere: the proxy `entry`."""

    entry: TcpProxy
    kafka: EmbeddedKafka
    topic: str = "orders"

    def move(self) -> int:
        """Every broker goes to another port, and the name with it; the old port."""
        old = self.kafka.port(1)
        self.entry.cut()
        self.kafka.restart(1, new_ports=True)
        self.entry.connect_to(self.kafka.port(1))
        return old

    def wait_for_records(self) -> None:
        """Until the topic has some, in a transaction or not."""
        cluster = Cluster(Settings({"bootstrap.servers": self.kafka.internal_bootstrap_servers}))
        partitions = cluster.partitions(TopicSelection(topics=(self.topic,)))
        wait_until(lambda: any(cluster.latest(partitions, read_committed=False).values()), "the first records")

    def produce(self, count: int, first: int) -> None:
        produce(self.kafka.internal_bootstrap_servers, self.topic, count, first=first)


@contextmanager
def place(**kafka: Any) -> Iterator[Place]:
    with TcpProxy() as entry, EmbeddedKafka(**kafka) as started:
        started.create_topic("orders", 2)
        entry.connect_to(started.port(1))
        yield Place(entry, started)


class Running:
    """A stream from the topic into files."""

    def __init__(self, spark, place: Place, tmp_path, **options: object) -> None:
        self.folder = tmp_path / "rows"
        reader = spark.readStream.format("kafkagroup").option("subscribe", place.topic)
        reader = reader.option("kafka.bootstrap.servers", f"127.0.0.1:{place.entry.port}")
        reader = reader.option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name.replace("_", "."), value)
        rows = reader.load().selectExpr("partition", "offset", "CAST(value AS STRING) value")
        writer = rows.writeStream.format("parquet").option("path", str(self.folder))
        self.query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def has(self, count: int) -> None:
        """Wait until the numbers [0, count) are written, each once."""

        def done() -> bool:
            assert self.query.isActive, self.query.exception()
            return self.folder.exists() and len(written(self.folder)) >= count

        wait_until(done, f"{count} rows", 120)
        assert written(self.folder) == list(range(count))

    def fails(self) -> str:
        wait_until(lambda: not self.query.isActive, "the end of the query", 120)
        return str(self.query.exception())

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()


QUICK = {
    "metadata_recovery_rebootstrap_trigger_ms": 3000,
    "kafka_request_timeout_ms": 2000,
    "kafka_socket_connection_setup_timeout_ms": 2000,
}
IN_GROUP = {"kafka_group_id": "movers", "group_members": 2, "kafka_group_instance_id": "movers"}


@pytest.mark.parametrize(
    ("engine", "group"), [("native", True), pytest.param("librdkafka", False, marks=pytest.mark.long)]
)
def test_a_stream_goes_on_where_the_brokers_have_moved_to(spark, tmp_path, engine, group):
    with place() as there:
        there.produce(FIRST, 0)
        with Running(spark, there, tmp_path, engine=engine, **(IN_GROUP if group else {})) as running:
            running.has(FIRST)
            there.move()
            there.produce(MORE, FIRST)
            running.has(FIRST + MORE)


COUNT = 20_000


@contextmanager
def read_slowly(spark, there: Place, **options: object) -> Iterator[Future[list[int]]]:
    """The numbers of a batch that is being read when this begins, so slowly that brokers can move meanwhile."""
    there.produce(COUNT, 0)
    reader = spark.read.format("kafkagroup").option("subscribe", there.topic)
    reader = reader.option("kafka.bootstrap.servers", f"127.0.0.1:{there.entry.port}")
    for name, value in {"quota_records_per_second": 2500, **options}.items():
        reader = reader.option(name.replace("_", "."), value)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(numbers, reader.load())
        wait_until(lambda: bool(spark.sparkContext.statusTracker().getActiveStageIds()), "the first task")
        time.sleep(3)
        yield reading


@pytest.mark.parametrize("engine", ["native", pytest.param("librdkafka", marks=pytest.mark.long)])
def test_a_batch_is_read_to_its_end_where_the_brokers_have_moved_to(spark, engine):
    with place() as there, read_slowly(spark, there, engine=engine) as reading:
        there.move()
        assert reading.result(180) == list(range(COUNT))


@pytest.mark.long
@pytest.mark.parametrize("transactional", [False, True])
def test_a_sink_writes_on_where_the_brokers_have_moved_to(spark, transactional):
    with place() as there, ThreadPoolExecutor(1) as pool:
        rows = spark.range(COUNT, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
        writer = rows.write.format("kafkagroup").mode("append").option("topic", there.topic)
        writer = writer.option("kafka.bootstrap.servers", f"127.0.0.1:{there.entry.port}")
        writer = writer.option("quota.records.per.second", 2500).option("transactional", transactional)
        if transactional:
            writer = writer.option("transactional.id.prefix", "movers")
        moving = pool.submit(lambda: (there.wait_for_records(), there.move()))
        # Here, for Spark knows its session in this thread alone.
        writer.save()
        moving.result(1)
        reader = spark.read.format("kafkagroup").option("subscribe", there.topic)
        reader = reader.option("kafka.isolation.level", "read_committed")
        found = numbers(reader.option("kafka.bootstrap.servers", there.kafka.bootstrap_servers).load())
        # A transaction that the move met may have been aborted and written anew; neither is seen twice.
        assert found == list(range(COUNT))


@pytest.mark.long
@pytest.mark.requires_native
def test_a_stream_leaves_frozen_brokers_for_the_name(spark, tmp_path):
    with place() as there:
        there.produce(FIRST, 0)
        with Running(spark, there, tmp_path, engine="native", **IN_GROUP, **QUICK) as running:
            running.has(FIRST)
            # Whoever asks at the old address gets a connection, and no answer.
            with TcpProxy(there.move()) as frozen:
                frozen.connect_to(there.kafka.port(1))
                frozen.hold()
                there.produce(MORE, FIRST)
                running.has(FIRST + MORE)


@pytest.mark.long
def test_a_stream_starts_over_when_a_proxy_asks_for_it(spark, tmp_path):
    with TcpProxy() as entry, EmbeddedKafka(advertised_ports={1: entry.port}) as kafka:
        kafka.create_topic("orders", 2)
        entry.connect_to(kafka.port(1))
        there = Place(entry, kafka)
        there.produce(FIRST, 0)
        with Running(spark, there, tmp_path, kafka_metadata_max_age_ms=1000, **IN_GROUP) as running:
            running.has(FIRST)
            told: set[int] = set()

            def demand(frame: Frame) -> list[bytes]:
                if frame.api_key != METADATA or frame.api_version < 13 or len(told) >= 3:
                    return [frame.payload]
                told.add(frame.connection)
                # The last field of the flexible response: the error code, then an empty set of tagged fields.
                return [frame.payload[:-3] + REBOOTSTRAP_REQUIRED.to_bytes(2, "big") + b"\0"]

            entry.on_response = demand
            wait_until(lambda: len(told) >= 3, "three connections that are told to start over")
            there.produce(MORE, FIRST)
            running.has(FIRST + MORE)


@pytest.mark.long
@pytest.mark.parametrize("wanted", [False, True])
def test_another_cluster_behind_the_name_stops_a_stream_unless_it_is_wanted(spark, tmp_path, wanted):
    with place() as there, EmbeddedKafka() as other:
        other.create_topic("orders", 2)
        produce(other.internal_bootstrap_servers, "orders", FIRST + MORE)
        there.produce(FIRST, 0)
        with Running(spark, there, tmp_path) as running:
            running.has(FIRST)
            wait_until(lambda: running.query.lastProgress is not None, "the first progress")
            known = json.loads(running.query.lastProgress.sources[0].endOffset)["cluster"]
            if wanted:
                running.query.stop()
            there.kafka.kill(1)
            there.entry.cut()
            there.entry.connect_to(other.port(1))
            if not wanted:
                told = running.fails()
                assert known in told
                assert "now leads to the cluster" in told
        with Running(spark, there, tmp_path, **({"cluster_moved_from": known} if wanted else {})) as again:
            if wanted:
                # The partitioner puts the same numbers in the same places there.
                again.has(FIRST + MORE)
            else:
                assert known in again.fails()
