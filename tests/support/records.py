"""Records: write them, read them with Spark, look at what a stream has written, and watch what is committed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from kafkagroup.embedded import EmbeddedKafka
from tests.support.waiting import wait_until

Topic = Callable[..., str]
"""The fixture `topic`: `topic(prefix, partitions=4, records=9)` makes a fresh topic with numbers; returns its name."""


def produce(
    servers: str, topic: str, count: int, *, first: int = 0, config: Mapping[str, object] | None = None
) -> None:
    """Write the numbers [first, first + count) as values, keyed by themselves."""
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000, **(config or {})}
    )
    for number in range(first, first + count):
        text = str(number).encode()
        producer.produce(
            topic, key=text, value=text, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)
    assert not failures, failures[:3]


def write_records(
    servers: str, topic: str, records: Iterable[Mapping[str, Any]], config: Mapping[str, object] | None = None
) -> None:
    """Write records, which are arguments of `Producer.produce`, in this order."""
    producer = Producer({"bootstrap.servers": servers, **(config or {})})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(60) == 0


def send(
    kafka: EmbeddedKafka, topic: str, values: Iterable[object], partition: int = 0, timestamp: int | None = None
) -> None:
    """Write values to a partition, in this order."""
    # 0 means the time of the client.
    place = {"partition": partition, "timestamp": timestamp or 0}
    write_records(kafka.bootstrap_servers, topic, ({"value": str(value), **place} for value in values))


def open_transaction(servers: str, transactional_id: str, topic: str, values: Iterable[bytes | str] = ()) -> Producer:
    """A producer in an open transaction, which has written these values."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    # An abort drops what was not sent yet.
    assert producer.flush(60) == 0
    return producer


def delete_before(kafka: EmbeddedKafka, topic: str, offsets: Mapping[int, int]) -> None:
    """Delete the records before an offset of each partition, as retention does."""
    asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    admin = kafka.admin()
    for done in admin.delete_records(asked).values():
        done.result(30)


def add_partitions(kafka: EmbeddedKafka, topic: str, count: int) -> None:
    """Let a topic have more partitions, and wait until brokers say so."""
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(60)
    wait_until(
        lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == count, "the new partitions"
    )


def create_again(kafka: EmbeddedKafka, topic: str, partitions: int) -> None:
    """Create a topic of a name that was deleted a moment ago."""

    def is_created() -> bool:
        try:
            kafka.create_topic(topic, partitions)
        except KafkaException:
            # The old one is marked for deletion for a while.
            return False
        return True

    wait_until(is_created, f"topic {topic} to be created again")


def reader(spark: SparkSession, kafka: EmbeddedKafka, topic: str, **options: object):
    """A batch reader of a topic; options with _ for . in their names, e.g. kafka_group_id."""
    return _with(spark.read, kafka, topic, options)


def stream(spark: SparkSession, kafka: EmbeddedKafka, topic: str, **options: object) -> DataFrame:
    """A stream of a topic, with options as in `reader`."""
    return _with(spark.readStream, kafka, topic, options).load()


def to_files(frame: DataFrame, folder: Path) -> DataStreamWriter:
    """A stream into `folder/out`, which `written` reads, with its checkpoint beside it."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.option("path", str(folder / "out"))


def to_topic(
    frame: DataFrame, kafka: EmbeddedKafka, topic: str, checkpoint: Path, **options: object
) -> DataStreamWriter:
    """A stream into a topic, with options as in `reader`."""
    return _with(frame.writeStream, kafka, "", {"topic": topic, "checkpointLocation": str(checkpoint), **options})


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """A query that is stopped at the end."""
    try:
        yield query
    finally:
        query.stop()


def run_to_end(writer: DataStreamWriter, seconds: int = 200) -> StreamingQuery:
    """Run a stream on the records that are there now; return the query, which has ended."""
    with running(writer.trigger(availableNow=True).start()) as query:
        assert query.awaitTermination(seconds), "the stream neither ends nor tells why"
    return query


def _with(source, kafka, topic, options):
    source = source.format("kafkagroup").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    if topic:
        source = source.option("subscribe", topic)
    for name, value in options.items():
        source = source.option(name.replace("_", "."), value)
    return source


def numbers(frame: DataFrame) -> list[int]:
    """The values of a frame as sorted numbers."""
    return sorted(int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect())


def written(folder: Path) -> list[int]:
    """The values that a stream has written to its file sink so far, as sorted numbers; only files of whole batches."""
    return sorted(value for _, _, value in written_records(folder))


def written_records(folder: Path) -> list[tuple[int, int, int]]:
    """The same with their places: (partition, offset, value)."""
    return sorted((p, o, int(value)) for p, o, value in written_rows(folder, "partition", "offset", "value"))


def written_rows(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """These columns of all rows that a stream has written so far."""
    log = folder / "_spark_metadata"
    try:
        lines = {line for entry in log.glob("[0-9]*") for line in entry.read_text().splitlines()[1:]}
    except FileNotFoundError:
        # Spark deletes the entries that a compacted one repeats.
        return written_rows(folder, *columns)
    paths = [unquote(urlparse(json.loads(line)["path"]).path) for line in lines]
    return [row for path in paths for row in _rows(path, columns)]


@cache
def _rows(path: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    # Tests look again and again at files that never change.
    table = pq.read_table(path, columns=list(columns), partitioning=None)
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


class CommittedReader:
    """Reads a topic from its start on; `records` are (partition, offset, key, value) in the order it saw them."""

    def __init__(self, servers: str, topic: str, partitions: int = 1) -> None:
        self.records: list[tuple[int, int, bytes | None, bytes]] = []
        self._partitions = partitions
        self._closing = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "committed-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
                # A broker that is cut off does not answer.
                "socket.timeout.ms": 10_000,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    place = message.partition() or 0, message.offset() or 0
                    self.records.append((*place, message.key(), message.value() or b""))
        self._consumer.close()

    @property
    def values(self) -> list[bytes]:
        """What it saw so far, sorted."""
        return sorted(record[3] for record in list(self.records))

    def wait_for(self, count: int, seconds: float = 60) -> None:
        """Until it has seen so many records."""
        wait_until(lambda: len(self.records) >= count, f"{count} records, of which it saw {len(self.records)}", seconds)

    def check_order(self) -> None:
        """No place was read twice, and none out of its order."""
        for partition in range(self._partitions):
            offsets = [record[1] for record in self.records if record[0] == partition]
            assert offsets == sorted(set(offsets))

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join(30)
