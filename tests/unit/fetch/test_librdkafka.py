"""The librdkafka engine: how the brokers know its consumers."""

from __future__ import annotations

import time

import pytest

from kafka_source.client_config import Settings
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.librdkafka import LibrdkafkaEngine
from kafka_source.offsets import Range
from kafka_source.options import Where, parse
from kafka_source.quota import Bounds
from kafka_source.quota.account import Account
from kafka_source.quota.pacer import Own, Pacer
from kafka_source.quota.settings import QuotaSettings
from kafka_source.schema import Column
from tests.fake_broker import TOPIC, Partition


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
    given = parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": TOPIC, **options}, Where.BATCH)
    request = FetchRequest(
        (Range(TOPIC, 0, 0, 10),),
        (Column("offset"),),
        batch_rows=1000,
        batch_bytes=1 << 20,
        timeout_ms=30_000,
        read_committed=False,
        fail_on_data_loss=True,
        label=given["groupIdPrefix"],
    )
    engine = LibrdkafkaEngine(Settings(given.kafka))
    assert sum(batch.num_rows for batch in engine.read(request)) == 10
    deadline = time.monotonic() + 30
    while not broker.groups:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert broker.groups == {label}


def test_under_a_quota_partitions_are_asked_for_one_after_another(broker):
    """A broker sends the beginning of a batch for each other partition, in vain."""
    broker.partitions = {number: Partition() for number in range(4)}
    for partition in broker.partitions.values():
        for _ in range(5):
            partition.add(10)
    quota = QuotaSettings(Bounds(bytes_per_second=1e6), False, 10, 1.0, None, None, "orders")
    engine = LibrdkafkaEngine(Settings({"bootstrap.servers": broker.bootstrap_servers}))
    for begin, end in [(0, 25), (25, 50)]:
        request = FetchRequest(
            tuple(Range(TOPIC, number, begin, end) for number in range(4)),
            (Column("partition"), Column("offset")),
            batch_rows=1000,
            batch_bytes=1 << 20,
            timeout_ms=30_000,
            read_committed=False,
            fail_on_data_loss=True,
            pacer=Pacer(0, Own(Account(quota))),
        )
        rows = [tuple(row.values()) for batch in engine.read(request) for row in batch.to_pylist()]
        assert sorted(rows) == [(number, offset) for number in range(4) for offset in range(begin, end)]
    assert {len(asked) for _, _, asked in broker.fetches} <= {0, 1}
