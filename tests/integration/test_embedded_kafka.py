"""The embedded Kafka as its users meet it."""

from __future__ import annotations

from collections.abc import Callable

from kafka_source.embedded import EmbeddedKafka


def test_the_fixtures_give_a_broker_with_fresh_topics(kafka: EmbeddedKafka, topic: Callable[..., str]) -> None:
    first, second = topic("orders", partitions=3), topic("orders", partitions=2)
    topics = kafka.admin().list_topics(timeout=10).topics
    assert len(topics[first].partitions) == 3
    assert len(topics[second].partitions) == 2
