"""A broker that takes connections and answers nothing: a read and a write end within the timeouts of their options."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pyarrow as pa
import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import DeliveryError, RetriableError
from kafka_source.fetch.select import engine_for
from kafka_source.model.stream_offset import Range
from kafka_source.produce import librdkafka, native
from kafka_source.produce.records import Records
from kafkagroup.embedded import EmbeddedKafka
from tests.support.fetches import fetch_request
from tests.support.records import produce

SECONDS, MARGIN = 4, 12


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as kafka:
        kafka.create_topic("read", partitions=2)
        kafka.create_topic("written", partitions=1)
        produce(kafka.bootstrap_servers, "read", 100)
        # The first idempotent write waits for a block of producer ids.
        produce(kafka.bootstrap_servers, "written", 1, config={"enable.idempotence": True})
        yield kafka


@contextmanager
def frozen(broker: EmbeddedKafka) -> Iterator[None]:
    """Expect that the block takes about `SECONDS`; the timeout of a connection is longer."""
    broker.pause()
    began = time.monotonic()
    try:
        yield
    finally:
        broker.resume()
    assert time.monotonic() - began < SECONDS + MARGIN


def settings(broker: EmbeddedKafka) -> Settings:
    times = {
        "delivery.timeout.ms": str(SECONDS * 1000),
        "request.timeout.ms": "1000",
        "socket.connection.setup.timeout.ms": "30000",
    }
    return Settings({"bootstrap.servers": broker.bootstrap_servers, **times})


@pytest.mark.parametrize("engine", [native, librdkafka])
def test_a_write_ends_within_its_delivery_timeout(broker: EmbeddedKafka, engine: ModuleType) -> None:
    records = Records(pa.array([b"x"] * 10, pa.binary()), None, "written")
    delivery = engine.at_least_once(settings(broker))
    delivery.send(records)
    delivery.flush()
    with frozen(broker), pytest.raises(DeliveryError, match=r"delivery\.timeout\.ms"):
        delivery.send(records)
        delivery.flush()
    delivery.drop()


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_read_ends_within_its_poll_timeout(broker: EmbeddedKafka, engine: str) -> None:
    # The second partition: librdkafka may have fetched more of the first one.
    first, second = (
        fetch_request(Range("read", partition, 0, 10), column="value", timeout_ms=SECONDS * 1000)
        for partition in range(2)
    )
    reader = engine_for(engine, settings(broker))
    assert sum(batch.num_rows for batch in reader.read(first)) == 10
    with frozen(broker), pytest.raises(RetriableError):
        list(reader.read(second))
