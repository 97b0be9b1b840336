"""The command `kafkagroup plan`: what each member would get from an assignor, before it is used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkagroup.cli.common import OutputOption, exit_on_error, usage_of
from kafkagroup.cli.listing import Listing
from kafkagroup.cli.output import Output, emit
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from assignors import ClusterMetadata
    from kafkagroup.admin.assignment_plan import PlanMember


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
            help="A topic of the members; with =N it has N partitions and no cluster is asked. Can be repeated.",
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
        typer.Option("--group", "-g", metavar="GROUP", help="Also the members of this group, with what they have now."),
    ] = None,
    options: Annotated[
        str | None, typer.Option("--options", metavar="JSON", help='Options of the assignor, such as {"copies": 3}.')
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what each member would get from an assignor: a dry run, by the real assignor. Nothing is changed."""
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
            raise typer.BadParameter("is missing: name what the members read", param_hint="--topic")
        with usage_of("ASSIGNOR"):
            rows = assignment_plan.plan(assignor, cluster, members)
        # Columns that say nothing in any row are left out of the table.
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
        raise typer.BadParameter(f"is no JSON: {problem}", param_hint="--options") from None
    if not isinstance(found, dict):
        raise typer.BadParameter('must be an object such as {"copies": 3}', param_hint="--options")
    return found


def _topics(given: list[str]) -> tuple[dict[str, int], list[str]]:
    """Return the partition counts that are given, and the topics whose partitions the cluster has to tell."""
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
