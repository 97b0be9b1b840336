"""What `kafkagroup transactions` shows: the transactions of a sink, and its missing commit markers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from assignors.model import TopicPartition
from kafka_source.sink.two_phase.commit_markers import LostMarker
from kafka_source.sink.two_phase.ledger import Decision
from kafka_source.sink.two_phase.open_transactions import Described
from kafkagroup.admin.rows import Rows
from kafkagroup.cli.listing import Listing


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transaction of an exactly-once sink that is not finished.

    Attributes:
        transactional_id: Its transactional id.
        producer_id: Its producer id.
        epoch: Its producer epoch.
        state: decided: it is to be committed; undecided: it is open, and nobody has decided.
        query: The query that decided; None: undecided.
        batch: The micro-batch that it is part of; None: undecided.
        open_seconds: For how long it has been open; None: decided.
        timeout_seconds: After which time the brokers abort it; None: decided.
        partitions: The partitions that it has written to, as far as they are known.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    state: Literal["decided", "undecided"]
    query: str | None = None
    batch: int | None = None
    open_seconds: float | None = None
    timeout_seconds: float | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class MarkerRow:
    """A committed transaction, and a partition without its commit marker.

    Attributes:
        transactional_id: Its transactional id.
        producer_id: Its producer id.
        epoch: Its producer epoch.
        topic: The topic.
        partition: The partition without its marker.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    topic: str
    partition: int


def transaction_rows(decision: Decision | None, undecided: Iterable[Described], now: float) -> Rows[TransactionRow]:
    """Return all unfinished transactions; `now` is in seconds since 1970."""
    rows = []
    if decision is not None:
        rows += [
            TransactionRow(one.transactional_id, one.producer_id, one.epoch, "decided", decision.query, decision.batch)
            for one in decision.transactions
        ]
    for found in undecided:
        one = found.transaction
        rows.append(
            TransactionRow(
                one.transactional_id,
                one.producer_id,
                one.epoch,
                "undecided",
                open_seconds=max(0.0, now - found.started_ms / 1000),
                timeout_seconds=found.timeout_ms / 1000,
                partitions=found.partitions,
            )
        )
    return Rows(TransactionRow, rows)


def marker_rows(missing: Iterable[LostMarker]) -> Rows[MarkerRow]:
    """Return a row for each missing marker."""
    return Rows(
        MarkerRow,
        (
            MarkerRow(
                lost.transaction.transactional_id,
                lost.transaction.producer_id,
                lost.transaction.epoch,
                lost.partition.topic,
                lost.partition.partition,
            )
            for lost in missing
        ),
    )


def tables(rows: Rows[TransactionRow]) -> list[Listing]:
    """Return a table of the decided transactions and one of the others, without tables that have no rows."""
    decided = Rows(TransactionRow, (row for row in rows if row.state == "decided"))
    others = Rows(TransactionRow, (row for row in rows if row.state == "undecided"))
    found = []
    if decided:
        title = f"decided, to be committed: batch {decided[0].batch} of {decided[0].query}"
        hidden = frozenset({"state", "query", "batch", "open_seconds", "timeout_seconds", "partitions"})
        found.append(Listing("decided", decided, title, hidden))
    if others:
        found.append(Listing("undecided", others, "open, undecided", frozenset({"state", "query", "batch"})))
    return found
