"""Tables of groups and transactions for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table

from kafka_source.admin import Group, PartitionLag
from kafka_source.sink.two_phase.commit_markers import LostMarker
from kafka_source.sink.two_phase.ledger import Decision
from kafka_source.sink.two_phase.open_transactions import Described


def members(group: Group) -> Table:
    """Return a table of a group's members and their partitions."""
    table = Table(
        "member",
        "client",
        "host",
        "partitions",
        title=f"group {group.group}: {group.state}, {group.assignor or 'no assignor'}, coordinator {group.coordinator}",
    )
    for member in group.members:
        held: dict[str, list[int]] = {}
        for tp in member.partitions:
            held.setdefault(tp.topic, []).append(tp.partition)
        partitions = "; ".join(f"{topic} {', '.join(map(str, numbers))}" for topic, numbers in held.items())
        table.add_row(member.name, member.client_id, member.host, partitions or "none")
    return table


def groups(states: Mapping[str, str]) -> Table:
    """Return a table of groups and their states."""
    table = Table("group", "state")
    for name, state in states.items():
        table.add_row(name, state)
    return table


def lag(rows: Iterable[PartitionLag], title: str = "lag") -> Table:
    """Return a table of a group's lag in each partition, and in total."""
    rows = list(rows)
    table = Table("topic", "partition", "committed", "end", "lag", "member", title=title)
    for row in rows:
        committed, behind = ("none", str(row.end)) if row.committed is None else (str(row.committed), str(row.lag))
        table.add_row(row.topic, str(row.partition), committed, str(row.end), behind, row.member or "none")
    table.add_section()
    table.add_row("all", "", "", "", str(sum(row.end if row.lag is None else row.lag for row in rows)), "")
    return table


def decided(decision: Decision) -> Table:
    """Return a table of the transactions whose commit was decided and is not finished."""
    title = f"decided, to be committed: batch {decision.batch} of {decision.query}"
    table = Table("transactional id", "producer id", "epoch", title=title)
    for transaction in decision.transactions:
        table.add_row(transaction.transactional_id, str(transaction.producer_id), str(transaction.epoch))
    return table


def undecided(found: Iterable[Described], now: float) -> Table:
    """Return a table of the open transactions without a decision; `now` is in seconds since 1970."""
    table = Table(
        "transactional id", "producer id", "epoch", "open for", "aborted after", "partitions", title="open, undecided"
    )
    for one in found:
        of = one.transaction
        table.add_row(
            of.transactional_id,
            str(of.producer_id),
            str(of.epoch),
            f"{max(0.0, now - one.started_ms / 1000):.0f} s",
            f"{one.timeout_ms / 1000:.0f} s",
            ", ".join(f"{tp.topic}-{tp.partition}" for tp in one.partitions),
        )
    return table


def markers(missing: Iterable[LostMarker]) -> Table:
    """Return a table of the committed transactions whose commit markers are missing."""
    table = Table("transactional id", "producer id", "epoch", "partition", title="committed, commit marker missing")
    for lost in missing:
        of, tp = lost.transaction, lost.partition
        table.add_row(of.transactional_id, str(of.producer_id), str(of.epoch), f"{tp.topic}-{tp.partition}")
    return table
