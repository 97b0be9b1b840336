"""The error for a record that was not delivered, with what the user can do about it."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_source.errors import DeliveryError

_ADVICE = {
    10: "Raise the topic's max.message.bytes and the option kafka.max.request.size, or write smaller records; if the "
    "records are small, lower kafka.batch.size",
    3: "Create the topic, or give this user the right to create or describe it",
    -188: "Create the topic, or give this user the right to create or describe it",
    -190: "The topic has fewer partitions than the column partition says",
    -192: "The brokers did not take it within kafka.delivery.timeout.ms",
    17: "The topic's name is not allowed",
    29: "Give this user WRITE on the topic",
}


def delivery_error(code: int, topic: str, partition: int | None, detail: str = "") -> DeliveryError:
    """The error for a code of Kafka's or librdkafka's.

    Args:
        code: Of the record's delivery.
        topic: The record's.
        partition: Its partition; None or below 0: none was chosen yet.
        detail: What is known besides the code's own words.
    """
    words = str(KafkaError(code).str())
    return DeliveryError(
        topic=topic,
        partition=partition,
        reason=f"{words}: {detail}" if detail else words,
        advice=_ADVICE.get(code, ""),
        code=code,
    )
