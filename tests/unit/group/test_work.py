"""What the leader knows of the work in partitions; a cluster that does not answer does not hold up the group."""

import functools
import logging
from contextlib import closing

import pytest

from assignors import PartitionWork, TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.list_offsets import end_offsets
from kafka_source.group.classic.balance import WorkLookup, work_of
from kafka_source.kafka_client import KafkaClient

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_the_lag_is_unknown_without_a_committed_offset_or_an_end() -> None:
    found = work_of({A: 100, B: 50, C: 7}, {A: 40, B: None, C: 9}, {A: 2.5})
    assert found == {A: PartitionWork(60, 2.5), B: PartitionWork(None, None), C: PartitionWork(0, None)}
    assert work_of({}, {A: 40}, {A: 1.0}) == {}


def test_without_an_answer_nothing_is_known_after_a_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    with closing(KafkaClient(Settings({"bootstrap.servers": "127.0.0.1:1"}))) as client:
        lookup = WorkLookup(client, "orders", functools.partial(end_offsets, read_committed=True))
        with caplog.at_level(logging.WARNING, "kafka_source.group.classic.balance"):
            assert client.run(lookup.look_up([A, B]), 20) == {}
    assert "lead group=orders: its lags are unknown" in caplog.text
