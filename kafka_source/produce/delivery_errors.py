"""The error for a record that was not delivered, with advice for the user."""

from confluent_kafka import KafkaError

from kafka_source.error_codes import ADVICE
from kafka_source.errors import AbortableError, DeliveryError, KafkaGroupError, category, error_for_code


def delivery_error(code: int, topic: str, partition: int | None, detail: str = "") -> KafkaGroupError:
    """Return the error for an error code of Kafka or librdkafka, in the category that KIP-1050 gives the code.

    A retriable code is abortable here, because the producer has sent the record again until the delivery timeout. Every
    abortable code becomes a DeliveryError. Any other code becomes the class of its category, for example
    AuthenticationError if the user may not write to the topic.

    Args:
        code: The error code.
        topic: The record's topic.
        partition: The record's partition; None or negative if no partition was chosen.
        detail: Details to add to the code's text.
    """
    text = str(KafkaError(code).str())
    reason = f"{text}: {detail}" if detail else text
    if issubclass(category(code, in_transaction=True, produce=True), AbortableError):
        return DeliveryError(topic=topic, partition=partition, reason=reason, advice=ADVICE.get(code, ""), code=code)
    where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
    context = f"A record for {where} was not delivered"
    return error_for_code(code, context, reason=reason, in_transaction=True, produce=True)
