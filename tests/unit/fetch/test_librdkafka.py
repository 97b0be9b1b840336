"""The librdkafka engine: how the brokers know its consumers."""

import struct
import threading
import time
from dataclasses import replace

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from kafka_source.client_config import Settings
from kafka_source.errors import AuthenticationError, DataLossError, RetriableError, UnreadableRecordError
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.librdkafka import LibrdkafkaEngine
from kafka_source.model.stream_offset import Range
from kafka_source.options import Where, check_read
from kafka_source.quota.account import Account
from kafka_source.quota.bounds import Bounds, QuotaSettings
from kafka_source.quota.task_pacer import Pacer
from kafka_source.schema import Column
from tests.support.fake_broker import TOPIC, Partition
from tests.support.waiting import wait_until

UNKNOWN_SERVER_ERROR, TOPIC_AUTHORIZATION_FAILED = -1, 29


def request(ranges, **more):
    return FetchRequest(
        ranges,
        (Column("partition"), Column("offset")),
        batch_rows=1000,
        batch_bytes=1 << 20,
        fail_on_data_loss=True,
        **{"timeout_ms": 30_000, "read_committed": False, **more},
    )


def read(engine, ranges, **more):
    return [tuple(row.values()) for batch in engine.read(request(ranges, **more)) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({}, "spark-kafka-source"),
        ({"groupIdPrefix": "reports"}, "reports"),
        ({"groupIdPrefix": "reports", "kafka.group.id": "orders"}, "orders"),
    ],
)
def test_a_consumer_has_the_label_that_the_options_give_it(broker, options, label):
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(10)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC, **options}
    parsed = check_read(given, Where.BATCH).options
    engine = LibrdkafkaEngine(parsed.settings)
    assert len(read(engine, (Range(TOPIC, 0, 0, 10),), label=parsed.group_id_prefix)) == 10
    wait_until(lambda: broker.groups, "a group of the consumer")
    assert broker.groups == {label}


def pacer_of(bytes_per_second):
    bounds = Bounds(bytes_per_second)
    account = Account(QuotaSettings(bounds, 10, 1.0, None, None, "orders"), bounds)
    return Pacer(0, lambda report: account.grant(report, time.monotonic()))


@pytest.mark.parametrize(("bound", "at_once"), [(1e6, 1), (1e12, 4)])
def test_under_a_quota_partitions_are_asked_for_one_after_another(broker, bound, at_once):
    """A broker sends the beginning of a batch for each other partition, in vain; where that is little, it may."""
    broker.partitions = {number: Partition() for number in range(4)}
    for partition in broker.partitions.values():
        for _ in range(5):
            partition.add(10)
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    for begin, end in [(0, 25), (25, 50)]:
        ranges = tuple(Range(TOPIC, number, begin, end) for number in range(4))
        rows = read(engine, ranges, pacer=pacer_of(bound))
        assert sorted(rows) == [(number, offset) for number in range(4) for offset in range(begin, end)]
    assert max(len(asked) for _, _, asked in broker.fetches) == at_once


@pytest.mark.parametrize(("records", "size"), [(100, 100), (1, 5000)])
def test_a_reader_keeps_to_its_quota(broker, records, size):
    broker.partitions = {0: Partition()}
    for _ in range(300_000 // records // size):
        broker.partitions[0].add(records, value=b"v" * size)
    end = 300_000 // size
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    pacer = pacer_of(100_000)
    begun = time.monotonic()
    assert [offset for _, offset in read(engine, (Range(TOPIC, 0, 0, end),), pacer=pacer)] == list(range(end))
    assert time.monotonic() - begun > 2
    assert pacer.delay > 1


@pytest.mark.parametrize(
    "record", [{"key": b"k" * 1000}, {"value": b"v" * 1000}, {"headers": [("h", b"h" * 999), ("n", None)]}], ids="".join
)
def test_keys_values_and_headers_count_for_the_size_of_a_batch(broker, record):
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(100, **{"value": None, **record})
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    columns = tuple(map(Column, ("offset", "key", "value", "headers")))
    asked = replace(request((Range(TOPIC, 0, 0, 100),)), columns=columns, batch_bytes=10_000)
    batches = list(engine.read(asked))
    assert [batch.num_rows for batch in batches] == [10] * 10
    headers = [(one["key"], one["value"]) for one in batches[0].column("headers")[0].as_py() or ()]
    assert headers == record.get("headers", [])


def test_keys_count_for_the_quota(broker):
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(100, key=b"k" * 1000, value=None)
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    assert len(read(engine, (Range(TOPIC, 0, 0, 100),), pacer=pacer_of(1e6))) == 100
    assert engine.record_bytes[TOPIC] >= 1000


@pytest.mark.parametrize("fetches", [3, 1000], ids=["passes", "does not pass"])
def test_trouble_inside_a_broker_may_pass(broker, fetches):
    broker.partitions = {0: Partition(error=UNKNOWN_SERVER_ERROR)}
    broker.partitions[0].add(10)

    def recover(_):
        if len(broker.fetches) == fetches:
            broker.partitions[0].error = 0

    broker.on_fetch = recover
    # How long librdkafka waits after an error.
    settings = {"bootstrap.servers": broker.bootstrap_servers, "fetch.error.backoff.ms": "50"}
    engine, ranges = LibrdkafkaEngine(Settings(settings)), (Range(TOPIC, 0, 0, 10),)
    if fetches == 3:
        assert len(read(engine, ranges)) == 10
        return
    with pytest.raises(RetriableError, match=rf"{TOPIC}-0 at offset 0; the last problem was: "):
        read(engine, ranges, timeout_ms=2_000)


@pytest.mark.parametrize("begin", [0, 10], ids=["of the same task", "of another task"])
def test_a_problem_that_has_passed_is_not_told(broker, begin):
    broker.partitions = {0: Partition(error=UNKNOWN_SERVER_ERROR)}
    broker.partitions[0].add(10)

    def recover(_):
        if len(broker.fetches) == 2:
            broker.partitions[0].error = 0

    broker.on_fetch = recover
    settings = {"bootstrap.servers": broker.bootstrap_servers, "fetch.error.backoff.ms": "50"}
    engine, how = LibrdkafkaEngine(Settings(settings)), {"read_committed": True, "timeout_ms": 2_000}
    if begin:
        assert len(read(engine, (Range(TOPIC, 0, 0, 10),), **how)) == 10
    broker.partitions[0].add(10)
    broker.partitions[0].held_back = 10
    with pytest.raises(RetriableError, match=rf"{TOPIC}-0 at offset 10$"):
        read(engine, (Range(TOPIC, 0, begin, 20),), **how)


def test_a_fetch_that_the_brokers_refuse_is_an_error_at_once(broker):
    broker.partitions = {0: Partition(error=TOPIC_AUTHORIZATION_FAILED, end=10)}
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    with pytest.raises(AuthenticationError, match=rf"{TOPIC}-0 at offset 0"):
        read(engine, (Range(TOPIC, 0, 0, 10),))


def test_the_time_for_which_its_batches_are_used_is_not_the_readers(broker):
    """With a quota a batch is handed out after half a second, also where nothing has come just then."""
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(10)
    broker.partitions[0].add(10)
    used = threading.Event()

    def wait(_):
        broker.in_vain = int(len(broker.fetches) > 1 and not used.is_set())

    broker.on_fetch = wait
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    found = []
    for batch in engine.read(request((Range(TOPIC, 0, 0, 20),), pacer=pacer_of(1e6), timeout_ms=3_000)):
        found += batch.column("offset").to_pylist()
        if len(found) == 10:
            time.sleep(3.2)
            used.set()
    assert found == list(range(20))


def test_a_header_whose_key_is_no_text_is_told_with_its_record(broker):
    """librdkafka's Python client gives no such headers; the native engine does, as Java's.

    The good ones before it are so many that CPython has made its call of the client a fast one, which sees no error.
    """
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for offset in range(100):
        builder.append(offset, 0, None, b"value", [("good", b"x")])
    builder.append(100, 0, None, b"value", [("zz", b"x"), ("good", b"y")])
    data = bytearray(builder.build())
    data[data.index(b"zz")] = 0xFF
    struct.pack_into(">I", data, 17, calc_crc32c(memoryview(data)[21:]))
    broker.partitions = {0: Partition({0: bytes(data)}, end=101)}
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    ranges = (Range(TOPIC, 0, 0, 101),)
    assert len(read(engine, ranges)) == 101
    with pytest.raises(UnreadableRecordError, match=rf"{TOPIC}-0 at offset 100 .*key of a header"):
        list(engine.read(replace(request(ranges), columns=(Column("headers"),))))


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
def test_a_log_that_stays_too_short_has_lost_what_was_planned(broker, committed):
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(10)
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    how = {"read_committed": committed, "loss_patience_ms": 300}
    with pytest.raises(DataLossError, match=rf"{TOPIC}-0 cannot be read from offset 10: .*\[0, 10\)"):
        read(engine, (Range(TOPIC, 0, 0, 20),), **how)


def test_it_has_lost_it_also_where_the_end_is_told_after_the_records(broker):
    """Planned records may be missing for as long as records may be late, and the first of these times begins later."""
    broker.partitions = {0: Partition()}
    broker.partitions[0].add(10)
    broker.on_fetch = lambda _: time.sleep(0.3 if len(broker.fetches) > 1 else 0)
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    with pytest.raises(DataLossError, match=rf"{TOPIC}-0 cannot be read from offset 10: .*\[0, 10\)"):
        read(engine, (Range(TOPIC, 0, 0, 20),), timeout_ms=1_000)


def test_what_an_open_transaction_holds_back_is_not_lost(broker):
    broker.partitions = {0: Partition(held_back=10)}
    broker.partitions[0].add(10)
    broker.partitions[0].add(10)
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    how = {"read_committed": True, "loss_patience_ms": 300, "timeout_ms": 3_000}
    with pytest.raises(RetriableError, match=rf"No records came .*{TOPIC}-0 at offset 10"):
        read(engine, (Range(TOPIC, 0, 0, 20),), **how)
