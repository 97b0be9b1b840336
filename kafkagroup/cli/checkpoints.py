"""The commands `kafkagroup checkpoint show` and `import-checkpoint`; `admin/checkpoints.py` reads the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import DRY_RUN, OutputOption, Yes, emit, exit_on_error, note
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafkagroup.admin.checkpoints import Position

checkpoint = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show checkpoints.")

Location = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        show_default=False,
        help="The query's checkpointLocation: a path, or a URI such as s3://… or hdfs://…",
    ),
]
Source = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The source, if the query has several: its name, or its number from 0."),
]


@checkpoint.command(short_help="Show a checkpoint's offsets.")
def show(
    path: Location,
    source: Source = None,
    starting_offsets: Annotated[
        bool, typer.Option(help='Print only the JSON for startingOffsets, which format("kafka") takes too.')
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a query's position from its checkpoint, which format("kafka") or format("kafkagroup") has written."""
    with exit_on_error():
        from kafkagroup.admin.checkpoints import Checkpoint

        positions = _chosen(Checkpoint(path).positions(), source)
    if not starting_offsets:
        emit(output, _listing(positions))
        return
    if len(positions) > 1:
        raise typer.BadParameter("the query has several Kafka sources; name one", param_hint="--source")
    typer.echo(positions[0].starting_offsets())


@with_connection
def import_checkpoint(
    path: Location,
    source: Source = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Also commit the offsets to this consumer group. If several sources read a partition, the lowest "
            "offset counts.",
        ),
    ] = None,
    connection: Connection = NO_OPTIONS,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="For a query without a finished batch: a setting that Spark stores in the checkpoint, if it differs "
            "from Spark's default. Can be repeated.",
        ),
    ] = None,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a query of format("kafka") continue with format("kafkagroup"), even before its first batch is finished.

    Stop the query first. The checkpoint changes only if no batch is finished. The --group must have no members.
    """
    if group is not None and not connection.names_cluster():
        raise typer.BadParameter("is needed with --group", param_hint="--bootstrap-servers")
    with exit_on_error():
        from kafkagroup.admin import Groups, Move, Rows
        from kafkagroup.admin.checkpoints import Checkpoint, min_offsets

        found = Checkpoint(path)
        positions, change = _chosen(found.positions(), source), found.rewrite(_pairs(spark_conf or []))
        offsets = min_offsets(positions)
        listings = [_listing(positions)]
        groups = None if group is None else Groups(connection.settings())
        if groups is not None and group is not None:
            before = groups.committed(group)
            moves = (Move(tp.topic, tp.partition, before.get(tp), one, one) for tp, one in sorted(offsets.items()))
            listings.append(Listing("moves", Rows(Move, moves), f"group {group}", frozenset({"asked"})))
        emit(output, *listings, document=True)
        if change is not None:
            note(f"The checkpoint needs the file offsets/{change.batch}, in which the first batch has a start.")
        elif groups is None:
            note("The checkpoint continues as it is.")
            return
        if not yes:
            note(DRY_RUN)
            return
        if groups is not None and group is not None:
            # The query must not follow this commit: the checkpoint may contain a planned batch after these offsets.
            groups.rewind(group, offsets, checkpoints_follow=False)
        if change is not None:
            found.apply(change)
        note("Done.")


def _pairs(given: list[str]) -> dict[str, str]:
    """Return settings from texts of the form `name=value`."""
    found = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not separator:
            raise typer.BadParameter("must be name=value", param_hint="--spark-conf")
        found[name.strip()] = value.strip()
    return found


def _chosen(positions: list[Position], source: str | None) -> list[Position]:
    if source is None:
        return positions
    chosen = [one for one in positions if one.source == source]
    if not chosen:
        names = ", ".join(one.source for one in positions)
        raise typer.BadParameter(f"is no Kafka source of this query; its sources are {names}", param_hint="--source")
    return chosen


def _listing(positions: list[Position]) -> Listing:
    from kafkagroup.cli.rows import position_rows

    return Listing("positions", position_rows(positions))
