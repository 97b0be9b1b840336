"""A task's part of two-phase commit: write everything in a transaction, and leave it open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from assignors.model import TopicPartition
from kafka_source import deadline as calls
from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError
from kafka_source.failpoints import reached
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.producers import TransactionalProducers
from kafka_source.sink.committer import TwoPhaseCommit
from kafka_source.sink.delivery import Delivery
from kafka_source.sink.ongoing import ONGOING, OpenTransaction, describe
from kafka_source.sink.records import Records

# As long as brokers allow by default, less a margin: a batch and a restart of the driver have to fit in.
_TRANSACTION_TIMEOUT_MS = "600000"
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a task did.

    Attributes:
        records: How many are written.
        transaction: The one that is open; None: no rows, or the batch is decided already.
        place: A partition that was written to.
    """

    records: int
    transaction: OpenTransaction | None = None
    place: TopicPartition | None = None


def prepare(
    settings: Settings,
    prefix: str,
    query: str,
    batch: int,
    partition: int,
    attempt: int,
    batches: Iterable[Records],
) -> Prepared:
    """Write records in a transaction and leave it open for the driver to decide.

    Args:
        settings: Of the Kafka clients.
        prefix: Of the sink's transactional ids.
        query: Which query, or which single write, the batch is of.
        batch: Its number.
        partition: Of the task; with the attempt it makes the transactional id, so that their number stays bounded.
        attempt: Of the task: a zombie's transaction is another's, and is aborted by the driver.
        batches: The records; nothing is asked of Kafka's transactions if there are none.

    Raises:
        KafkaGroupError: The task failed; its transaction is aborted.
    """
    client = KafkaClient(settings)
    phases = TwoPhaseCommit(client, prefix)
    try:
        # To initialise an id that a decision names would abort what was decided: that is finished first.
        last = client.run(phases.finish_decided(Deadline(_SECONDS)))
        if last is not None and last.covers(query, batch):
            return Prepared(0)
        transactional_id = f"{prefix}-{partition}-{attempt}"
        delivery: Delivery | None = None
        count = 0
        try:
            for records in batches:
                if not records.values:
                    continue
                if delivery is None:
                    delivery = Delivery(settings, lambda config: _in_transaction(config, transactional_id))
                delivery.send(records)
                count += len(records.values)
            if delivery is None:
                return Prepared(0)
            delivery.flush()
            reached("task-flushed")
            found = client.run(describe(client, transactional_id, Deadline(_SECONDS)))
            if not found.is_open:
                raise ApplicationRecoverableError(
                    f"The transaction of {transactional_id} is {found.state}, not {ONGOING}: another process uses "
                    f"the prefix {prefix}, or the task took longer than kafka.transaction.timeout.ms."
                )
            if client.run(phases.is_decided(query, batch, Deadline(_SECONDS))):
                delivery.abort()
                return Prepared(0)
        except BaseException:
            if delivery is not None:
                delivery.abort()
            raise
        # Not closed: confluent-kafka aborts the open transaction of a producer that is closed.
        delivery.release()
        return Prepared(count, found.transaction, found.partitions[0])
    finally:
        client.close()


def _in_transaction(config: dict[str, Any], transactional_id: str) -> Producer:
    config = {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **config, "enable.idempotence": True}
    producers = TransactionalProducers(config, transactional_id, keep_warm=False)
    producer = producers.take(calls.Deadline(_SECONDS))
    producers.close()
    producer.begin_transaction()
    return producer
