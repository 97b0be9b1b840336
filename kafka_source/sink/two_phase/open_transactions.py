"""Look up which transactions of a sink's tasks are open; `committer` commits or aborts them."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assignors.model import TopicPartition
from kafka_source.errors import RetriableError, error_for_code
from kafka_source.kafka_client import (
    TRANSACTION,
    Deadline,
    KafkaClient,
    check_coordinator,
    coordinator_call,
    to_coordinator,
)
from kafka_source.kafka_client.messages.transaction import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
)
from kafka_source.transactions.open_transaction import FENCED_TIMEOUT_MS, OpenTransaction

EMPTY = "Empty"
ONGOING = "Ongoing"
COMMITTED = "CompleteCommit"


@dataclass(frozen=True, slots=True)
class Described:
    """The state of a transactional id, from its coordinator (DescribeTransactions).

    Attributes:
        transaction: The newest transaction of the id.
        state: The transaction's state in Kafka's words: `Ongoing`, `PrepareCommit`, `CompleteCommit`, …
        partitions: The partitions that the transaction has written to; empty when the transaction has ended.
        started_ms: Start time by the coordinator's clock, in milliseconds since 1970; -1: not open.
        timeout_ms: Time after which the coordinator aborts the transaction, in milliseconds.
    """

    transaction: OpenTransaction
    state: str
    partitions: tuple[TopicPartition, ...]
    started_ms: int = -1
    timeout_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the transaction is neither committed nor aborted yet."""
        return self.state == ONGOING

    @property
    def is_in_use(self) -> bool:
        """Whether the transaction is open, or may still be opened by the id's latest holder."""
        return self.is_open or (self.state == EMPTY and self.timeout_ms != FENCED_TIMEOUT_MS)


async def describe(client: KafkaClient, transactional_id: str, deadline: Deadline) -> Described:
    """Return the state of a transactional id.

    Raises:
        KafkaGroupError: The coordinator does not know the id, or the user may not describe the id.
    """

    def read(answer: DescribeTransactionsResponse) -> Described:
        (found,) = answer.transaction_states
        what = f"Describing the transaction of {transactional_id} failed"
        check_coordinator(client, TRANSACTION, transactional_id, found.error_code, what)
        return _described(found)

    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    return await coordinator_call(client, TRANSACTION, transactional_id, request, deadline, read)


async def describe_all(client: KafkaClient, transactional_ids: Sequence[str], deadline: Deadline) -> list[Described]:
    """Return the states of several ids, in any order, with one request to each coordinator.

    If the request to a coordinator fails, describe each of its ids separately.
    """
    await client.find_coordinators(transactional_ids, deadline, TRANSACTION)
    coordinators = await asyncio.gather(*(client.coordinator(n, deadline, TRANSACTION) for n in transactional_ids))
    by_node: dict[int, list[str]] = {}
    for name, coordinator in zip(transactional_ids, coordinators, strict=True):
        by_node.setdefault(coordinator.node_id, []).append(name)

    async def ask(names: list[str]) -> list[Described]:
        try:
            request = DescribeTransactionsRequest(transactional_ids=names)
            answer = await to_coordinator(client, TRANSACTION, names[0], request, deadline)
            if not any(found.error_code for found in answer.transaction_states):
                return [_described(found) for found in answer.transaction_states]
        except RetriableError:
            pass
        return list(await asyncio.gather(*(describe(client, name, deadline) for name in names)))

    return [one for part in await asyncio.gather(*map(ask, by_node.values())) for one in part]


def _described(found: Any) -> Described:
    return Described(
        OpenTransaction(found.transactional_id, found.producer_id, found.producer_epoch),
        found.transaction_state,
        tuple(sorted(TopicPartition(topic.topic, p) for topic in found.topics for p in topic.partitions)),
        found.transaction_start_time_ms,
        found.transaction_timeout_ms,
    )


async def list_open(client: KafkaClient, prefix: str, deadline: Deadline) -> list[Described]:
    """Return the open transactions of a sink's tasks, sorted by their ids."""
    return await list_in_states(client, prefix, [ONGOING], deadline)


async def list_in_states(
    client: KafkaClient, prefix: str, states: Sequence[str], deadline: Deadline
) -> list[Described]:
    """Return the newest transactions of a sink's tasks that are in one of these states, sorted by their ids."""
    # Brokers before Kafka 4.1 ignore the pattern (KIP-1152) and return the transactions of all sinks.
    pattern = rf"{re.escape(prefix)}-\d+-\d+"

    async def list_on(node_id: int) -> list[str]:
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=[], transactional_id_pattern=pattern
        )
        answer = await client.send(node_id, request, deadline)
        if answer.error_code:
            raise error_for_code(answer.error_code, f"Listing the transactions of {prefix} failed")
        return [t.transactional_id for t in answer.transaction_states if has_prefix(t.transactional_id, prefix)]

    async def ask() -> set[str]:
        snapshot = await client.metadata((), deadline)
        listed = await asyncio.gather(*map(list_on, snapshot.brokers))
        return {name for names in listed for name in names}

    described = await describe_all(client, sorted(await client.retrying(ask, deadline)), deadline)
    return sorted((one for one in described if one.state in states), key=lambda one: one.transaction)


def has_prefix(transactional_id: str, prefix: str) -> bool:
    """Return whether an id belongs to a task of a sink: `{prefix}-{partition}-{attempt}`."""
    # Exactly two numbers, because `orders-2` may be the prefix of another sink.
    return re.fullmatch(rf"{re.escape(prefix)}-\d+-\d+", transactional_id) is not None
