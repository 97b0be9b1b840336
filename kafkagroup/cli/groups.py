"""The commands `kafkagroup groups | group | create | delete | plan`: show, create, delete and plan groups."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkagroup.cli.common import (
    BOUND_EXCEEDED,
    GroupArgument,
    GroupOption,
    OutputOption,
    Topics,
    Yes,
    check_regex,
    emit,
    exit_on_error,
    note,
    note_idle,
    note_outcome,
    one_group,
    parse_topics,
    usage_of,
)
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafkagroup.admin import Group, PartitionLag, Rows
if TYPE_CHECKING:
    from assignors import ClusterMetadata
    from kafkagroup.admin.assignment_plan import PlanMember


class By(str, Enum):
    """The grouping of the lag."""

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
        str | None, typer.Option("--regex", metavar="REGEX", help="Only groups whose id contains a match of REGEX.")
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
    lag: Annotated[bool, typer.Option("--lag", help="Also show the number of members and the lag.")] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Also list the groups in which exactly-once sinks keep their state.")
    ] = False,
    fail_above: FailAbove = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the groups of a cluster with their types and states."""
    check_regex(pattern)
    with exit_on_error():
        from kafkagroup.admin import Groups
        from kafkagroup.admin.group_requests import is_consumer_group

        with_lag = lag or fail_above is not None
        settings = connection.settings()
        found = Groups(settings).list(
            lag=with_lag, types=types or (), states=states or (), pattern=pattern, private=private
        )
        hidden = frozenset() if with_lag else frozenset({"members", "lag", "uncommitted"})
        if not any(one.halt for one in found):
            hidden |= {"halt"}
        emit(output, Listing("groups", found, hidden=hidden, empty="There are no such groups."))
        if fail_above is not None:
            _exit_above(fail_above, {one.group: one.lag for one in found if is_consumer_group(one)})


@with_connection
def show_group(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    topic: Topics = None,
    by: Annotated[
        By,
        typer.Option(
            "--by", metavar="partition|topic|member", help="Show the lag by partition, by topic or by member."
        ),
    ] = By.PARTITION,
    summary: Annotated[bool, typer.Option("--summary", help="Show only one row for the whole group.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Show only the members.")] = False,
    only_with_lag: Annotated[bool, typer.Option("--only-with-lag", help="Show only partitions with lag.")] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", min=0.1, metavar="SECONDS", help="Also show each member's commit rate, sampled over SECONDS."
        ),
    ] = None,
    fail_above: FailAbove = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a group: state, assignor, members with their partitions, and lag.

    With --topic, the command shows only these topics or partitions, even if the group has never read them.
    """
    name = one_group(group, group_option)
    selection = parse_topics(topic)
    with exit_on_error():
        from kafkagroup.admin import Groups, Rows, halt_of_group
        from kafkagroup.admin.rows import PartitionLag
        from kafkagroup.cli.rows import GroupOverview, overview, total

        settings = connection.settings()
        groups, halt = Groups(settings), halt_of_group(settings, name)
        found = groups.describe(name, rate_seconds=rate)
        lag = groups.lag(name, selection.partitions, topics=selection.topics)
        lag = Rows(PartitionLag, (row for row in lag if selection.has(row.topic, row.partition)))
        whole = Listing("group", Rows(GroupOverview, (overview(found, lag, halt),)))
        shown = Rows(PartitionLag, (row for row in lag if row.behind != 0 or not only_with_lag))
        if summary:
            emit(output, whole, document=True)
        elif members:
            emit(output, _members(found), document=True)
        elif output is Output.JSON:
            emit(output, whole, _members(found), _lag(shown, by, total(lag)))
        elif output in (Output.CSV, Output.JSONL):
            emit(output, _lag(shown, by, total(lag)))
        else:
            emit(output, _members(found), _lag(shown, by, total(lag)))
            if halt is not None:
                note(f"Group {name} is {halt}.")
                note_idle(settings, name)
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
    """Create a group by committing the offsets at which it starts reading."""
    name = one_group(group, group_option)
    selection = parse_topics(topic)
    if not selection.names:
        raise typer.BadParameter("is missing: name the topics that the group will read", param_hint="--topic")
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
        from kafkagroup.cli.rows import GroupOverview, overview

        groups = Groups(connection.settings())
        found = groups.describe(name)
        row = overview(found, groups.lag(name))
        if yes:
            groups.delete(name)
        emit(output, Listing("group", Rows(GroupOverview, (row,))))
        note_outcome(yes)


def _members(group: Group) -> Listing:
    from kafkagroup.admin import Rows
    from kafkagroup.admin.rows import MemberDescription

    assignor = group.assignor or "no assignor"
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    title = f"group {group.group}: {group.type}, {group.state}{epoch}, {assignor}, coordinator {group.coordinator}"
    rows = Rows(MemberDescription, group.members)
    # The table leaves out columns that are empty in all rows. The name is the instance id or the member id.
    hidden = {
        column
        for column in ("rack", "user_data", "assigned_data", "epoch", "revoking", "awaiting", "rate")
        if all(getattr(row, column) in (None, ()) for row in rows)
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


def _lag(rows: Rows[PartitionLag], by: By, total: int | None) -> Listing:
    from kafkagroup.cli.rows import lag_by_member, lag_by_topic

    if by is By.PARTITION:
        hidden, last = frozenset({"start", "lag"}), {"topic": "all", "behind": total}
        return Listing("lag", rows, "lag", hidden, last, headings={"behind": "lag"})
    grouped = lag_by_topic(rows) if by is By.TOPIC else lag_by_member(rows)
    return Listing(
        "lag", grouped, f"lag by {by.value}", headings={"name": by.value}, total={"name": "all", "lag": total}
    )


def _exit_above(bound: int, lags: dict[str, int | None]) -> None:
    """Exit with `BOUND_EXCEEDED` if the lag of a group is above the bound, and name the groups whose lag is unknown."""
    if unknown := [name for name, lag in lags.items() if lag is None]:
        note("The lag of these groups is unknown, because they have committed no offsets: " + ", ".join(unknown))
    above = {name: lag for name, lag in lags.items() if lag is not None and lag > bound}
    if above:
        note(f"The lag is above {bound}: " + ", ".join(f"{name} {lag}" for name, lag in above.items()))
        raise typer.Exit(BOUND_EXCEEDED)


@with_connection
def plan(
    assignor: Annotated[
        str,
        typer.Argument(
            metavar="ASSIGNOR", show_default=False, help="range, sticky, copartition, …, or module:Class of your own."
        ),
    ],
    connection: Connection = NO_OPTIONS,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[=N]",
            help="A topic that members read. TOPIC=N: a topic with N partitions, without a cluster. Can be repeated.",
        ),
    ] = None,
    slots: Annotated[int, typer.Option("--slots", min=0, metavar="N", help="N members with equal settings.")] = 0,
    member: Annotated[
        list[str] | None,
        typer.Option(
            "--member",
            metavar="NAME[@RACK][=WEIGHT]",
            help="A member, with its rack and its weight (assignor weighted). Can be repeated.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="Include this group's members and their partitions."),
    ] = None,
    options: Annotated[
        str | None, typer.Option("--options", metavar="JSON", help='Options of the assignor, such as {"copies": 3}.')
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which partitions an assignor would give to each member. The command changes nothing."""
    chosen = _options(options)
    fixed, asked = _topics(topic or [])
    with exit_on_error():
        from kafkagroup.admin import assignment_plan

        members = [_member(text, (*fixed, *asked), chosen) for text in member or ()]
        members += [assignment_plan.PlanMember(f"slot-{n}", (*fixed, *asked), options=chosen) for n in range(slots)]
        if group is not None or asked:
            from kafkagroup.admin import Groups, Topics

            settings = connection.settings()
            if group is not None:
                found = Groups(settings).describe(group)
                members = assignment_plan.members_of(found, assignor, chosen) + members
            names = {name for one in members for name in one.topics} | set(asked)
            cluster = _with_fixed(Topics(settings).for_assignor(names - set(fixed)), fixed)
        else:
            from assignors import ClusterMetadata

            cluster = ClusterMetadata(fixed)
        if not members:
            raise typer.BadParameter("are missing: give --slots, --member or --group", param_hint="members")
        if not any(one.topics for one in members):
            raise typer.BadParameter("is missing: name the topics that the members read", param_hint="--topic")
        with usage_of("ASSIGNOR"):
            rows = assignment_plan.plan(assignor, cluster, members)
        empty = {
            name for name in ("standby", "gained", "lost", "outside_rack") if not any(getattr(r, name) for r in rows)
        }
        if not any(one.owned for one in members):
            empty |= {"gained", "lost"}
        emit(output, Listing("plan", rows, f"assignor {assignor}", frozenset(empty)))


def _options(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as problem:
        raise typer.BadParameter(f"is not JSON: {problem}", param_hint="--options") from None
    if not isinstance(found, dict):
        raise typer.BadParameter('must be an object such as {"copies": 3}', param_hint="--options")
    return found


def _topics(given: list[str]) -> tuple[dict[str, int], list[str]]:
    """Return the partition counts that are given, and the topics whose partition counts the cluster has to return."""
    fixed, asked = {}, []
    for text in given:
        name, equals, count = text.partition("=")
        if not equals:
            asked.append(name)
        elif count.isdigit():
            fixed[name] = int(count)
        else:
            raise typer.BadParameter(f"{text!r} must be TOPIC or TOPIC=N", param_hint="--topic")
    return fixed, asked


def _member(text: str, topics: tuple[str, ...], options: dict[str, Any]) -> PlanMember:
    from kafkagroup.admin.assignment_plan import PlanMember

    front, equals, weight = text.partition("=")
    name, _, rack = front.partition("@")
    if equals and not weight.isdigit():
        raise typer.BadParameter(f"{text!r} must be NAME[@RACK][=WEIGHT]", param_hint="--member")
    own = {**options, "weight": int(weight)} if equals else options
    return PlanMember(name, topics, rack or None, own)


def _with_fixed(cluster: ClusterMetadata, fixed: dict[str, int]) -> ClusterMetadata:
    from assignors import ClusterMetadata

    return ClusterMetadata({**cluster.partitions, **fixed}, cluster.racks)
