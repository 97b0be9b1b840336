"""What was decided about a batch's transactions, kept in Kafka: the memory that survives the driver.

The ledger is a consumer group of its own, `{prefix}-ledger`, without members. A decision is one committed offset of it:
the offset counts decisions, its metadata names query, batch and transactions. One request writes it, whole or not at
all, and reading it is one request. Brokers keep such offsets for `offsets.retention.minutes` (7 days) after the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError, error_for_code
from kafka_source.group.model import CommitOffset, SlotCredentials
from kafka_source.group.offsets import commit_offsets
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.kafka_client.messages import OffsetFetchRequest
from kafka_source.sink.ongoing import OpenTransaction

_DONE = "done"
# Brokers refuse more (offset.metadata.max.bytes).
_LONGEST = 4096
# Version 8 asks for many groups in another layout.
_FETCH_VERSION = 7
_MOVED = (15, 16)


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch that counts.

    Attributes:
        number: Of the decision among all of this sink, from 1.
        query: Which query, or which single write, the batch is of.
        batch: Its number in the query.
        place: The partition whose committed offset holds the decision.
        done: Whether all of its transactions are known to be committed.
        transactions: To be committed; empty when that is done.
    """

    number: int
    query: str
    batch: int
    place: TopicPartition
    done: bool
    transactions: tuple[OpenTransaction, ...] = ()

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
        self._group = f"{prefix}-ledger"

    async def last(self, deadline: Deadline) -> Decision | None:
        """The newest decision, None if there is none."""

        async def ask() -> Decision | None:
            coordinator = await self._client.coordinator(self._group, deadline)
            request = OffsetFetchRequest(group_id=self._group, topics=None, require_stable=True)
            answer = await self._client.send(coordinator.node_id, request, deadline, _FETCH_VERSION)
            codes = [answer.error_code, *(p.error_code for topic in answer.topics for p in topic.partitions)]
            for code in filter(None, codes):
                if code in _MOVED:
                    self._client.forget_coordinator(self._group)
                raise error_for_code(code, f"Reading the ledger of {self._prefix} failed")
            found = [
                (p.committed_offset, TopicPartition(topic.name, p.partition_index), p.metadata or "")
                for topic in answer.topics
                for p in topic.partitions
                if p.committed_offset > 0
            ]
            return self._read(*max(found)) if found else None

        return await self._client.retrying(ask, deadline)

    async def decide(self, decision: Decision, deadline: Deadline) -> None:
        """Write down that these transactions make up the batch. From here on they are committed, whatever happens.

        Raises:
            InvalidConfigurationError: They are too many to be written down at once.
        """
        cut = len(self._prefix) + 1
        names = [f"{t.transactional_id[cut:]}:{t.producer_id}:{t.epoch}" for t in decision.transactions]
        text = ",".join(names)
        if len(text) + len(decision.query) > _LONGEST - 32:
            raise InvalidConfigurationError(
                f"Batch {decision.batch} was written by {len(names)} tasks, more than one decision can name (about "
                f"{_LONGEST // 16}). Write with fewer tasks: df.coalesce(200)."
            )
        await self._write(decision, text, deadline)

    async def finished(self, decision: Decision, deadline: Deadline) -> None:
        """Write down that nothing is left to do for a decision."""
        await self._write(decision, _DONE, deadline)

    async def _write(self, decision: Decision, text: str, deadline: Deadline) -> None:
        nobody = SlotCredentials(self._group, -1, "", None)
        entry = CommitOffset(decision.number, metadata=f"{decision.query} {decision.batch} {text}")
        await commit_offsets(self._client, nobody, {decision.place: entry}, deadline)

    def _read(self, number: int, place: TopicPartition, entry: str) -> Decision:
        query, batch, text = entry.split(" ", 2)
        if text == _DONE:
            return Decision(number, query, int(batch), place, done=True)
        parts = [part.rsplit(":", 2) for part in text.split(",")]
        transactions = tuple(OpenTransaction(f"{self._prefix}-{name}", int(pid), int(e)) for name, pid, e in parts)
        return Decision(number, query, int(batch), place, done=False, transactions=transactions)
