"""The error for a record that was not delivered, with advice for the user."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_source.error_codes import ADVICE
from kafka_source.errors import DeliveryError


def delivery_error(code: int, topic: str, partition: int | None, detail: str = "") -> DeliveryError:
    """Return the error for an error code of Kafka or librdkafka.

    Args:
        code: The error code.
        topic: The record's topic.
        partition: The record's partition; None or negative if none was chosen.
        detail: What is known besides the text of the code.
    """
    text = str(KafkaError(code).str())
    return DeliveryError(
        topic=topic,
        partition=partition,
        reason=f"{text}: {detail}" if detail else text,
        advice=ADVICE.get(code, ""),
        code=code,
    )
