"""Rows of commands for which `admin` has no types: overviews, the lag of several groups. `common` prints the rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from assignors.model import TopicPartition
from kafka_source.cluster.client_quotas import CLIENT, USER
from kafkagroup.admin.rows import Group, PartitionLag, Rows
from kafkagroup.cli.output import Listing
from kafkagroup.cli.settings import DEFAULT, NAME_VARIABLE, Context

if TYPE_CHECKING:
    from kafka_source.cluster.client_quotas import ClientQuota
    from kafka_source.sink.two_phase.ledger import Decision
    from kafka_source.sink.two_phase.open_transactions import Described
    from kafka_source.sink.two_phase.visibility import LostMarker
    from kafkagroup.admin.checkpoints import Position


@dataclass(frozen=True, slots=True)
class PositionRow:
    """The position at which a source of a query continues in one partition.

    Attributes:
        source: The source's name in the query; without a name, the source's number from 0.
        topic: The topic.
        partition: The partition number.
        next_offset: The next offset to read; finished batches contain all earlier records.
        pending_end: The end of a batch that is planned and not finished; None: no such batch.
    """

    source: str
    topic: str
    partition: int
    next_offset: int
    pending_end: int | None


def position_rows(positions: Iterable[Position]) -> Rows[PositionRow]:
    """Return a row for each partition of each source."""
    return Rows(
        PositionRow,
        (
            PositionRow(
                one.source, tp.topic, tp.partition, offset, None if one.pending is None else one.pending.get(tp)
            )
            for one in positions
            for tp, offset in sorted(one.offsets.items())
        ),
    )


_SERVERS = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class ContextRow:
    """A context.

    Attributes:
        context: The name of the context.
        current: Whether commands that name no cluster use this context.
        bootstrap_servers: The context's bootstrap brokers; None: the context itself does not set them.
        command_config: The file of settings that the context names; None: no file.
        settings: The names of the context's other settings, whose values may be secrets and are not shown.
    """

    context: str
    current: bool
    bootstrap_servers: str | None
    command_config: str | None
    settings: tuple[str, ...]


def context_rows(contexts: Iterable[Context]) -> Rows[ContextRow]:
    """Return contexts as rows, in the order of the file."""
    current = os.environ.get(NAME_VARIABLE) or DEFAULT
    return Rows(
        ContextRow,
        (
            ContextRow(
                one.name,
                one.name == current,
                one.values.get(_SERVERS),
                None if one.command_config is None else str(one.command_config),
                tuple(sorted(one.values.keys() - {_SERVERS})),
            )
            for one in contexts
        ),
    )


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group in one row.

    Attributes:
        group: The group id.
        type: classic or consumer.
        state: Kafka's group state.
        assignor: The assignor; empty without members.
        coordinator: The coordinator's host:port.
        epoch: The group epoch of the consumer protocol (KIP-848).
        members: The number of members.
        topics: The number of topics with a committed offset or an owner.
        partitions: The number of partitions with a committed offset or an owner.
        uncommitted: The number of `partitions` without a committed offset.
        lag: The sum of the partitions' lag. None: unknown, because the group has no commits and owns no partitions.
        greatest: The greatest lag of a partition.
        halt: The author and the time of a pause or stop of the group's queries; None: no pause or stop.
    """

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    epoch: int | None
    members: int
    topics: int
    partitions: int
    uncommitted: int
    lag: int | None
    greatest: int | None
    halt: str | None = None


@dataclass(frozen=True, slots=True)
class LagOf:
    """The lag of a topic or of a member.

    Attributes:
        name: The topic or the member; None: partitions that no member owns.
        partitions: The number of partitions.
        uncommitted: The number of `partitions` without a committed offset.
        lag: The sum of the partitions' lag.
        greatest: The greatest lag of a partition.
    """

    name: str | None
    partitions: int
    uncommitted: int
    lag: int
    greatest: int


def overview(group: Group, lag: Iterable[PartitionLag], halt: object = None) -> GroupOverview:
    """Return a group in one row; `halt` describes the group's pause or stop."""
    rows = list(lag)
    return GroupOverview(
        group.group,
        group.type,
        group.state,
        group.assignor,
        group.coordinator,
        group.epoch,
        len(group.members),
        len({row.topic for row in rows}),
        len(rows),
        sum(row.committed is None for row in rows),
        total(rows),
        max((row.behind or 0 for row in rows), default=None),
        None if halt is None else str(halt),
    )


def total(lag: Iterable[PartitionLag]) -> int | None:
    """Return the lag of all partitions that have a leader; None: there are no partitions, so the lag is unknown."""
    behind = [row.behind or 0 for row in lag]
    return sum(behind) if behind else None


def lag_by_topic(lag: Iterable[PartitionLag]) -> Rows[LagOf]:
    """Return the lag of each topic."""
    return _group_lag(lag, lambda row: row.topic)


def lag_by_member(lag: Iterable[PartitionLag]) -> Rows[LagOf]:
    """Return the lag of each member, and of partitions without an owner."""
    return _group_lag(lag, lambda row: row.member)


def _group_lag(lag: Iterable[PartitionLag], name_of: Callable[[PartitionLag], str | None]) -> Rows[LagOf]:
    grouped: dict[str | None, list[PartitionLag]] = {}
    for row in lag:
        grouped.setdefault(name_of(row), []).append(row)
    return Rows(
        LagOf,
        (
            LagOf(
                name,
                len(rows),
                sum(row.committed is None for row in rows),
                sum(row.behind or 0 for row in rows),
                max(row.behind or 0 for row in rows),
            )
            for name, rows in sorted(grouped.items(), key=lambda item: (item[0] is None, item[0] or ""))
        ),
    )


@dataclass(frozen=True, slots=True)
class OptionRow:
    """An option of the format.

    Attributes:
        option: The option's name.
        takes: The allowed values.
        default: The option's default.
        does: The option's effect.
    """

    option: str
    takes: str
    default: str
    does: str


def option_rows(name: str) -> Rows[OptionRow]:
    """Return the options whose name contains `name`."""
    from kafka_source.options import OPTIONS
    from kafka_source.options.reference import default_words, takes_words

    return Rows(
        OptionRow,
        (
            OptionRow(option.name, takes_words(option), default_words(option), option.doc)
            for option in OPTIONS
            if name.lower() in option.name.lower()
        ),
    )


@dataclass(frozen=True, slots=True)
class SlotUse:
    """The bytes, records and delays of one slot of a query.

    Attributes:
        slot: The slot's number.
        bytes: Bytes on the network.
        records: Records.
        throttle_seconds: For how long the query's own quota has delayed the slot.
        broker_throttle_seconds: For how long the brokers have delayed the slot.
    """

    slot: str
    bytes: int
    records: int
    throttle_seconds: float
    broker_throttle_seconds: float


@dataclass(frozen=True, slots=True)
class BrokerQuota:
    """A client quota that the brokers keep (KIP-546).

    Attributes:
        user: The user; (default): all users without a quota of their own; None: any user.
        client_id: The client id; (default): all client ids without a quota of their own; None: any client id.
        quota: The name of the quota.
        value: Bytes a second, or percent of one thread's time.
    """

    user: str | None
    client_id: str | None
    quota: str
    value: float


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """The change of a client quota of the brokers.

    Attributes:
        user: The user; None: any.
        client_id: The client id.
        quota: The name of the quota.
        value: The new value, in bytes a second or percent of one thread's time; None: the quota is removed.
        before: The value before the change; None: no quota.
    """

    user: str | None
    client_id: str
    quota: str
    value: float | None
    before: float | None


def usage(figures: Mapping[str, Any]) -> Listing:
    """Return the content of a `quota.report` file as a table."""
    rows = Rows(
        SlotUse,
        (
            SlotUse(str(number), slot["bytes"], slot["records"], slot["delayMs"] / 1000, slot["throttleMs"] / 1000)
            for number, slot in figures["slots"].items()
        ),
    )
    bounds = f"{_rate(figures['bytesPerSecond'])} bytes/s, {_rate(figures['recordsPerSecond'])} records/s"
    now = f"{figures['observedBytesPerSecond']:,} bytes/s, {figures['observedRecordsPerSecond']:,} records/s"
    title = f"client {figures['clientId']}: {figures['usedPercent']} % used of {bounds}; now {now}"
    return Listing("slots", rows, title)


def broker_quotas(quotas: Iterable[ClientQuota]) -> Listing:
    """Return the brokers' client quotas as a table."""
    rows = Rows(
        BrokerQuota,
        (
            BrokerQuota(_name(each.entity, USER), _name(each.entity, CLIENT), name, value)
            for each in sorted(quotas, key=lambda each: str(sorted(each.entity.items(), key=str)))
            for name, value in sorted(each.values.items())
        ),
    )
    return Listing("quotas", rows, "client quotas of the brokers", empty="The brokers keep no client quotas.")


def quota_changes(quotas: Iterable[ClientQuota], client_id: str, wanted: Mapping[str, float | None]) -> Listing:
    """Return the change of a client id's quotas as a table.

    Args:
        quotas: All quotas that the brokers keep before the change.
        client_id: The client id.
        wanted: The new value of each quota, by the quota's name; None: remove the quota.
    """
    before = next((each.values for each in quotas if each.entity == {CLIENT: client_id}), {})
    changes = (QuotaChange(None, client_id, name, value, before.get(name)) for name, value in wanted.items())
    return Listing("quotas", Rows(QuotaChange, changes), "client quotas of the brokers", frozenset({"user"}))


def _rate(value: float | None) -> str:
    return "any" if value is None else f"{value:,.0f}"


def _name(entity: Mapping[str, str | None], component: str) -> str | None:
    return (entity[component] or "(default)") if component in entity else None


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """An unfinished transaction of an exactly-once sink.

    Attributes:
        transactional_id: The transactional id.
        producer_id: The producer id.
        epoch: The producer epoch.
        state: decided: to be committed; undecided: open, without a decision.
        query: The query that decided the commit; None: undecided.
        batch: The transaction's micro-batch; None: undecided.
        open_seconds: For how long the transaction has been open; None: decided.
        timeout_seconds: For how long the brokers let the transaction be open; None: decided.
        partitions: The known partitions that the transaction has written to.
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
        transactional_id: The transactional id.
        producer_id: The producer id.
        epoch: The producer epoch.
        topic: The topic.
        partition: The partition that lacks the commit marker.
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
    """Return a table of the decided transactions and a table of the undecided transactions; omit an empty table."""
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
