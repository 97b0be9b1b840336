"""The pauses before a client connects again to a broker that it could not reach."""

import time
from contextlib import closing

import pytest

from kafka_source.client_config import Settings
from kafka_source.kafka_client import ConnectionLost, Deadline, Endpoint, KafkaClient
from kafka_source.kafka_client.metadata import Broker
from kafka_source.kafka_client.reconnects import Reconnects
from kafka_source.runtime.retry import RetryPolicy
from tests.support.fake_broker import listening

ONE, OTHER = Endpoint("one", 1), Endpoint("other", 1)


def test_pauses_grow_for_each_broker_up_to_the_longest_with_a_jitter() -> None:
    pauses: list[list[float]] = []
    for _ in range(20):
        reconnects = Reconnects(RetryPolicy(0.1, 1.0))
        series = []
        for _ in range(6):
            reconnects.failed(ONE, 5.0)
            series.append(reconnects.pause(ONE, 5.0))
        assert reconnects.pause(OTHER, 5.0) == 0.0
        assert reconnects.pause(ONE, 7.0) == 0.0
        pauses.append(series)
    for number, expected in enumerate((0.1, 0.2, 0.4, 0.8, 1.0, 1.0)):
        seen = [series[number] for series in pauses]
        assert all(0.79 * expected <= pause <= min(1.0, 1.21 * expected) for pause in seen)
    assert len({series[0] for series in pauses}) > 1


def test_a_connection_that_opens_begins_anew() -> None:
    reconnects = Reconnects(RetryPolicy(0.1, 1.0))
    for _ in range(4):
        reconnects.failed(ONE, 0.0)
    reconnects.connected(ONE)
    assert reconnects.pause(ONE, 0.0) == 0.0
    reconnects.failed(ONE, 0.0)
    assert reconnects.pause(ONE, 0.0) <= 0.121


@pytest.mark.parametrize("blocking", [True, False])
def test_a_broker_that_hangs_up_is_left_alone_for_the_pause(blocking: bool) -> None:
    attempts: list[float] = []
    settings = {"reconnect.backoff.ms": "400", "reconnect.backoff.max.ms": "400"}
    with listening(lambda connection: attempts.append(time.monotonic())) as endpoint:
        with closing(KafkaClient(Settings({"bootstrap.servers": str(endpoint), **settings}))) as client:
            for _ in range(3):
                with pytest.raises(ConnectionLost):
                    if blocking:
                        client.open_socket(endpoint)
                    else:
                        client.run(client.dedicated(Broker(1, endpoint), Deadline(10)))
    first, second, third = attempts
    assert min(second - first, third - second) >= 0.3
