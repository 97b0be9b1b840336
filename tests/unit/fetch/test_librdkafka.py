"""The librdkafka engine: how the brokers know its consumers."""

from __future__ import annotations

import time

import pytest

from kafka_source.client_config import Settings
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.librdkafka import LibrdkafkaEngine
from kafka_source.offsets import Range
from kafka_source.options import Where, parse
from kafka_source.schema import Column
from tests.unit.fetch.fake_broker import TOPIC, Partition


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
