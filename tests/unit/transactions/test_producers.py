"""Producers that take a transactional id: when, for how long, and what is heard of their trouble."""

import time

import pytest
from confluent_kafka import KafkaError

from kafka_source.errors import FencedError, KafkaGroupError, UnknownOutcomeError
from kafka_source.runtime.deadline import Deadline
from kafka_source.transactions import Transaction, TransactionalProducers, run_transaction
from tests.support.fake_broker import FakeBroker


def test_whoever_listens_for_problems_hears_them_beside_the_initialisation() -> None:
    heard: list[KafkaError] = []
    config = {"bootstrap.servers": "127.0.0.1:1", "error_cb": heard.append, "log_level": 0}
    with pytest.raises(KafkaGroupError, match="Initialising transactional id t failed"):
        TransactionalProducers(config, "t").take(Deadline(1.0))
    assert heard


@pytest.mark.parametrize("error", [None, FencedError("Injected", code=90), UnknownOutcomeError("Injected")])
def test_the_id_is_taken_once_for_a_transaction(broker: FakeBroker, error: Exception | None) -> None:
    """Another process may have taken the id by the time a transaction has ended."""
    broker.coordinator_error = 0
    producers = TransactionalProducers({"bootstrap.servers": broker.bootstrap_servers}, "t")

    def work(_: Transaction) -> None:
        if error is not None:
            raise error

    if error is None:
        run_transaction(producers, work, timeout=10)
    else:
        with pytest.raises(type(error)):
            run_transaction(producers, work, timeout=10)
    time.sleep(1)
    assert broker.asked.count("InitProducerIdRequest") == 1


def test_a_producer_that_was_not_ready_in_time_does_not_take_the_id_later(broker: FakeBroker) -> None:
    with pytest.raises(KafkaGroupError) as held:
        TransactionalProducers({"bootstrap.servers": broker.bootstrap_servers}, "t").take(Deadline(1.0))
    broker.coordinator_error = 0
    time.sleep(2)
    assert "InitProducerIdRequest" not in broker.asked
    assert "not ready after 1 s" in str(held.value)
