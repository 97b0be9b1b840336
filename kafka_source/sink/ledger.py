"""What was decided about a batch's transactions, kept in Kafka: the memory that survives the driver.

The ledger is a consumer group of its own, `{prefix}-ledger`, without members. A decision is one committed offset of it:
the offset counts decisions, its metadata names query, batch and transactions. It is written in a transaction of
`{prefix}-driver`, so that a driver that was replaced decides nothing, and so that a source's offsets can go with it.
That nothing is left to do for a decision is noted in a second group, `{prefix}-finished`, by its number alone, in a
transaction of the id of this name: a driver that was replaced notes nothing either. Brokers keep both groups for
`offsets.retention.minutes` (7 days) after the last batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group.model import CommitOffset, SlotCredentials
from kafka_source.group.offsets import fetch_all_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.sink.offsets_transaction import GroupOffsets, commit_in
from kafka_source.sink.ongoing import OpenTransaction

# Brokers refuse more (offset.metadata.max.bytes).
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch that counts.

    Attributes:
        number: Of the decision among all of this sink, from 1.
        query: Which query, or which single write, the batch is of.
        batch: Its number in the query.
        place: The partition whose committed offset holds the decision.
        transactions: To be committed; none if the batch had no rows, or the write was given up.
        done: Whether all of its transactions are known to be committed.
    """

    number: int
    query: str
    batch: int
    place: TopicPartition
    transactions: tuple[OpenTransaction, ...] = ()
    done: bool = False

    def covers(self, query: str, batch: int) -> bool:
        """Whether a batch is this one or one before it: what tasks write of it now is a replay."""
        return self.query == query and self.batch >= batch


class Ledger:
    """The decisions of one sink.

    Args:
        client: Of the cluster that is written to.
        prefix: Of the sink's transactional ids.
    """

    def __init__(self, client: KafkaClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._finished = f"{prefix}-finished"
        self.group = f"{prefix}-ledger"

    async def last(self, deadline: Deadline) -> Decision | None:
        """The newest decision, None if there is none; one that is being written is waited for."""
        entries, finished = await asyncio.gather(
            fetch_all_committed(self._client, self.group, deadline),
            fetch_all_committed(self._client, self._finished, deadline),
        )
        if not entries:
            return None
        done = max((entry.offset for entry in finished.values()), default=0)
        place, entry = max(entries.items(), key=lambda item: item[1].offset)
        return self._read(entry, place, done)

    def entry(self, decision: Decision) -> CommitOffset:
        """What the ledger's group commits at the decision's place.

        Raises:
            InvalidConfigurationError: The transactions are too many to be written down at once.
        """
        cut = len(self._prefix) + 1
        names = [f"{t.transactional_id[cut:]}:{t.producer_id}:{t.epoch}:{t.records}" for t in decision.transactions]
        text = f"{decision.query} {decision.batch} {','.join(names)}"
        if len(text) > _LONGEST:
            raise InvalidConfigurationError(
                f"Batch {decision.batch} was written by {len(names)} tasks, more than one decision can name (about "
                f"{_LONGEST // 20}). Write with fewer tasks: df.coalesce(150)."
            )
        return CommitOffset(decision.number, metadata=text)

    async def finished(
        self,
        transaction: OpenTransaction,
        decision: Decision,
        deadline: Deadline,
        *,
        after: Awaitable[None] | None = None,
    ) -> None:
        """Note that nothing is left to do for a decision.

        Args:
            transaction: Of `{prefix}-finished`, of the driver's turn.
            decision: Which.
            deadline: For all of it.
            after: What has to succeed before.

        Raises:
            FencedError: Another driver has taken its turn.
        """
        note = GroupOffsets(
            SlotCredentials(self._finished, -1, "", None), {decision.place: CommitOffset(decision.number)}
        )
        await commit_in(self._client, transaction, [note], deadline, after=after)

    def _read(self, entry: CommitOffset, place: TopicPartition, done: int) -> Decision:
        query, batch, text = entry.metadata.split(" ", 2)
        parts = [part.rsplit(":", 3) for part in text.split(",") if part]
        transactions = tuple(
            OpenTransaction(f"{self._prefix}-{name}", int(pid), int(epoch), int(records))
            for name, pid, epoch, records in parts
        )
        return Decision(entry.offset, query, int(batch), place, transactions, done=done >= entry.offset)
