"""A range whose end the log does not have yet: a new leader may know fewer offsets for a moment."""

from __future__ import annotations

import time

import pytest

from kafka_source.client_config import Settings
from kafka_source.errors import DataLossError
from kafka_source.fetch.engine import FetchRequest
from kafka_source.fetch.select import engine_for
from kafka_source.model.stream_offset import Range
from kafka_source.schema import Column
from tests.support.records import produce

ENGINES = ("native", "librdkafka")


def request(topic: str, timeout_ms: int) -> FetchRequest:
    """A range of nine records, in batches of three."""
    return FetchRequest(
        (Range(topic, 0, 0, 9),),
        (Column("offset"),),
        batch_rows=3,
        batch_bytes=1 << 20,
        timeout_ms=timeout_ms,
        read_committed=False,
        fail_on_data_loss=True,
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_end_that_comes_late_is_no_loss(kafka, topic, engine):
    name = topic("late", partitions=1)
    produce(kafka.bootstrap_servers, name, 5)
    batches = engine_for(engine, Settings({"bootstrap.servers": kafka.bootstrap_servers})).read(request(name, 60_000))
    offsets = next(batches).column("offset").to_pylist()
    produce(kafka.bootstrap_servers, name, 4, first=5)
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(9))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_end_that_does_not_come_is_a_loss_after_the_poll_timeout(kafka, topic, engine):
    name = topic("short", partitions=1)
    produce(kafka.bootstrap_servers, name, 5)
    reader = engine_for(engine, Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    began = time.monotonic()
    with pytest.raises(DataLossError, match=rf"{name}-0 cannot be read from offset 5: it has only offsets \[0, 5\)"):
        list(reader.read(request(name, 2000)))
    assert 2 <= time.monotonic() - began < 8
