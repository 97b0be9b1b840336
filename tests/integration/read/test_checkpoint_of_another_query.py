"""A checkpoint that another query has written is refused, unless it is meant."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kafka_source.datasource import KafkaGroupSource
from kafka_source.errors import DataLossError, InvalidConfigurationError
from kafka_source.schema import schema_for
from kafkagroup.embedded import EmbeddedKafka
from tests.support.records import Topic, produce
from tests.support.waiting import wait_until

# Spark 4.0 and 4.1 plan in another way; what is checked is the same.
ReadAllAvailable = pytest.importorskip("pyspark.sql.streaming.datasource").ReadAllAvailable

Next = Callable[..., dict[str, Any]]


@pytest.fixture
def next_offset(kafka: EmbeddedKafka, opened: ExitStack) -> Next:
    """Return what plans the next micro-batch after an offset, as a query that has just been started."""

    def plan(start: dict[str, Any] | None, **options: str) -> dict[str, Any]:
        given = {name.replace("__", "."): value for name, value in options.items()}
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest"}
        reader = KafkaGroupSource(servers | given).streamReader(schema_for(given))
        opened.callback(reader.stop)
        end = reader.latestOffset(reader.initialOffset() if start is None else start, ReadAllAvailable())
        reader.stop()
        return dict(end)

    return plan


def test_a_checkpoint_of_other_topics_is_refused(topic: Topic, next_offset: Next) -> None:
    orders, payments = topic("orders", records=3), topic("payments")
    before = next_offset(None, subscribe=orders)
    told = f"The checkpoint is of {orders}, and the query reads {payments}"
    for loses in ("true", "false"):
        with pytest.raises(DataLossError, match=told) as caught:
            next_offset(before, subscribe=payments, failOnDataLoss=loses)
        assert "new checkpointLocation" in str(caught.value)
    assert next_offset(before, subscribe=payments, failOnDataLoss="false", strict="false")
    assert next_offset(before, subscribe=f"{orders},{payments}")


def test_a_pattern_goes_on_where_all_topics_of_the_checkpoint_are_deleted(
    kafka: EmbeddedKafka, topic: Topic, next_offset: Next
) -> None:
    yesterday = topic("daily", records=3)
    pattern = yesterday.replace("daily", "d[a-z]*")
    before = next_offset(None, subscribePattern=pattern)
    today = yesterday.replace("daily", "day")
    kafka.create_topic(today, 1)
    produce(kafka.bootstrap_servers, today, 2)
    kafka.delete_topic(yesterday)
    wait_until(lambda: yesterday not in kafka.admin().list_topics(timeout=10).topics, "the topic to be gone")
    after = next_offset(before, subscribePattern=pattern, failOnDataLoss="false")
    assert today in after["partitions"]


def test_a_checkpoint_of_another_group_is_refused(topic: Topic, group: str, next_offset: Next) -> None:
    orders = topic("orders", records=3)
    before = next_offset(None, subscribe=orders, kafka__group__id=group)
    other = f"{group}-other"
    with pytest.raises(InvalidConfigurationError, match=f"query in group {group}, and kafka.group.id is {other}"):
        next_offset(before, subscribe=orders, kafka__group__id=other)
    assert next_offset(before, subscribe=orders, kafka__group__id=group)
    assert next_offset(before, subscribe=orders, kafka__group__id=other, strict="false")
