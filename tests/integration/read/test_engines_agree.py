"""The native and the librdkafka engine give the same rows, whoever wrote them and however."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer

from kafka_source.client_config import Settings
from kafka_source.errors import DataLossError, InvalidConfigurationError, UnreadableRecordError
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.model.record_columns import TOO_LARGE
from kafka_source.model.stream_offset import Range
from kafka_source.schema import Column, columns_of, source_schema
from kafkagroup.embedded import EmbeddedKafka, java_command
from tests.support.records import delete_before, write_records
from tests.support.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ENGINES = ("native", "librdkafka")
ALL = columns_of(source_schema(headers=True))
PARTITIONS = 2
RECORDS = 600

# Most tests compare the two.
pytestmark = pytest.mark.requires_native


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    # The records' times are of any year, so nothing may be deleted for its age.
    with EmbeddedKafka(config={"log.cleaner.backoff.ms": 100, "log.retention.ms": -1}) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def java_topics(broker: EmbeddedKafka) -> dict[tuple[str, str], str]:
    """Topics of Java's producer by codec and kind."""
    topics = {(codec, kind): f"java-{codec}-{kind}" for codec in CODECS for kind in ("plain", "transactions")}
    for name in topics.values():
        broker.create_topic(name, PARTITIONS)
    jobs = [f"{name}:{codec}:{kind}" for (codec, kind), name in topics.items()]
    program = str(Path(__file__).parents[2] / "apps" / "MixedProducer.java")
    command = java_command(program, broker.bootstrap_servers, str(RECORDS), *jobs)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "written", done.stderr[-3000:]
    return topics


@pytest.fixture
def reads(broker: EmbeddedKafka) -> Reads:
    return Reads(broker)


class Reads:
    """Reads topics of a broker with both engines."""

    def __init__(self, broker: EmbeddedKafka) -> None:
        self.settings = Settings({"bootstrap.servers": broker.bootstrap_servers})
        self._admin = broker.admin()

    def ranges(self, topic: str, *, committed: bool = False) -> tuple[Range, ...]:
        """Everything in a topic; with `committed` up to the last stable offset."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        def ask(spec: OffsetSpec) -> dict[int, int]:
            level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
            asked = self._admin.list_offsets(
                {TopicPartition(topic, n): spec for n in self.partitions(topic)}, isolation_level=level
            )
            return {tp.partition: future.result(30).offset for tp, future in asked.items()}

        first, last = ask(OffsetSpec.earliest()), ask(OffsetSpec.latest())
        return tuple(Range(topic, n, first[n], last[n]) for n in sorted(first))

    def partitions(self, topic: str) -> list[int]:
        return sorted(self._admin.list_topics(topic, timeout=30).topics[topic].partitions)

    def table(self, engine: str, ranges, columns=ALL, *, committed=False, lossless=True, rows=100, size=1 << 20):
        request = FetchRequest(
            ranges=tuple(ranges),
            columns=tuple(columns),
            batch_rows=rows,
            batch_bytes=size,
            timeout_ms=30_000,
            read_committed=committed,
            fail_on_data_loss=lossless,
            loss_patience_ms=1_000,
        )
        batches = list(engine_for(engine, self.settings).read(request))
        assert all(0 < batch.num_rows <= rows for batch in batches)
        return pa.Table.from_batches(batches) if batches else None

    def agree(self, ranges, **how) -> pa.Table | None:
        """What both engines give for these ranges, once it is seen to be the same, in offset order."""
        native, other = (self.table(engine, ranges, **how) for engine in ENGINES)
        if native is None or other is None:
            assert native is None and other is None
            return None
        assert native.schema.equals(other.schema)
        assert native.num_rows == other.num_rows
        if {"partition", "offset"} <= set(native.column_names):
            native, other = by_partition(native), by_partition(other)
        elif len(ranges) > 1:
            return None  # there is nothing to tell the partitions' rows apart
        for name in native.column_names:
            assert native.column(name).combine_chunks().equals(other.column(name).combine_chunks()), name
        return native


def by_partition(table: pa.Table) -> pa.Table:
    """The partitions one after the other; the rows of each as they came, which is in offset order."""
    parts = [table.filter(pc.equal(table.column("partition"), n)) for n in sorted(set(table["partition"].to_pylist()))]
    for part in parts:
        offsets = part.column("offset").to_pylist()
        assert offsets == sorted(set(offsets))
    return pa.concat_tables(parts)


def sub_ranges(ranges: tuple[Range, ...], rng: random.Random) -> tuple[Range, ...]:
    cuts = [sorted(rng.choices(range(r.start, r.end + 1), k=2)) for r in ranges]
    return tuple(Range(r.topic, r.partition, cut[0], cut[1]) for r, cut in zip(ranges, cuts, strict=True))


def write_mixed(servers: str, topic: str, codec: str) -> None:
    """Records of all kinds with librdkafka, in batches of mixed sizes."""
    rng = random.Random(codec)
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 100})
    failures: list[object] = []

    def some() -> bytes | None:
        plain = f"text {rng.random()}".encode()
        return rng.choice([None, b"", plain, plain, plain * rng.randrange(500), rng.randbytes(rng.randrange(3000))])

    for _ in range(RECORDS):
        headers: list[tuple[str, str | bytes | None]] = [
            (rng.choice(["trace", "größe"]), some()) for _ in range(rng.randrange(4))
        ]
        producer.produce(
            topic,
            key=some(),
            value=some(),
            partition=rng.randrange(PARTITIONS),
            timestamp=rng.randrange(1, 1_700_000_000_000),
            headers=headers or None,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        if rng.random() < 0.03:
            producer.flush(30)
    assert producer.flush(30) == 0
    assert not failures


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_the_java_producer(reads, java_topics, codec):
    ranges = reads.ranges(java_topics[codec, "plain"])
    table = reads.agree(ranges)
    assert table.num_rows == RECORDS
    # The records are of all kinds indeed.
    for name in ("key", "value", "headers"):
        assert 0 < table.column(name).null_count < RECORDS
    rng = random.Random(codec)
    for _ in range(10):
        reads.agree(sub_ranges(ranges, rng), rows=rng.choice([1, 7, 1000]), size=rng.choice([1, 5000, 1 << 24]))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("committed", [False, True])
def test_transactions_of_the_java_producer(reads, java_topics, codec, committed):
    topic = java_topics[codec, "transactions"]
    ranges = reads.ranges(topic, committed=committed)
    table = reads.agree(ranges, committed=committed)
    assert (0 < table.num_rows < RECORDS) if committed else table.num_rows == RECORDS
    offsets = sum(r.size for r in ranges)
    assert table.num_rows < offsets  # markers take offsets, aborted records too
    rng = random.Random(codec)
    for _ in range(10):
        # Ranges that begin and end in markers and in aborted records too.
        reads.agree(sub_ranges(ranges, rng), committed=committed, rows=rng.choice([1, 7, 1000]))


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_librdkafka(broker, reads, codec):
    topic = broker.create_topic(f"librdkafka-{codec}", PARTITIONS)
    write_mixed(broker.bootstrap_servers, topic, codec)
    ranges = reads.ranges(topic)
    assert reads.agree(ranges).num_rows == RECORDS
    rng = random.Random(codec)
    for _ in range(5):
        reads.agree(sub_ranges(ranges, rng))


def test_records_of_our_sink(broker, reads, spark):
    topic = broker.create_topic("sink", PARTITIONS)
    rows = spark.range(500).selectExpr(
        "IF(id % 7 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS key",
        "IF(id % 11 = 0, NULL, repeat(CAST(id AS STRING), id % 50)) AS value",
        "IF(id % 3 = 0, array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)), NULL) AS headers",
    )
    sink = rows.write.format("kafkagroup").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    sink.option("topic", topic).option("includeHeaders", "true").mode("append").save()
    table = reads.agree(reads.ranges(topic))
    assert table.num_rows == 500
    assert 0 < table.column("headers").null_count < 500


@pytest.mark.parametrize(
    "columns",
    [
        (Column("value"),),
        (Column("offset"), Column("partition"), Column("value", text=True), Column("key", text=True)),
        (Column("timestampType"), Column("timestamp"), Column("partition"), Column("offset"), Column("topic")),
        (Column("headers"), Column("partition", nullable=False), Column("offset", nullable=False)),
    ],
    ids=lambda columns: "+".join(c.name for c in columns),
)
def test_some_of_the_columns(broker, reads, columns):
    topic = broker.create_topic(f"columns-{len(columns)}-{columns[0].name}", PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
    for n in range(300):
        producer.produce(topic, f"wört {n}", None if n % 5 else f"schlüssel {n}", n % 2, headers=[("n", str(n))])
    assert producer.flush(30) == 0
    ranges = reads.ranges(topic)
    for one in ranges:
        assert reads.agree([one], columns=columns).column_names == [column.name for column in columns]
    reads.agree(ranges, columns=columns)


def test_compacted_topics(broker, reads):
    config = {
        "cleanup.policy": "compact",
        "segment.ms": 100,
        "min.cleanable.dirty.ratio": 0.01,
        "min.compaction.lag.ms": 0,
        "delete.retention.ms": 0,
    }
    topic = broker.create_topic("compacted", PARTITIONS, config=config)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50})
    rng = random.Random(1)
    written = 0

    def write() -> None:
        nonlocal written
        for _ in range(200):
            key = str(rng.randrange(30))
            producer.produce(topic, rng.choice([None, f"value {rng.random()}"]), key, partition=rng.randrange(2))
            written += 1
        assert producer.flush(30) == 0

    def rows() -> int:
        return reads.table("native", reads.ranges(topic)).num_rows

    def compacted() -> bool:
        # A segment is rolled, and so can be cleaned, by a record that comes after its time.
        write()
        return rows() < written - 300

    def quiet() -> bool:
        before = rows()
        time.sleep(0.5)
        return rows() == before

    write()
    wait_until(compacted, "compaction")
    wait_until(quiet, "the end of compaction")
    ranges = reads.ranges(topic)
    reads.agree(ranges)
    for _ in range(20):
        reads.agree(sub_ranges(ranges, rng))


def test_the_time_of_appending(broker, reads):
    config = {"message.timestamp.type": "LogAppendTime"}
    topic = broker.create_topic("append-time", PARTITIONS, config=config)
    before = int(time.time() * 1000)
    write_mixed(broker.bootstrap_servers, topic, "zstd")
    table = reads.agree(reads.ranges(topic))
    assert set(table.column("timestampType").to_pylist()) == {1}
    assert pc.min(table.column("timestamp")).as_py().timestamp() * 1000 >= before - 1


def test_a_batch_larger_than_any_fetch(broker, reads):
    config = {"max.message.bytes": 30_000_000}
    topic = broker.create_topic("large", PARTITIONS, config=config)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 30_000_000})
    for n, size in enumerate([10, 12_000_000, 10, 10, 9_000_000, 300_000]):
        producer.produce(topic, bytes([n]) * size, partition=n % 2)
        assert producer.flush(60) == 0
    table = reads.agree(reads.ranges(topic))
    assert sorted(len(value) for value in table.column("value").to_pylist()) == [
        10, 10, 10, 300_000, 9_000_000, 12_000_000,
    ]  # fmt: skip


def test_more_partitions_than_fit_in_one_response(broker, reads):
    topic = broker.create_topic("many", 30)
    records = ({"value": n.to_bytes(4, "big") * 400, "partition": n % 30} for n in range(30 * 400))
    write_records(broker.bootstrap_servers, topic, records, {"queue.buffering.max.kbytes": 1 << 20})
    table = reads.agree(reads.ranges(topic), rows=10_000)
    assert table.num_rows == 30 * 400


@pytest.mark.parametrize("engine", ENGINES)
def test_text_that_is_none_names_its_record(broker, reads, engine):
    topic = broker.create_topic(f"no-text-{engine}", 1)
    records = ({"value": value} for value in (b"fine", b"\xff\xfe", b"fine"))
    write_records(broker.bootstrap_servers, topic, records)
    with pytest.raises(UnreadableRecordError, match="UTF-8") as error:
        reads.table(engine, reads.ranges(topic), [Column("value", text=True)])
    assert (error.value.topic, error.value.partition, error.value.offset) == (topic, 0, 1)
    assert reads.agree(reads.ranges(topic)).num_rows == 3


def test_a_timestamp_that_is_too_large_names_its_record_or_has_a_sign(broker, reads):
    topic = broker.create_topic("beyond-time", 1, config={"message.timestamp.after.max.ms": 2**63 - 1})
    records = ({"value": b"v", "timestamp": at} for at in (7, 2**63 // 1000 + 1, 2**63 - 1))
    write_records(broker.bootstrap_servers, topic, records)
    for engine in ENGINES:
        with pytest.raises(UnreadableRecordError, match="too large for microseconds") as error:
            reads.table(engine, reads.ranges(topic), [Column("timestamp")])
        assert error.value.offset == 1
        found = reads.table(engine, reads.ranges(topic), [Column("timestamp", lenient=True)])
        assert found["timestamp"].cast(pa.int64()).to_pylist() == [7000, TOO_LARGE, TOO_LARGE]


@pytest.mark.parametrize("engine", ENGINES)
def test_nulls_in_a_column_that_must_have_none(broker, reads, engine):
    topic = broker.create_topic(f"null-{engine}", 1)
    write_records(broker.bootstrap_servers, topic, [{"value": None, "key": "key"}])
    with pytest.raises(InvalidConfigurationError, match="declares value NOT NULL"):
        reads.table(engine, reads.ranges(topic), [Column("value", nullable=False)])


@pytest.mark.parametrize("engine", ENGINES)
def test_records_that_are_gone(broker, reads, engine):
    topic = broker.create_topic(f"gone-{engine}", PARTITIONS)
    write_records(broker.bootstrap_servers, topic, ({"value": str(n), "partition": n % 2} for n in range(100)))
    ranges = reads.ranges(topic)
    delete_before(broker, topic, {0: 20})
    with pytest.raises(DataLossError) as error:
        reads.table(engine, ranges)
    assert (error.value.topic, error.value.partition, error.value.planned) == (topic, 0, 0)
    table = by_partition(reads.table(engine, ranges, lossless=False))
    assert table.column("offset").to_pylist() == [*range(20, 50), *range(50)]
    # What is wholly gone, and what never was.
    gone = [Range(topic, 0, 3, 15), Range(topic, 1, 49, 52)]
    with pytest.raises(DataLossError):
        reads.table(engine, gone)
    assert reads.table(engine, gone, lossless=False).column("offset").to_pylist() == [49]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_topic_that_is_gone(broker, reads, engine):
    topic = broker.create_topic(f"deleted-{engine}", 1)
    write_records(broker.bootstrap_servers, topic, [{"value": "value"}])
    ranges = reads.ranges(topic)
    assert reads.table(engine, ranges).num_rows == 1
    broker.delete_topic(topic)

    def loss():
        try:
            reads.table(engine, ranges)
        except DataLossError as error:
            return str(error)
        # A leader answers until it has taken its replica away, a moment after the deletion.
        return None

    assert "the partition no longer exists" in wait_until(loss, "the record to be gone")
