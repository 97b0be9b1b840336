"""The transaction of one task of an exactly-once sink; the driver ends it."""

from __future__ import annotations

import contextlib

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import AbortableError, KafkaGroupError, RetriableError
from kafka_source.kafka_client import TRANSACTION, Deadline, KafkaClient, check_coordinator, to_coordinator
from kafka_source.kafka_client.messages.transaction import AddPartitionsToTxnRequest
from kafka_source.model.partition_runs import numbers_by_topic
from kafka_source.sink.produce.accumulator import ProducerIdentity
from kafka_source.transactions.open_transaction import OpenTransaction, initialise

_ABORT_SECONDS = 5.0
# The first version of the transaction protocol: see `transactions.open_transaction`.
_ADD_VERSION = 3


class TaskTransaction:
    """The transaction that a sender's records belong to.

    Args:
        client: Client of the cluster that the sink writes to.
        transaction: From `initialise`.
        timeout_ms: Time after which the coordinator aborts the transaction, in milliseconds.
    """

    def __init__(self, client: KafkaClient, transaction: OpenTransaction, timeout_ms: int) -> None:
        self.transactional_id = transaction.transactional_id
        self.identity = ProducerIdentity(transaction.producer_id, transaction.epoch, transactional=True)
        self._client = client
        self._transaction = transaction
        self._timeout_ms = timeout_ms

    def add(self, partitions: set[TopicPartition], seconds: float) -> None:
        """Add partitions to the transaction, before the first record is sent to them (AddPartitionsToTxn).

        Raises:
            FencedError: Another process has initialised the transactional id.
            AbortableError: The coordinator does not answer in time.
            KafkaGroupError: The coordinator refuses a partition.
        """
        try:
            self._client.run(self._add(partitions, Deadline(seconds)))
        except RetriableError as error:
            # KIP-1050: a transaction whose request was retried until the time was over is aborted.
            raise AbortableError(str(error), code=error.code) from error

    def abort(self) -> None:
        """Abort the transaction. If the coordinator does not answer, the next initialisation of this id aborts it."""
        # InitProducerId and not EndTxn: it raises the epoch. After EndTxn alone, a Produce request that is still on its
        # way would open the transaction again.
        with contextlib.suppress(KafkaGroupError):
            given_up = initialise(
                self._client,
                self.transactional_id,
                self._timeout_ms,
                Deadline(_ABORT_SECONDS),
                ended=self._transaction,
            )
            self._client.run(given_up)

    async def _add(self, partitions: set[TopicPartition], deadline: Deadline) -> None:
        name = self.transactional_id
        by_topic = numbers_by_topic(sorted(partitions))
        topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[topic_type(name=topic, partitions=found) for topic, found in by_topic.items()],
        )

        async def ask() -> None:
            answer = await to_coordinator(self._client, TRANSACTION, name, request, deadline, _ADD_VERSION)
            refused = [
                (partition.partition_error_code, f"{topic.name}-{partition.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
                if partition.partition_error_code
            ]
            # If one partition is refused, the others are "not attempted". Report the refusal, not its consequence.
            for code, where in sorted(refused, key=lambda one: one[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                check_coordinator(
                    self._client, TRANSACTION, name, code, f"Adding {where} to the transaction of {name} failed"
                )

        await self._client.retrying(ask, deadline)
