"""The commands `kafkagroup rewind` and `offsets delete | clone | export | import`: the committed offsets of groups."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import (
    GroupArgument,
    GroupOption,
    OutputOption,
    Selection,
    Topics,
    Yes,
    emit,
    exit_on_error,
    note,
    note_outcome,
    one_group,
    parse_topics,
    usage_of,
)
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafka_source.client_config import Settings
    from kafka_source.model.rewind_target import Target
    from kafkagroup.admin import Group, Move, OffsetsDocument, Rows


@with_connection
def rewind(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions for which the group has committed an offset.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            "--to-datetime",
            metavar="POSITION",
            help="earliest, latest, current, @OFFSET, or a time: ISO 8601 (UTC without a zone), or ms since 1970.",
        ),
    ] = None,
    back: Annotated[
        str | None,
        typer.Option(
            "--back", "--by-duration", metavar="DURATION", help="A time this long before now: 90s, 2h30m, 7d, P1DT2H."
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Move N offsets ahead, or back if N is negative.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, metavar="N", help="This offset in each partition.")
    ] = None,
    like: Annotated[
        str | None, typer.Option("--to-group", metavar="GROUP", help="The committed offsets of another group.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="The offsets in a file of `kafkagroup offsets export`, or in the CSV of `kafka-consumer-groups.sh "
            "--export`.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=1,
            metavar="SECONDS",
            help="How long to wait until the members of a running group have finished their micro-batches.",
        ),
    ] = 330,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set the committed offsets of a group that has no members, or whose members are streams of kafkagroup.

    Give one target. An offset outside the log becomes the nearest offset of the log. Running queries finish their
    micro-batch and continue at the new offsets without a restart. At their next start, stopped queries with a
    checkpoint use the new offsets too. Stop batch reads and consumers of other clients first; the command names them.
    """
    name = one_group(group, group_option)
    given = {
        "--to": to,
        "--back": back,
        "--shift-by": shift,
        "--to-offset": offset,
        "--to-group": like,
        "--from-file": file,
    }
    chosen = [option for option, value in given.items() if value is not None]
    if len(chosen) != 1:
        what = "several targets are given" if chosen else "no target is given"
        raise typer.BadParameter(f"{what}: name one of {', '.join(given)}")
    selection = parse_topics(topic)
    # Another group, or a file, names the partitions.
    _check_selection(selection, all_topics, needed=like is None and file is None)
    document = None
    with exit_on_error(), usage_of(chosen[0]):
        if file is not None:
            document = _selected(file, name, selection)
        target = _target(to, back, shift, offset, like, document)
    with exit_on_error():
        from kafkagroup.admin import Groups, Move, Rows

        settings = connection.settings()
        groups = Groups(settings)
        if document is not None:
            groups.check_document(document)
        found = groups.describe(name)
        moves = groups.moves(name, target, selection.partitions, topics=selection.topics)
        moves = Rows(Move, (one for one in moves if selection.has(one.topic, one.partition)))
        if yes and moves and found.members:
            moves = _rewind_running(settings, found, target, moves, timeout)
        # Brokers may refuse one topic and rewind another, so the previous offsets are shown first.
        emit(output, Listing("moves", moves, f"group {name}", empty="There is nothing to move."))
        if yes and moves and not found.members:
            groups.rewind(name, {one.topic_partition: one.offset for one in moves})
        if found.members and not yes:
            _tell_of_members(found)
        note(_read_again(moves))
        note_outcome(yes)


def _read_again(moves: Rows[Move]) -> str:
    """Return a text: how many offsets are read again and how many are skipped, from the committed offsets on."""
    known = [one.offset - one.committed for one in moves if one.committed is not None]
    again, left_out = -sum(min(0, moved) for moved in known), sum(max(0, moved) for moved in known)
    unknown = len(moves) - len(known)
    text = f"{again:,} records are read again, and {left_out:,} are skipped (counted by offsets)."
    return text if not unknown else f"{text} {unknown} partitions had no committed offset."


def _rewind_running(
    settings: Settings, group: Group, target: Target, planned: Rows[Move], timeout: float
) -> Rows[Move]:
    """Rewind a group while its members run; return the moves.

    The target is computed from the members' last commits, so the offsets may differ from the planned offsets.
    """
    from kafkagroup.admin import Move, Rows, rewind_running_group

    note(f"Waiting for {_members(group)} of group {group.group} to finish the current micro-batch.")
    partitions = [one.topic_partition for one in planned]
    done = rewind_running_group(settings, group.group, target, partitions=partitions, timeout=timeout)
    return Rows(Move, done.moves)


def _tell_of_members(group: Group) -> None:
    """Print the effect of `--yes` in a group that has members.

    Raises:
        InvalidConfigurationError: The group has members of other clients, so `--yes` would be refused.
    """
    from kafka_source.errors import InvalidConfigurationError
    from kafkagroup.admin.running_group import cannot_be_rewound

    problem = cannot_be_rewound(group)
    if problem is not None:
        raise InvalidConfigurationError(problem)
    names = ", ".join(f"{one.name} at {one.host}" for one in group.members)
    note(
        f"Group {group.group} runs with {_members(group)}: {names}. With --yes, the members finish their "
        "micro-batch and continue at the new offsets."
    )


def _members(group: Group) -> str:
    return f"{len(group.members)} member{'' if len(group.members) == 1 else 's'}"


def _check_selection(selection: Selection, all_topics: bool, *, needed: bool) -> None:
    if all_topics and selection.names:
        raise typer.BadParameter("contradicts --all-topics", param_hint="--topic")
    if needed and not all_topics and not selection.names:
        raise typer.BadParameter("is missing: name topics, or give --all-topics", param_hint="--topic")


def _selected(file: Path, group: str, selection: Selection) -> OffsetsDocument:
    document = read_document(file, group)
    return document.restricted_to(selection.names) if selection.names else document


def _target(
    to: str | None,
    back: str | None,
    shift: int | None,
    offset: int | None,
    like: str | None,
    document: OffsetsDocument | None,
) -> Target:
    from kafka_source.model.rewind_target import parse_duration, parse_position
    from kafkagroup.admin import AtOffset, AtOffsets, ByDuration, FromGroup, Shift

    if to is not None:
        return parse_position(to)
    if back is not None:
        return ByDuration(parse_duration(back))
    if shift is not None:
        return Shift(shift)
    if offset is not None:
        return AtOffset(offset)
    if like is not None:
        return FromGroup(like)
    if document is None:
        raise ValueError("no target")
    return AtOffsets({tp: one.offset for tp, one in document.offsets.items()})


offsets = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Delete, clone, export and import committed offsets."
)

WholeTopics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic. Can be repeated.")
]


@offsets.command("delete", short_help="Delete the offsets of topics.")
@with_connection
def delete_offsets(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    topic: Topics = None,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the committed offsets of topics to which no member of the group subscribes."""
    name = one_group(group, group_option)
    selection = parse_topics(topic)
    if not selection.names:
        raise typer.BadParameter("is missing: name the topics", param_hint="--topic")
    with exit_on_error():
        from kafkagroup.admin import Groups, PartitionLag, Rows

        groups = Groups(connection.settings())
        groups.describe(name)
        rows = groups.lag(name)
        shown = Rows(
            PartitionLag, (row for row in rows if selection.has(row.topic, row.partition) and row.committed is not None)
        )
        # Brokers may refuse one topic and delete the offsets of another.
        emit(output, Listing("offsets", shown, f"group {name}", frozenset({"start", "lag"}), empty="There are none."))
        groups.delete_offsets(name, selection.partitions, topics=selection.topics, dry_run=not yes)
        note_outcome(yes)


@offsets.command(short_help="Copy a group's offsets to a new group.")
@with_connection
def clone(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help="The group to copy.")],
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False, help="The group to create.")],
    connection: Connection = NO_OPTIONS,
    topic: WholeTopics = None,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a group with the committed offsets of another group, which may have members."""
    with exit_on_error():
        from kafkagroup.admin import Groups

        moves = Groups(connection.settings()).clone(source, group, topics=topic or (), dry_run=not yes)
        emit(output, Listing("moves", moves, f"group {group}", frozenset({"asked"})))
        note_outcome(yes)


@offsets.command("export", short_help="Write the offsets as a document.")
@with_connection
def export_offsets(
    group: GroupArgument = None,
    group_option: GroupOption = None,
    connection: Connection = NO_OPTIONS,
    topic: WholeTopics = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Write to this file, not to standard output.")
    ] = None,
) -> None:
    """Write the committed offsets of a group as a JSON document.

    `offsets import` and `rewind --from-file` read the document. The command waits until open transactions have ended.
    """
    name = one_group(group, group_option)
    with exit_on_error():
        from kafkagroup.admin import Groups

        groups = Groups(connection.settings())
        text = groups.export_offsets(name, topics=topic or ()).to_json()
        if file is None:
            typer.echo(text, nl=False)
            return
        from kafka_source.runtime.shared_files import replace_file

        replace_file(file, text)
        note(f"Wrote {file}.")


@offsets.command("import", short_help="Commit the offsets of a document.")
@with_connection
def import_offsets(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="A file of `offsets export`, or the CSV of `kafka-consumer-groups.sh --export`; - for standard input.",
        ),
    ],
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="The group; default: the group in the file.")
    ] = None,
    connection: Connection = NO_OPTIONS,
    topic: WholeTopics = None,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Commit the offsets of a document as they are, to a group that has no members or does not exist yet.

    Offsets of another cluster, or of a topic that was created again, are refused, because they belong to other records.
    """
    with exit_on_error():
        from kafkagroup.admin import Groups

        document = read_document(file, group)
        if topic:
            document = document.restricted_to(frozenset(topic))
        groups = Groups(connection.settings())
        moves = groups.import_offsets(document, group, dry_run=not yes)
        title = f"group {group or document.group}"
        emit(
            output,
            Listing("moves", moves, title, frozenset({"asked"}), empty="The file has no offsets of these topics."),
        )
        note_outcome(yes)


def read_document(file: Path, group: str | None) -> OffsetsDocument:
    """Return the document in a file (`-`: standard input), which may also be Java's CSV with offsets of `group`.

    Raises:
        InvalidConfigurationError: The text is no offsets document.
        typer.BadParameter: The file cannot be read.
    """
    from kafkagroup.admin import OffsetsDocument

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise typer.BadParameter(f"{file} cannot be read: {reason}") from None
    is_json = text.lstrip()[:1] in ("{", "[", "")
    return OffsetsDocument.from_json(text) if is_json else OffsetsDocument.from_csv(text, group)
