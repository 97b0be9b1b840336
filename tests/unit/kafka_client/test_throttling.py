"""A broker whose quotas hold the control plane back (KIP-219): it reads nothing from a connection for a while."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from kafka_source.client_config import Settings
from kafka_source.client_config.servers import Endpoint
from kafka_source.kafka_client import Connection, Deadline, KafkaClient
from kafka_source.kafka_client.connection import BrokerThrottles
from kafka_source.kafka_client.messages.cluster import FindCoordinatorRequest
from kafka_source.kafka_client.metadata import Broker
from tests.support.fake_broker import FakeBroker

ASK = FindCoordinatorRequest(key="orders", key_type=0)


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[KafkaClient]:
    with closing(KafkaClient(Settings({"bootstrap.servers": broker.bootstrap_servers}))) as made:
        yield made


def opened(client: KafkaClient, broker: FakeBroker) -> Connection:
    return client.run(client.dedicated(Broker(1, Endpoint("127.0.0.1", broker.port)), Deadline(10)))


def test_the_next_request_waits_for_the_end_of_the_pause(broker: FakeBroker, client: KafkaClient) -> None:
    asked: list[float] = []
    broker.on_find_coordinator = lambda: asked.append(time.monotonic())
    broker.throttle_ms = 300
    connection = opened(client, broker)

    async def ask_twice() -> None:
        await connection.send(ASK, 10, max_version=2)
        await asyncio.gather(*(connection.send(ASK, 10, max_version=2) for _ in range(2)))

    client.run(ask_twice())
    first, *others = asked
    assert min(others) - first >= 0.3


def test_a_pause_that_leaves_no_time_for_the_answer_is_an_error_and_the_connection_stays(
    broker: FakeBroker, client: KafkaClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A heartbeat that is closed and sent again over a new login would be one request more of many."""
    broker.throttle_ms = 60_000
    connection = opened(client, broker)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        client.run(connection.send(ASK, 10, max_version=2))
    assert f"throttle broker=127.0.0.1:{broker.port} request=FindCoordinatorRequest pause_s=60.00" in caplog.text
    with pytest.raises(BrokerThrottles, match=r"throttles this client by a quota for another \d+\.\d s") as refused:
        client.run(connection.send(ASK, 10, max_version=2))
    assert 59.9 - (time.monotonic() - began) <= float(str(refused.value).split("another ")[1].split()[0]) <= 60
    assert connection.usable
    assert broker.asked.count("FindCoordinatorRequest") == 1
