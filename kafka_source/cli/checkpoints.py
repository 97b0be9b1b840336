"""The commands `kafkagroup checkpoint show` and `import-checkpoint`: where a query is, and how it moves here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from rich.table import Table

from assignors.model import TopicPartition
from kafka_source.admin import Groups
from kafka_source.admin.checkpoints import Checkpoint, Position
from kafka_source.cli.common import DRY_RUN, Config, Yes, console, exit_on_error, settings_of

checkpoint = typer.Typer(no_args_is_help=True, help="Show where a query is.")

Path = Annotated[
    str, typer.Argument(help="The query's checkpointLocation: a path, or a URI such as s3://… or hdfs://…")
]
Source = Annotated[int | None, typer.Option(help="The number of the source in the query, from 0, if it has several.")]


@checkpoint.command()
def show(
    path: Path,
    source: Source = None,
    starting_offsets: Annotated[
        bool, typer.Option(help='Print only the JSON that startingOffsets takes, of format("kafka") too.')
    ] = False,
) -> None:
    """Show where a query is: its checkpoint may be one of format("kafka") or of format("kafkagroup")."""
    with exit_on_error():
        positions = _chosen(Checkpoint(path).positions(), source)
    if not starting_offsets:
        console.print(_table(positions))
        return
    if len(positions) > 1:
        raise typer.BadParameter("the query has several Kafka sources; name one", param_hint="--source")
    # Not through rich, which would break a long line.
    typer.echo(positions[0].starting_offsets())


def import_checkpoint(
    path: Path,
    source: Source = None,
    group: Annotated[str | None, typer.Option(help="Also commit the offsets to this consumer group.")] = None,
    servers: Annotated[
        str, typer.Option("--bootstrap-servers", "-b", help="With --group: host:port list of bootstrap brokers.")
    ] = "",
    config: Config = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting of Spark as name=value, for a query that has no batch yet and keeps settings for state "
            "that are not Spark's defaults. Can be repeated."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Let a query of format("kafka") continue with format("kafkagroup"), also if it has not finished its first batch.

    The query must be stopped. A checkpoint with a finished batch continues as it is, and then only --group changes
    something. The group must have no members.
    """
    if group is not None and not servers:
        raise typer.BadParameter("is needed with --group", param_hint="--bootstrap-servers")
    with exit_on_error():
        found = Checkpoint(path)
        positions, change = _chosen(found.positions(), source), found.rewrite(_pairs(spark_conf or []))
        console.print(_table(positions))
        offsets = {tp: offset for position in positions for tp, offset in position.offsets.items()}
        if change is not None:
            console.print(f"The file offsets/{change.batch} has to be written, so that the first batch has a start.")
        elif group is None:
            console.print("The checkpoint continues as it is.")
            return
        if group is not None:
            console.print(_committed(group, Groups(settings_of(servers, config)).committed(group), offsets))
        if not yes:
            console.print(DRY_RUN)
            return
        if group is not None:
            Groups(settings_of(servers, config)).rewind(group, offsets)
        if change is not None:
            found.apply(change)
        console.print("Done.")


def _pairs(given: list[str]) -> dict[str, str]:
    """Return settings from texts of the form `name=value`."""
    found = {}
    for one in given:
        name, separator, value = one.partition("=")
        if not separator:
            raise typer.BadParameter("must be name=value", param_hint="--spark-conf")
        found[name.strip()] = value.strip()
    return found


def _chosen(positions: list[Position], source: int | None) -> list[Position]:
    if source is None:
        return positions
    chosen = [one for one in positions if one.source == source]
    if not chosen:
        numbers = ", ".join(str(one.source) for one in positions)
        raise typer.BadParameter(f"is not the number of a Kafka source; there is {numbers}", param_hint="--source")
    return chosen


def _table(positions: list[Position]) -> Table:
    table = Table("source", "topic", "partition", "next offset", "end of the pending batch")
    for one in positions:
        for tp, offset in sorted(one.offsets.items()):
            pending = "" if one.pending is None else str(one.pending.get(tp, ""))
            table.add_row(str(one.source), tp.topic, str(tp.partition), str(offset), pending)
    return table


def _committed(group: str, before: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]) -> Table:
    table = Table("topic", "partition", "committed", "new", title=f"group {group}")
    for tp, offset in sorted(offsets.items()):
        table.add_row(tp.topic, str(tp.partition), str(before.get(tp, "none")), str(offset))
    return table
