"""Groups as tables that a person reads."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from kafka_source.admin import Group, PartitionLag


def members(group: Group) -> Table:
    """A group's members with their partitions."""
    table = Table(
        "member", "client", "host", "partitions", title=f"group {group.group}: {group.state}, {group.assignor}"
    )
    for member in group.members:
        held: dict[str, list[int]] = {}
        for tp in member.partitions:
            held.setdefault(tp.topic, []).append(tp.partition)
        partitions = "; ".join(f"{topic} {', '.join(map(str, numbers))}" for topic, numbers in held.items())
        table.add_row(member.name, member.client_id, member.host, partitions or "none")
    return table


def lag(rows: Iterable[PartitionLag], title: str = "lag") -> Table:
    """How far a group is behind, partition by partition."""
    rows = list(rows)
    table = Table("topic", "partition", "committed", "end", "lag", "member", title=title)
    for row in rows:
        committed, behind = ("none", str(row.end)) if row.committed is None else (str(row.committed), str(row.lag))
        table.add_row(row.topic, str(row.partition), committed, str(row.end), behind, row.member or "nobody")
    table.add_section()
    table.add_row("all", "", "", "", str(sum(row.end if row.lag is None else row.lag for row in rows)), "")
    return table
