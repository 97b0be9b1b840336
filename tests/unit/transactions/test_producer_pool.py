"""Producers that are made ready: what is heard of their trouble."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kafka_source.errors import KafkaGroupError
from kafka_source.runtime.deadline import Deadline
from kafka_source.transactions.producer_pool import TransactionalProducers


def test_whoever_listens_for_problems_hears_them_beside_the_preparation() -> None:
    heard: list[KafkaError] = []
    config = {"bootstrap.servers": "127.0.0.1:1", "error_cb": heard.append, "log_level": 0}
    producers = TransactionalProducers(config, "t", init_seconds=1.0, keep_warm=False)
    with pytest.raises(KafkaGroupError, match="Initialising transactional id t failed"):
        producers.take(Deadline(60))
    assert heard
