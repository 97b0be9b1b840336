"""Why a transaction failed, where librdkafka says only what became of its records."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Producer

# Of records that were dropped with their transaction, and of calls that it no longer takes.
_CONSEQUENCES = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE})


def cause_of(error: KafkaError, producer: Producer) -> KafkaError:
    """What made the transaction fail if `error` only follows from it, else `error`; not for use in a callback.

    librdkafka keeps the reason until the transaction is aborted, and tells it to whoever begins another one.
    """
    if error.code() not in _CONSEQUENCES:
        return error
    try:
        producer.begin_transaction()
    except KafkaException as refusal:
        reason = refusal.args[0]
        if isinstance(reason, KafkaError) and reason.code() not in (*_CONSEQUENCES, KafkaError._NOT_CONFIGURED):
            return reason
    return error
