"""A range whose end the log does not have yet: a new leader may know fewer offsets for a moment."""

import time

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import DataLossError
from kafka_source.fetch.select import engine_for
from kafka_source.model.stream_offset import Range
from tests.support.fetches import fetch_request
from tests.support.records import produce

ENGINES = ("native", "librdkafka")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_end_that_comes_late_is_no_loss(kafka, topic, engine):
    name = topic("late", partitions=1, records=5)
    asked = fetch_request(Range(name, 0, 0, 9), batch_rows=3, timeout_ms=60_000)
    batches = engine_for(engine, Settings({"bootstrap.servers": kafka.bootstrap_servers})).read(asked)
    offsets = next(batches).column("offset").to_pylist()
    produce(kafka.bootstrap_servers, name, 4, first=5)
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(9))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_end_that_does_not_come_is_a_loss_after_the_poll_timeout(kafka, topic, engine):
    name = topic("short", partitions=1, records=5)
    reader = engine_for(engine, Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    began = time.monotonic()
    with pytest.raises(DataLossError, match=rf"{name}-0 cannot be read from offset 5: it has only offsets \[0, 5\)"):
        list(reader.read(fetch_request(Range(name, 0, 0, 9), timeout_ms=2000)))
    assert 2 <= time.monotonic() - began < 8
