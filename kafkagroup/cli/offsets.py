"""The commands `kafkagroup offsets delete | clone | export | import`: the committed offsets of groups as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import (
    GroupArgument,
    GroupOption,
    OutputOption,
    Topics,
    Yes,
    exit_on_error,
    note,
    note_outcome,
    one_group,
)
from kafkagroup.cli.listing import Listing
from kafkagroup.cli.output import Output, emit
from kafkagroup.cli.selection import parse_topics
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafkagroup.admin import OffsetsDocument

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
    """Delete the committed offsets of topics. No member of the group may subscribe to them."""
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
            PartitionLag,
            (row for row in rows if selection.has(row.topic, row.partition) and row.committed is not None),
        )
        if yes:
            groups.delete_offsets(name, selection.partitions, topics=selection.topics)
        emit(output, Listing("offsets", shown, f"group {name}", frozenset({"start", "lag"}), empty="There are none."))
        note_outcome(yes)


@offsets.command(short_help="Create a group where another one is.")
@with_connection
def clone(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help="The group to copy.")],
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False, help="The group to create.")],
    connection: Connection = NO_OPTIONS,
    topic: WholeTopics = None,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a group with the committed offsets of another one, which may have members."""
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

    `offsets import` and `rewind --from-file` read it. Offsets in open transactions are waited for.
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
        typer.Argument(metavar="FILE", show_default=False, help="A file of `offsets export`; - for standard input."),
    ],
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="The group, if not that of the file.")
    ] = None,
    connection: Connection = NO_OPTIONS,
    topic: WholeTopics = None,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Commit the offsets of a document as they are. The group must have no members; it is created if there is none.

    Offsets of another cluster, or of a topic that was created again, are refused: they mean other records here.
    """
    with exit_on_error():
        from kafkagroup.admin import Groups

        document = read_document(file)
        if topic:
            document = document.only(frozenset(topic))
        groups = Groups(connection.settings())
        moves = groups.import_offsets(document, group, dry_run=not yes)
        title = f"group {group or document.group}"
        emit(output, Listing("moves", moves, title, frozenset({"asked"}), empty="The file has no such offsets."))
        note_outcome(yes)


def read_document(file: Path) -> OffsetsDocument:
    """Return the document in a file, or on standard input if the file is `-`.

    Raises:
        InvalidConfigurationError: It is no such document.
        typer.BadParameter: The file cannot be read.
    """
    from kafkagroup.admin import OffsetsDocument

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise typer.BadParameter(f"{file} cannot be read: {reason}") from None
    return OffsetsDocument.from_json(text)
