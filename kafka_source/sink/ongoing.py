"""Transactions as their coordinators see them: find those of a sink, look at them, end them from any process."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import TRANSACTION, Deadline, KafkaClient
from kafka_source.kafka_client.messages import DescribeTransactionsRequest, EndTxnRequest, ListTransactionsRequest

ONGOING = "Ongoing"

# A retry must use the version of the first try, also after a restart: 4 and 5 answer a repeated commit differently.
# Version 3 is what every broker since 2.8 has.
_END_VERSION = 3
_MOVED = (15, 16)


@dataclass(frozen=True, slots=True, order=True)
class OpenTransaction:
    """A transaction that was left open by the task that wrote it.

    Attributes:
        transactional_id: Its id.
        producer_id: The producer's, given by the coordinator.
        epoch: Of the producer; no other transaction of this id has it.
    """

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Described:
    """What a coordinator says of a transactional id.

    Attributes:
        transaction: Its newest transaction.
        state: `Ongoing`, `PrepareCommit`, `CompleteCommit`, … in Kafka's words.
        partitions: Written to; coordinators forget them when the transaction has ended.
        started_ms: When it began, by the coordinator's clock; -1 if none is open.
        timeout_ms: After so long the coordinator aborts it.
    """

    transaction: OpenTransaction
    state: str
    partitions: tuple[TopicPartition, ...]
    started_ms: int = -1
    timeout_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Whether nobody has ended it yet."""
        return self.state == ONGOING


async def describe(client: KafkaClient, transactional_id: str, deadline: Deadline) -> Described:
    """The newest transaction of an id.

    Raises:
        KafkaGroupError: The id is not known, or this user has no right to it.
    """

    async def ask() -> Described:
        coordinator = await client.coordinator(transactional_id, deadline, TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await client.send(coordinator.node_id, request, deadline)
        (found,) = answer.transaction_states
        check(client, transactional_id, found.error_code, f"Describing the transaction of {transactional_id} failed")
        return Described(
            OpenTransaction(transactional_id, found.producer_id, found.producer_epoch),
            found.transaction_state,
            tuple(sorted(TopicPartition(topic.topic, p) for topic in found.topics for p in topic.partitions)),
            found.transaction_start_time_ms,
            found.transaction_timeout_ms,
        )

    return await client.retrying(ask, deadline)


async def open_of(client: KafkaClient, prefix: str, deadline: Deadline) -> list[Described]:
    """The open transactions of a sink's tasks, on all brokers, by their ids."""

    async def ask() -> list[str]:
        snapshot = await client.metadata((), deadline)
        found: list[str] = []
        for broker in snapshot.brokers:
            request = ListTransactionsRequest(state_filters=[ONGOING], producer_id_filters=[])
            answer = await client.send(broker, request, deadline, 0)
            if answer.error_code:
                raise error_for_code(answer.error_code, f"Listing the transactions of {prefix} failed")
            found += [t.transactional_id for t in answer.transaction_states if is_of(prefix, t.transactional_id)]
        return found

    names = await client.retrying(ask, deadline)
    described = await asyncio.gather(*(describe(client, name, deadline) for name in sorted(set(names))))
    return [one for one in described if one.is_open]


def is_of(prefix: str, transactional_id: str) -> bool:
    """Whether an id is one of a sink's tasks: `{prefix}-{partition}-{attempt}`."""
    # Exactly two numbers: `orders-2` may be the prefix of another sink.
    return re.fullmatch(r"\d+-\d+", transactional_id.removeprefix(f"{prefix}-")) is not None


async def end(client: KafkaClient, transaction: OpenTransaction, *, commit: bool, deadline: Deadline) -> None:
    """Commit or abort a transaction; the same again is answered as the first time.

    Raises:
        ApplicationRecoverableError: It is gone, or was ended the other way.
    """
    name = transaction.transactional_id
    what = f"{'Committing' if commit else 'Aborting'} the transaction of {name}, epoch {transaction.epoch}, failed"
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
    )

    async def ask() -> None:
        coordinator = await client.coordinator(name, deadline, TRANSACTION)
        answer = await client.send(coordinator.node_id, request, deadline, _END_VERSION)
        check(client, name, answer.error_code, what)

    await client.retrying(ask, deadline)


def check(client: KafkaClient, transactional_id: str, code: int, what: str) -> None:
    """Raise the error of a coordinator's answer; the next try asks who the coordinator is if it has moved."""
    if code in _MOVED:
        client.forget_coordinator(transactional_id, TRANSACTION)
    if code:
        raise error_for_code(code, what)
