"""Records at known places, for the differential tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Producer, TopicPartition

from kafkagroup.embedded import EmbeddedKafka
from tests.support.waiting import wait_until


def send(
    kafka: EmbeddedKafka, topic: str, values: Iterable[object], partition: int = 0, timestamp: int | None = None
) -> None:
    """Write values to a partition, in this order."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        # 0 means the time of the client.
        producer.produce(topic, str(value), partition=partition, timestamp=timestamp or 0)
    assert producer.flush(60) == 0


def delete_before(kafka: EmbeddedKafka, topic: str, offsets: Mapping[int, int]) -> None:
    """Delete the records before an offset of each partition, as retention does."""
    admin = kafka.admin()
    asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for done in admin.delete_records(asked).values():
        done.result(30)


def add_partitions(kafka: EmbeddedKafka, topic: str, count: int) -> None:
    """Let a topic have more partitions, and wait until brokers say so."""
    from confluent_kafka.admin import NewPartitions

    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    wait_until(
        lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == count, "the new partitions"
    )
