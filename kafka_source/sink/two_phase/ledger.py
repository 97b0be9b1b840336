"""What was decided about a batch's transactions, kept in Kafka: the memory that survives the driver.

The ledger is a consumer group of its own, `{prefix}-ledger`, without members. A decision is one committed offset of it:
the offset counts decisions, its metadata is the decision's text; what one group cannot hold of a long one is in
`{prefix}-ledger-1`, `-2`, … at the same partition with the same offset. All of it is written in a transaction of
`{prefix}-driver`, so that a driver that was replaced decides nothing, and so that a source's offsets can go with it.
That nothing is left to do for a decision is noted in a second group, `{prefix}-finished`, by its number alone, in a
transaction of the id of this name: a driver that was replaced notes nothing either. Brokers keep both groups for
`offsets.retention.minutes` (7 days) after the last batch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.errors import RetriableError
from kafka_source.group.committed_offsets import fetch_all_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in
from kafka_source.transactions.open_transaction import OpenTransaction

# Brokers refuse more than 4096 characters (offset.metadata.max.bytes); the first group also tells how many there are.
_LONGEST = 4090


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch that counts.

    Attributes:
        number: Of the decision among all of this sink, from 1.
        query: Which query, or which single write, the batch is of.
        batch: Its number in the query.
        place: The partition whose committed offset holds the decision.
        transactions: To be committed; none if the batch had no rows, or the write was given up.
        places: The partitions that they have written to.
        done: Whether all of its transactions are known to be committed.
    """

    number: int
    query: str
    batch: int
    place: TopicPartition
    transactions: tuple[OpenTransaction, ...] = ()
    places: tuple[TopicPartition, ...] = ()
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

    async def last(self, deadline: Deadline) -> Decision | None:
        """The newest decision, None if there is none; one that is being written is waited for."""

        async def read() -> Decision | None:
            entries, finished = await asyncio.gather(
                fetch_all_committed(self._client, self._group(0), deadline),
                fetch_all_committed(self._client, self._finished, deadline),
            )
            if not entries:
                return None
            done = max((entry.offset for entry in finished.values()), default=0)
            place, first = max(entries.items(), key=lambda item: item[1].offset)
            count, _, text = first.metadata.partition(" ")
            others = (self._part(number, place, first.offset, deadline) for number in range(1, int(count)))
            return self._decision(first.offset, place, "".join([text, *await asyncio.gather(*others)]), done)

        return await self._client.retrying(read, deadline)

    def entries(self, decision: Decision) -> list[GroupOffsets]:
        """What the ledger's groups commit for a decision."""
        text = self._text(decision)
        parts = [text[start : start + _LONGEST] for start in range(0, len(text), _LONGEST)]
        parts[0] = f"{len(parts)} {parts[0]}"
        return [
            GroupOffsets(
                SlotCredentials(self._group(number), -1, "", None),
                {decision.place: CommitOffset(decision.number, metadata=part)},
            )
            for number, part in enumerate(parts)
        ]

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

    def _group(self, number: int) -> str:
        return f"{self._prefix}-ledger-{number}" if number else f"{self._prefix}-ledger"

    async def _part(self, number: int, place: TopicPartition, decision: int, deadline: Deadline) -> str:
        group = self._group(number)
        entry = (await fetch_all_committed(self._client, group, deadline)).get(place)
        if entry is None or entry.offset != decision:
            # Another driver has decided since the first part was read.
            raise RetriableError(f"Group {group} does not hold its part of decision {decision}.")
        return entry.metadata

    def _text(self, decision: Decision) -> str:
        cut = len(self._prefix) + 1
        transactions = [(t.transactional_id[cut:], t.producer_id, t.epoch, t.records) for t in decision.transactions]
        content = (decision.query, decision.batch, transactions, _runs(decision.places))
        return json.dumps(content, separators=(",", ":"))

    def _decision(self, number: int, place: TopicPartition, text: str, done: int) -> Decision:
        query, batch, found, runs = json.loads(text)
        transactions = tuple(OpenTransaction(f"{self._prefix}-{name}", *numbers) for name, *numbers in found)
        return Decision(number, query, batch, place, transactions, _partitions(runs), done=done >= number)


def _runs(partitions: Iterable[TopicPartition]) -> dict[str, list[list[int]]]:
    """Partitions by topic as runs from first to last, which for a whole topic is one."""
    runs: dict[str, list[list[int]]] = {}
    for tp in sorted(set(partitions)):
        of_topic = runs.setdefault(tp.topic, [])
        if of_topic and of_topic[-1][1] == tp.partition - 1:
            of_topic[-1][1] = tp.partition
        else:
            of_topic.append([tp.partition, tp.partition])
    return runs


def _partitions(runs: Mapping[str, Iterable[tuple[int, int]]]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, number)
        for topic, of_topic in runs.items()
        for first, last in of_topic
        for number in range(first, last + 1)
    )
