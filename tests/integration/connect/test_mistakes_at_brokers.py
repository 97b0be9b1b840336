"""Mistakes that only brokers can tell: at most ten lines of ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest
from pyspark.sql.types import BinaryType, StructType

from kafka_source.datasource import KafkaGroupSource
from kafka_source.errors import KafkaGroupError
from kafka_source.sink import writer
from kafkagroup.embedded import EmbeddedKafka

VALUE = StructType().add("value", BinaryType())


def read(options: dict[str, str]) -> None:
    """Plan a batch, as Spark's driver does."""
    source = KafkaGroupSource(options)
    list(source.reader(source.schema()).partitions())


def write(options: dict[str, str]) -> None:
    """Make the writer of a batch, as Spark's driver does."""
    KafkaGroupSource(options).writer(VALUE, overwrite=False)


@pytest.mark.parametrize(
    ("action", "options", "told"),
    [
        (read, {"subscribe": "nowhere"}, "Topic nowhere does not exist, or this user may not see it. Create the topic"),
        (read, {"assign": '{"ORDERS":[0,9]}'}, "Option assign names partitions that do not exist: ORDERS-9."),
        (read, {"subscribe": "ORDERS", "kafka.security.protocol": "SSL"}, "its listener has no TLS"),
        (read, {"subscribe": "ORDERS", "startingOffsets": '{"ORDERS":{"0":0}}'}, "startingOffsets"),
        (write, {"topic": "no such topic!"}, "Writing to topic no such topic! failed: INVALID_TOPIC_EXCEPTION (17)"),
    ],
)
def test_the_answer_is_short(
    kafka: EmbeddedKafka,
    topic: Callable[..., str],
    action: Callable[[dict[str, str]], None],
    options: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another test of this process may have a session of Spark.
    monkeypatch.setattr(writer, "is_driver_process", lambda: True)
    orders = topic("orders", partitions=2)
    given = {name: text.replace("ORDERS", orders) for name, text in options.items()}
    with pytest.raises(KafkaGroupError) as caught:
        action({"kafka.bootstrap.servers": kafka.bootstrap_servers, **given})
    assert told.replace("ORDERS", orders) in str(caught.value)
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(lines) <= 10, lines
