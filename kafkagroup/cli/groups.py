"""The commands `kafkagroup groups | group | create | delete`: look at groups, make and delete them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import (
    BOUND_EXCEEDED,
    GroupArgument,
    GroupOption,
    OutputOption,
    Topics,
    Yes,
    check_regex,
    exit_on_error,
    note,
    note_outcome,
    one_group,
    usage_of,
)
from kafkagroup.cli.listing import Listing
from kafkagroup.cli.output import Output, emit
from kafkagroup.cli.selection import parse_topics
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafkagroup.admin import Group, PartitionLag, Rows


class By(str, Enum):
    """What a row of the lag is about."""

    PARTITION = "partition"
    TOPIC = "topic"
    MEMBER = "member"


FailAbove = Annotated[
    int | None,
    typer.Option("--fail-above-lag", min=0, metavar="N", help="Exit with code 3 if a group's lag is above N."),
]


@with_connection
def list_groups(
    connection: Connection = NO_OPTIONS,
    pattern: Annotated[
        str | None, typer.Option("--regex", metavar="REGEX", help="Only groups whose id matches somewhere.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only classic, consumer, share or streams groups. Can be repeated."
        ),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state, such as Stable. Can be repeated."),
    ] = None,
    lag: Annotated[bool, typer.Option("--lag", help="Also the number of members and the lag.")] = False,
    fail_above: FailAbove = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the groups of a cluster with their types and states."""
    check_regex(pattern)
    with exit_on_error():
        from kafkagroup.admin import Groups

        with_lag = lag or fail_above is not None
        settings = connection.settings()
        found = Groups(settings).list(lag=with_lag, types=types or (), states=states or (), pattern=pattern)
        hidden = frozenset() if with_lag else frozenset({"members", "lag", "uncommitted"})
        emit(output, Listing("groups", found, hidden=hidden, empty="There are no such groups."))
        if fail_above is not None:
            _exit_above(fail_above, {one.group: one.lag or 0 for one in found})


@with_connection
def show_group(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    topic: Topics = None,
    by: Annotated[
        By, typer.Option("--by", metavar="partition|topic|member", help="What a row of the lag is about.")
    ] = By.PARTITION,
    summary: Annotated[bool, typer.Option("--summary", help="Only one row about the whole group.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Only the members.")] = False,
    only_with_lag: Annotated[bool, typer.Option("--only-with-lag", help="Only rows with lag.")] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.1,
            metavar="SECONDS",
            help="Also show each member's commit rate, sampled over SECONDS.",
        ),
    ] = None,
    fail_above: FailAbove = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a group: state, assignor, members with their partitions, and lag.

    With --topic only these topics, and all their partitions, read or not.
    """
    name = one_group(group, group_option)
    selection = parse_topics(topic)
    with exit_on_error():
        from kafkagroup.admin import Groups, Rows
        from kafkagroup.admin.model import PartitionLag
        from kafkagroup.cli.group_rows import GroupOverview, overview, total

        groups = Groups(connection.settings())
        found = groups.describe(name, rate_seconds=rate)
        lag = groups.lag(name, selection.partitions, topics=selection.topics)
        lag = Rows(PartitionLag, (row for row in lag if selection.has(row.topic, row.partition)))
        whole = Listing("group", Rows(GroupOverview, (overview(found, lag),)))
        shown = Rows(PartitionLag, (row for row in lag if row.behind or not only_with_lag))
        if summary:
            emit(output, whole, document=True)
        elif members:
            emit(output, _members(found), document=True)
        elif output is Output.JSON:
            emit(output, whole, _members(found), _lag(shown, by, total(lag)))
        elif output is Output.CSV:
            emit(output, _lag(shown, by, total(lag)))
        else:
            emit(output, _members(found), _lag(shown, by, total(lag)))
        if fail_above is not None:
            _exit_above(fail_above, {name: total(lag)})


@with_connection
def create(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    topic: Topics = None,
    to: Annotated[
        str, typer.Option("--to", metavar="POSITION", help="earliest, latest, or a time: ISO 8601, or ms since 1970.")
    ] = "latest",
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a group by committing where it starts reading."""
    name = one_group(group, group_option)
    selection = parse_topics(topic)
    if not selection.names:
        raise typer.BadParameter("is missing: name what the group will read", param_hint="--topic")
    with usage_of("--to"):
        from kafka_source.model.rewind_target import parse_position

        position = parse_position(to)
    with exit_on_error():
        from kafkagroup.admin import Groups

        groups = Groups(connection.settings())
        moves = groups.moves(name, position, selection.partitions, topics=selection.topics)
        groups.create(name, {one.topic_partition: one.offset for one in moves}, dry_run=not yes)
        emit(output, Listing("moves", moves, f"group {name}"))
        note_outcome(yes)


@with_connection
def delete(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a group with its committed offsets. The group must have no members."""
    name = one_group(group, group_option)
    with exit_on_error():
        from kafkagroup.admin import Groups, Rows
        from kafkagroup.cli.group_rows import GroupOverview, overview

        groups = Groups(connection.settings())
        found = groups.describe(name)
        row = overview(found, groups.lag(name))
        if yes:
            groups.delete(name)
        emit(output, Listing("group", Rows(GroupOverview, (row,))))
        note_outcome(yes)


def _members(group: Group) -> Listing:
    from kafkagroup.admin import Rows
    from kafkagroup.admin.model import MemberDescription

    assignor = group.assignor or "no assignor"
    title = f"group {group.group}: {group.type}, {group.state}, {assignor}, coordinator {group.coordinator}"
    rows = Rows(MemberDescription, group.members)
    # Columns that say nothing in any row are left out of the table. The name is the instance id or the member id.
    hidden = {
        column
        for column in ("rack", "user_data", "assigned_data", "epoch", "rate")
        if all(getattr(row, column) is None for row in rows)
    }
    hidden |= {"instance_id", "member_id"}
    topics = {row.topics for row in rows}
    if len(topics) == 1 and len(group.members) > 1 and (common := ", ".join(next(iter(topics)))):
        title += f", all subscribe to {common}"
        hidden.add("topics")
    return Listing(
        "members",
        rows,
        title,
        frozenset(hidden),
        empty=f"{title}, no members",
        headings={"name": "member", "client_id": "client", "rate": "offsets/s"},
        first="name",
    )


def _lag(rows: Rows[PartitionLag], by: By, total: int) -> Listing:
    from kafkagroup.cli.group_rows import by_member, by_topic

    if by is By.PARTITION:
        hidden, last = frozenset({"start", "lag"}), {"topic": "all", "behind": total}
        return Listing("lag", rows, "lag", hidden, last, headings={"behind": "lag"})
    grouped = by_topic(rows) if by is By.TOPIC else by_member(rows)
    return Listing(
        "lag", grouped, f"lag by {by.value}", headings={"name": by.value}, total={"name": "all", "lag": total}
    )


def _exit_above(bound: int, lags: dict[str, int]) -> None:
    """Exit with its code if the lag of a group is above the bound."""
    above = {name: lag for name, lag in lags.items() if lag > bound}
    if above:
        note(f"The lag is above {bound}: " + ", ".join(f"{name} {lag}" for name, lag in above.items()))
        raise typer.Exit(BOUND_EXCEEDED)
