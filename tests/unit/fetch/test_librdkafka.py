"""The librdkafka engine: how the brokers know its consumers."""

from __future__ import annotations

import time

import pytest

from kafka_source.client_config import Settings
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.librdkafka import LibrdkafkaEngine
from kafka_source.model.stream_offset import Range
from kafka_source.options import Where, check_read
from kafka_source.quota import Bounds
from kafka_source.quota.account import Account
from kafka_source.quota.pacer import LocalAllowances, Pacer
from kafka_source.quota.settings import QuotaSettings
from kafka_source.schema import Column
from tests.fake_broker import TOPIC, Partition


def read(engine, ranges, **more):
    request = FetchRequest(
        ranges,
        (Column("partition"), Column("offset")),
        batch_rows=1000,
        batch_bytes=1 << 20,
        timeout_ms=30_000,
        read_committed=False,
        fail_on_data_loss=True,
        **more,
    )
    return [tuple(row.values()) for batch in engine.read(request) for row in batch.to_pylist()]


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
    deadline = time.monotonic() + 30
    while not broker.groups:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert broker.groups == {label}


def account_of(bytes_per_second):
    return LocalAllowances(Account(QuotaSettings(Bounds(bytes_per_second), False, 10, 1.0, None, None, "orders")))


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
        rows = read(engine, ranges, pacer=Pacer(0, account_of(bound)))
        assert sorted(rows) == [(number, offset) for number in range(4) for offset in range(begin, end)]
    assert max(len(asked) for _, _, asked in broker.fetches) == at_once


class Noting:
    """Allowances of an account, and for how many offsets each was asked."""

    def __init__(self, own):
        self._own = own
        self.left = []

    def ask(self, report):
        self.left.append(report.left)
        return self._own.ask(report)

    def close(self):
        self._own.close()


def test_the_last_record_has_no_turn_to_wait_for_when_it_is_fetched_already(broker):
    """However small answers are on average, as of a broker that refuses fetches."""
    broker.partitions = {0: Partition()}
    for _ in range(20):
        broker.partitions[0].add(1, value=b"v" * 5000)
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    for begin in (0, 10):
        allowances = Noting(account_of(100_000))
        broker.in_vain = 10
        rows = read(engine, (Range(TOPIC, 0, begin, begin + 10),), pacer=Pacer(0, allowances))
        assert rows == [(0, offset) for offset in range(begin, begin + 10)]
        assert 2 in allowances.left
        assert 1 not in allowances.left


class Taking(Pacer):
    """A pacer that remembers how many records were taken out at a time."""

    def __init__(self, account):
        super().__init__(0, account)
        self.taken = []

    def measured(self, tp, size, offsets):
        self.taken.append(offsets)
        super().measured(tp, size, offsets)


def test_what_has_come_of_the_last_fetch_is_taken_out_at_once(broker):
    broker.partitions = {0: Partition()}
    for _ in range(20):
        broker.partitions[0].add(100, value=b"v" * 100)
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    # How large an answer is the engine knows from librdkafka's statistics, after a second.
    for begin, end in [(0, 1200), (1200, 2000)]:
        pacer = Taking(account_of(100_000))
        assert len(read(engine, (Range(TOPIC, 0, begin, end),), pacer=pacer)) == end - begin
        # As is the first of all, and may be what came while it was looked for.
        assert pacer.taken.count(1) < 10
