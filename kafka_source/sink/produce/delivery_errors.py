"""The error for a record that was not delivered, with what the user can do about it."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_source.error_codes import ADVICE
from kafka_source.errors import DeliveryError


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
        advice=ADVICE.get(code, ""),
        code=code,
    )
