"""The ledger: decisions about batches, kept in Kafka as offsets of a group. Write and parse the decisions' text.

The ledger is a consumer group without members, `{prefix}-ledger`. A decision is a committed offset of this group: the
offset is the decision's number, the metadata is its text. A text too long for one offset's metadata continues in the
groups `{prefix}-ledger-1`, `-2`, …, at the same partition and with the same offset. The offsets of a topic's partitions
are deleted with the topic, so each decision is committed at partitions of several topics. All parts are committed in
one transaction of `{prefix}-driver`, so a replaced driver cannot decide, and the source's offsets can be in the same
transaction.

When all transactions of a decision are committed, its number is committed as an offset of a second group,
`{prefix}-finished`. The commit's transactional id has the same name, so a replaced driver cannot commit this number.
Brokers keep both groups for `offsets.retention.minutes` (7 days) after their last commit.

Decisions' numbers begin beyond the end of any log (`commits.side_groups`).
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.commits.side_groups import BEYOND_ALL_LOGS, FINISHED, LEDGER, LEDGER_PART
from kafka_source.errors import InvalidConfigurationError, RetriableError
from kafka_source.group.requests import fetch_all_committed, fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import numbers_by_topic, runs
from kafka_source.transactions.offset_transaction import GroupOffsets, commit_in
from kafka_source.transactions.open_transaction import OpenTransaction

log = logging.getLogger(__name__)

# Brokers refuse more than 4096 characters (offset.metadata.max.bytes). The number of parts precedes the first part.
_PART_CHARACTERS = 4090

# The maximum number of partitions in a decision, so that a malformed text does not fill the driver's memory.
_MAX_PARTITIONS = 1_000_000
_MAX_PARTS_DIGITS = 4
# The number of topics that store a copy of a decision. A deletion of all these topics before its end is unlikely.
_MAX_HOMES = 3
# Writing a marker takes milliseconds, and longer while a coordinator moves.
_MARKER_SECONDS = 5.0
# KIP-890's protocols. Every driver repeats EndTxn for a decided transaction in that transaction's protocol.
_FIRST, _SECOND = 1, 2


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """A decision's name: its batch, and its place in the ledger.

    Attributes:
        number: The decision's number in the ledger; later decisions have higher numbers.
        query: The id of the query, or of the single write, that the batch belongs to.
        batch: The batch's number in the query.
        homes: The partitions whose committed offsets hold the decision; each partition is of a different topic.
    """

    number: int
    query: str
    batch: int
    homes: tuple[TopicPartition, ...]

    def covers(self, query: str, batch: int) -> bool:
        """Return whether a batch is this batch or an earlier batch of the query, so that its tasks run as a replay."""
        return self.query == query and self.batch >= batch


@dataclass(frozen=True, slots=True)
class Decision(DecidedBatch):
    """The decision to commit a batch.

    Attributes:
        transactions: The transactions to commit; empty if the batch had no rows, or the write was aborted.
        partitions: The partitions that these transactions have written to.
        done: Whether all of its transactions are known to be committed and visible.
    """

    transactions: tuple[OpenTransaction, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    done: bool = False

    @property
    def name(self) -> DecidedBatch:
        """The decision without its transactions and partitions."""
        return DecidedBatch(self.number, self.query, self.batch, self.homes)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The content of the ledger's groups.

    Attributes:
        last: The newest decision, if any.
        finished: The highest number that is recorded as finished; 0: no number.
    """

    last: Decision | None
    finished: int

    @property
    def next_number(self) -> int:
        """The number for the next decision.

        The number is also above the number of the last finished decision, whose group may outlive the ledger's groups.
        A decision with a lower number would count as finished, and no driver would complete it after a crash.
        """
        return 1 + max(BEYOND_ALL_LOGS, self.finished, 0 if self.last is None else self.last.number)


class Ledger:
    """The decisions of one sink.

    Args:
        client: Client of the cluster that the sink writes to.
        prefix: The sink's `transactional.id.prefix`.
    """

    def __init__(self, client: KafkaClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._finished_group = FINISHED.of(prefix)

    async def last(self, deadline: Deadline) -> Decision | None:
        """Return the newest decision; None: there is none. Wait for a decision that is being written."""
        return (await self.read(deadline)).last

    async def read(self, deadline: Deadline) -> LedgerState:
        """Return the newest decision and the finished number. Wait for a decision that is being written."""

        async def read() -> LedgerState:
            entries, finished_entries = await asyncio.gather(
                fetch_all_committed(self._client, self._group(0), deadline),
                fetch_all_committed(self._client, self._finished_group, deadline),
            )
            finished = max((entry.offset for entry in finished_entries.values()), default=0)
            if not entries:
                return LedgerState(None, finished)
            # Every batch chooses the partitions again, so the newest decision has the highest number.
            number = max(entry.offset for entry in entries.values())
            homes = tuple(sorted(tp for tp, entry in entries.items() if entry.offset == number))
            tp, first = homes[0], entries[homes[0]]
            count, _, text = first.metadata.partition(" ")
            if not (count.isascii() and count.isdecimal() and len(count) <= _MAX_PARTS_DIGITS):
                raise _no_decision(self._prefix, number)
            others = (self._read_part(part, tp, number, deadline) for part in range(1, int(count)))
            text = "".join([text, *await asyncio.gather(*others)])
            decision = read_decision(self._prefix, number, homes, text, finished)
            return LedgerState(decision, finished)

        return await self._client.retrying(read, deadline)

    async def shows(self, decision: Decision, deadline: Deadline) -> bool:
        """Return whether OffsetFetch returns a decision whose transaction has been committed.

        If the only broker is killed, it may lose the transaction's commit marker, which the next transaction of the
        same id writes. Until the marker is written, a fetch of all offsets omits partitions without an earlier offset,
        so the next driver would miss the decision.
        """
        within = Deadline(min(_MARKER_SECONDS, deadline.left))
        try:
            await asyncio.gather(
                *(fetch_entries(self._client, one.member.group, one.offsets, within) for one in self.entries(decision))
            )
        except RetriableError as error:
            log.warning("decision %d of %s is not visible yet: %s", decision.number, self._prefix, error)
            return False
        return True

    def entries(self, decision: Decision) -> list[GroupOffsets]:
        """Return, for each part of a decision's text, the offsets to commit in that part's group."""
        text = decision_text(self._prefix, decision)
        parts = [text[start : start + _PART_CHARACTERS] for start in range(0, len(text), _PART_CHARACTERS)]
        parts[0] = f"{len(parts)} {parts[0]}"
        return [
            GroupOffsets(
                SlotCredentials.without_membership(self._group(number)),
                dict.fromkeys(decision.homes, CommitOffset(decision.number, metadata=part)),
            )
            for number, part in enumerate(parts)
        ]

    async def record_finished(
        self,
        transaction: OpenTransaction,
        decision: DecidedBatch,
        deadline: Deadline,
        *,
        before_commit: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Record that a decision is finished, because all of its transactions are committed and visible.

        Args:
            transaction: The epoch of `{prefix}-finished` that this driver holds.
            decision: The decision.
            deadline: Limit for the whole call.
            before_commit: Work that has to succeed before the decision is recorded as finished.

        Raises:
            FencedError: Another driver has begun a batch.
        """
        snapshot = await self._client.retrying(
            lambda: self._client.metadata({tp.topic for tp in decision.homes}, deadline), deadline
        )
        # A topic that was deleted since can have no offsets.
        homes = [tp for tp in decision.homes if tp.topic in snapshot.topics]
        entry = GroupOffsets(
            SlotCredentials.without_membership(self._finished_group),
            dict.fromkeys(homes, CommitOffset(decision.number)),
        )
        if homes:
            await commit_in(self._client, transaction, [entry], deadline, before_commit=before_commit)
        elif before_commit is not None:
            await before_commit()

    def _group(self, number: int) -> str:
        return LEDGER_PART.of(self._prefix, number) if number else LEDGER.of(self._prefix)

    async def _read_part(self, number: int, tp: TopicPartition, decision: int, deadline: Deadline) -> str:
        group = self._group(number)
        entry = (await fetch_all_committed(self._client, group, deadline)).get(tp)
        if entry is None or entry.offset != decision:
            # Another driver has written a decision since the first part was read.
            raise RetriableError(f"Group {group} does not hold its part of decision {decision}.")
        return entry.metadata


def homes_of(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions at which a decision is committed: the lowest partition of each of the first topics."""
    lowest: dict[str, TopicPartition] = {}
    for tp in partitions:
        lowest[tp.topic] = min(tp, lowest.get(tp.topic, tp))
    return tuple(sorted(list(lowest.values())[:_MAX_HOMES]))


def decision_text(prefix: str, decision: Decision) -> str:
    """Return the text that `read_decision` reads."""
    cut = len(prefix) + 1
    transactions = [
        (t.transactional_id[cut:], t.producer_id, t.epoch, t.records, _SECOND if t.second_protocol else _FIRST)
        for t in decision.transactions
    ]
    content = (decision.query, decision.batch, transactions, _to_ranges(decision.partitions))
    return json.dumps(content, separators=(",", ":"))


def read_decision(prefix: str, number: int, homes: tuple[TopicPartition, ...], text: str, finished: int) -> Decision:
    """Parse a decision's text from the ledger's groups.

    Any client with a right to these groups can commit any text.

    Args:
        prefix: The sink's `transactional.id.prefix`.
        number: The decision's number.
        homes: The partitions whose committed offsets hold the decision.
        text: The text of all parts.
        finished: The highest number that is recorded as finished.

    Raises:
        InvalidConfigurationError: The text is no decision.
    """
    try:
        query, batch, found, ranges = json.loads(text)
        transactions = tuple(_transaction(f"{prefix}-{name}", *map(int, rest)) for name, *rest in found)
        return Decision(number, str(query), int(batch), homes, transactions, _from_ranges(ranges), finished >= number)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise _no_decision(prefix, number) from None


def _transaction(transactional_id: str, producer_id: int, epoch: int, records: int, protocol: int) -> OpenTransaction:
    if protocol not in (_FIRST, _SECOND):
        raise ValueError("a transaction protocol that this release does not have")
    return OpenTransaction(transactional_id, producer_id, epoch, records, second_protocol=protocol == _SECOND)


def _no_decision(prefix: str, number: int) -> InvalidConfigurationError:
    return InvalidConfigurationError(
        f"Offset {number} of group {prefix}-ledger has metadata that this release does not know as a decision of an "
        "exactly-once sink. If a newer kafkagroup has used this prefix, upgrade. If not, another program has committed "
        "offsets in this group: use another transactional.id.prefix, or delete the group if no query uses it."
    )


def _to_ranges(partitions: Iterable[TopicPartition]) -> dict[str, list[tuple[int, int]]]:
    """Return each topic's partitions as ranges [first, last], both included; a whole topic is one range."""
    return {topic: runs(numbers) for topic, numbers in numbers_by_topic(sorted(set(partitions))).items()}


def _from_ranges(ranges: Mapping[str, Sequence[tuple[int, int]]]) -> tuple[TopicPartition, ...]:
    count = sum(max(0, last - first + 1) for of_topic in ranges.values() for first, last in of_topic)
    if count > _MAX_PARTITIONS:
        raise ValueError("a decision about too many partitions")
    return tuple(
        TopicPartition(topic, number)
        for topic, of_topic in ranges.items()
        for first, last in of_topic
        for number in range(first, last + 1)
    )
