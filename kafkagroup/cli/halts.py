"""The commands `kafkagroup stop | pause | resume`, which act on the queries of a group from outside."""

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
    note_idle,
    note_outcome,
    one_group,
    usage_of,
)
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_source.client_config import Settings
    from kafkagroup.admin import Halted, Stand
    from kafkagroup.admin.halts import At

_MAX_NAMED = 10

OthersGoOn = Annotated[
    bool, typer.Option("--others-go-on", help="Allow members of other clients, which continue to read.")
]


AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="now|end|TIME|OFFSETS",
        help="now (the default): each partition's current offset; end: its current end; TIME: its first record at or "
        'after a past time, in ISO 8601 or ms since 1970; OFFSETS: JSON such as {"orders": {"0": 120}}.',
    ),
]
AtGroup = Annotated[
    str | None, typer.Option("--at-group", metavar="GROUP", help="Halt at the committed offsets of another group.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="The time limit for reaching the boundaries.")
]


@with_connection
def stop(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    at: AtOption = None,
    at_group: AtGroup = None,
    others_go_on: OthersGoOn = False,
    timeout: Timeout = 330,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop the queries of a group at boundaries, and wait until each partition is at its boundary.

    From its next trigger on, each query reads up to the boundaries of its partitions and commits. A query
    leaves the group when all its partitions are at their boundaries. Partitions without an offset in OFFSETS stop at
    their current offset. A query that starts in a stopped group stays idle until `resume`. The exit code is 3
    after --timeout, or if queries have passed a boundary other than the end.
    """
    from kafkagroup.admin import stop as stop_group

    _halt(stop_group, one_group(group, group_option), _at(at, at_group), connection, others_go_on, timeout, yes, output)


@with_connection
def pause(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    at: AtOption = None,
    at_group: AtGroup = None,
    others_go_on: OthersGoOn = False,
    timeout: Timeout = 330,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Pause the queries of a group: from their next trigger on they stay members and read nothing.

    If boundaries are set, the queries first read up to the boundaries. The command waits until each query has confirmed
    that its offsets no longer advance. A pause outlasts restarts of the queries and ends with `kafkagroup resume`.
    """
    from kafkagroup.admin import pause as pause_group

    _halt(
        pause_group, one_group(group, group_option), _at(at, at_group), connection, others_go_on, timeout, yes, output
    )


@with_connection
def resume(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let the queries of a paused or stopped group continue at their offsets, from their next trigger on."""
    name = one_group(group, group_option)
    with exit_on_error():
        from kafkagroup.admin import resume as resume_group

        settings = connection.settings()
        _finish(settings, resume_group(settings, name, dry_run=not yes), output, 0 if yes else None, may_pass=True)


def _halt(
    act: Callable[..., Halted],
    group: str,
    at: At,
    connection: Connection,
    others_go_on: bool,
    timeout: float,
    yes: bool,
    output: Output,
) -> None:
    """Halt a group by `stop` or `pause` of `kafkagroup.admin` (`act`), and wait until the group has halted."""
    with exit_on_error():
        settings = connection.settings()
        found = act(settings, group, at, others_go_on=others_go_on, dry_run=not yes)
        _finish(settings, found, output, timeout if yes else None, may_pass=at == "end")


def _at(text: str | None, group: str | None) -> At:
    from assignors.model import TopicPartition
    from kafka_source.model.rewind_target import parse_time
    from kafkagroup.admin import AtTime, FromGroup

    if group is not None:
        if text is not None:
            raise typer.BadParameter("contradicts --at", param_hint="--at-group")
        return FromGroup(group)
    if text is None or text == "now":
        return "now"
    if text == "end":
        return "end"
    with usage_of("--at"):
        if not text.startswith("{"):
            return AtTime(parse_time(text))
    try:
        return {
            TopicPartition(str(topic), int(number)): int(offset)
            for topic, offsets in json.loads(text).items()
            for number, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError):
        takes = 'offsets by topic and partition, such as {"orders": {"0": 120}}'
        raise typer.BadParameter(f"got {text!r}; it takes {takes}", param_hint="--at") from None


def _finish(settings: Settings, found: Halted, output: Output, timeout: float | None, *, may_pass: bool) -> None:
    """Wait until a halt is done, and show the group's state.

    Args:
        settings: The client settings.
        found: The halt.
        output: The format of the output.
        timeout: How long to wait, in seconds; None: do not wait, because nothing was changed.
        may_pass: Whether queries may have passed a boundary.

    Raises:
        typer.Exit: The halt is not done in time, or a boundary is passed.
    """
    from kafka_source.model.partition_runs import first_names
    from kafkagroup.admin import wait_until_halted

    name = found.group
    if timeout is not None and not found.is_done:
        note(
            f"Waiting for group {name}, which has {len(found.members)} members now. Each query obeys from its next "
            "trigger on, so with hourly triggers the wait takes up to two hours. Ctrl-C ends the wait, not the halt."
        )
        found = wait_until_halted(settings, name, found.halt, timeout=timeout)
    hidden = frozenset() if found.halt.boundaries else frozenset({"boundary", "is_there"})
    title = f"group {name}" if timeout is None else f"group {name}, {found.halt}"
    emit(output, Listing("partitions", found.partitions, title, hidden, headings={"is_there": "there"}))
    note_outcome(timeout is not None)
    if timeout is None:
        return
    if passed := _places(found, lambda one, boundary: (one.committed or 0) > boundary):
        note(f"Batches that were planned before the halt have passed boundaries: {passed}.")
    if not found.is_done:
        members = ", ".join(f"{one.name} at {one.host}" for one in found.members)
        behind = _places(found, lambda one, boundary: (one.committed or 0) < boundary)
        unsure = first_names([f"{one.topic}-{one.partition}" for one in found.partitions if not one.obeys], _MAX_NAMED)
        note(
            f"Group {name} is not at its boundaries yet. Its members: {members or 'none'}. Partitions behind their "
            f"boundaries: {behind or 'none'}. Partitions whose owners may still read on: {unsure or 'none'}. "
            f"The halt holds until `kafkagroup resume {name}`."
        )
    else:
        note_idle(settings, name)
    if not found.is_done or (passed and not may_pass):
        raise typer.Exit(BOUND_EXCEEDED)


def _places(found: Halted, is_meant: Callable[[Stand, int], bool]) -> str:
    """Name the partitions that have a boundary and meet the condition."""
    from kafka_source.model.partition_runs import first_names

    return first_names(
        [
            f"{one.topic}-{one.partition} is at {one.committed or 0:,}, its boundary is {one.boundary:,}"
            for one in found.partitions
            if one.boundary is not None and is_meant(one, one.boundary)
        ],
        _MAX_NAMED,
    )
