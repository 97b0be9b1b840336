"""The commands `kafkagroup stop | pause | resume`: what the queries of a group do, from outside of their processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import (
    BOUND_EXCEEDED,
    GroupArgument,
    GroupOption,
    OutputOption,
    Yes,
    emit,
    exit_on_error,
    note,
    note_outcome,
    one_group,
    usage_of,
)
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkagroup.admin import Halted, Stand
    from kafkagroup.admin.halts import At

_MAX_NAMED = 10

OthersGoOn = Annotated[
    bool, typer.Option("--others-go-on", help="Allow members of other clients, which read on: they cannot be told.")
]


@with_connection
def stop(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="now|end|TIME|OFFSETS",
            help="Where it is; the present end; the first record of a time that has passed, in ISO 8601 or ms since "
            '1970; or offsets, {"orders": {"0": 120}}.',
        ),
    ] = "now",
    others_go_on: OthersGoOn = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait until the queries have stopped."),
    ] = 330,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop the queries of a group at boundaries, and wait until each partition is there.

    Each query obeys at its next trigger: it reads up to the boundaries of its partitions, commits, and leaves the group
    when all partitions are at theirs. Partitions without an offset in OFFSETS stop where they are. A query that is
    started later stays idle until `resume`. Exits with 3 if the queries have
    not stopped within --timeout, or have passed a boundary.
    """
    name = one_group(group, group_option)
    with usage_of("--at"):
        boundaries = _at(at)
    with exit_on_error():
        from kafkagroup.admin import stop as stop_group
        from kafkagroup.admin import wait_until_stopped

        settings = connection.settings()
        found = stop_group(settings, name, boundaries, others_go_on=others_go_on, dry_run=not yes)
        if yes and found.members and not found.has_stopped:
            note(
                f"Waiting for {len(found.members)} members of group {name}. Each query looks at its next trigger: with "
                "triggers of an hour this takes up to two hours. Ctrl-C ends the wait and not the stop."
            )
            found = wait_until_stopped(settings, name, found.halt, timeout=timeout)
        _show(found, output, done=yes)
        note_outcome(yes)
    if not yes:
        return
    if passed := _places(found, lambda one, boundary: (one.committed or 0) > boundary):
        note(f"Batches that were planned before the stop have passed boundaries: {passed}.")
    if found.members and not found.has_stopped:
        behind = _places(found, lambda one, boundary: (one.committed or 0) < boundary)
        members = ", ".join(f"{one.name} at {one.host}" for one in found.members)
        note(
            f"Group {name} has not stopped yet. Members: {members or 'none'}. Behind their boundaries: "
            f"{behind or 'none'}. The stop holds until `kafkagroup resume {name}`."
        )
    elif not passed or at == "end":
        return
    raise typer.Exit(BOUND_EXCEEDED)


@with_connection
def pause(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    others_go_on: OthersGoOn = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Pause the queries of a group: they keep their places and read nothing from their next trigger on.

    A pause holds over restarts of the queries and does not end by itself: `kafkagroup resume` ends it.
    """
    name = one_group(group, group_option)
    with exit_on_error():
        from kafkagroup.admin import pause as pause_group

        _show(pause_group(connection.settings(), name, others_go_on=others_go_on, dry_run=not yes), output, done=yes)
        note_outcome(yes)


@with_connection
def resume(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let the queries of a group that is paused or stopped go on where they are, at their next trigger."""
    name = one_group(group, group_option)
    with exit_on_error():
        from kafkagroup.admin import resume as resume_group

        _show(resume_group(connection.settings(), name, dry_run=not yes), output, done=yes)
        note_outcome(yes)


def _at(text: str) -> At:
    from assignors.model import TopicPartition
    from kafka_source.errors import OptionError
    from kafka_source.model.rewind_target import parse_time
    from kafkagroup.admin import AtTime

    if text == "now":
        return "now"
    if text == "end":
        return "end"
    if not text.startswith("{"):
        return AtTime(parse_time(text))
    try:
        return {
            TopicPartition(str(topic), int(number)): int(offset)
            for topic, offsets in json.loads(text).items()
            for number, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise OptionError("at", text, 'offsets by topic and partition, such as {"orders": {"0": 120}}') from None


def _show(found: Halted, output: Output, *, done: bool) -> None:
    hidden = frozenset() if found.halt.boundaries else frozenset({"boundary", "is_there"})
    title = f"group {found.group}, {found.halt}" if done else f"group {found.group}"
    emit(output, Listing("partitions", found.partitions, title, hidden, headings={"is_there": "there"}))


def _places(found: Halted, is_meant: Callable[[Stand, int], bool]) -> str:
    """Name the partitions with a boundary for which that is so."""
    from kafka_source.model.partition_runs import first_names

    return first_names(
        [
            f"{one.topic}-{one.partition} is at {one.committed or 0:,}, its boundary is {one.boundary:,}"
            for one in found.partitions
            if one.boundary is not None and is_meant(one, one.boundary)
        ],
        _MAX_NAMED,
    )
