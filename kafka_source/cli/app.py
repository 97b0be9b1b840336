"""The commands of `kafkagroup`: doctor, options, groups, group, rewind, delete, transactions, quota, checkpoints."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from assignors.model import TopicPartition
from kafka_source.admin import Groups
from kafka_source.cli import show
from kafka_source.cli.checkpoints import checkpoint, import_checkpoint
from kafka_source.cli.common import DRY_RUN, Config, Servers, Yes, console, exit_on_error, settings_of
from kafka_source.cli.doctor import doctor
from kafka_source.cli.quota import quota
from kafka_source.cli.transactions import transactions
from kafka_source.cluster.lookup import Cluster
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import OPTIONS
from kafka_source.options.reference import default_words, takes_words

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Check an installation; show and change consumer groups, the transactions of exactly-once sinks, and quotas; "
    "show and import checkpoints; list the options.",
)
app.command()(doctor)
app.add_typer(transactions, name="transactions")
app.add_typer(quota, name="quota")
app.add_typer(checkpoint, name="checkpoint")
app.command("import-checkpoint")(import_checkpoint)

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Also show all partitions of this topic, read or not. Can be repeated."),
]


@app.command("options")
def list_options(name: Annotated[str, typer.Argument(help="Only options whose name contains this.")] = "") -> None:
    """List the options of the format, with their values and defaults."""
    table = Table("option", "takes", "default", "what it does", show_lines=True)
    for option in OPTIONS:
        if name.lower() in option.name.lower():
            table.add_row(option.name, takes_words(option), default_words(option), option.doc)
    console.print(table)


@app.command("groups")
def list_groups(servers: Servers, config: Config = None) -> None:
    """List all consumer groups and their states."""
    with exit_on_error():
        console.print(show.groups(Groups(settings_of(servers, config)).states()))


@app.command()
def group(name: str, servers: Servers, config: Config = None, topic: Topics = None) -> None:
    """Show a group's members with their partitions, and its lag."""
    with exit_on_error():
        groups = Groups(settings_of(servers, config))
        console.print(show.members(groups.describe(name)))
        console.print(show.lag(groups.lag(name, topics=topic or ())))


@app.command()
def rewind(
    name: str,
    servers: Servers,
    to: Annotated[str, typer.Option(help="earliest, latest, or a timestamp in ms since 1970.")],
    topic: Annotated[list[str], typer.Option("--topic", "-t", help="A topic to rewind. Can be repeated.")],
    config: Config = None,
    yes: Yes = False,
) -> None:
    """Set a group's committed offsets. The group must have no members."""
    with exit_on_error():
        settings = settings_of(servers, config)
        cluster, groups = Cluster(settings), Groups(settings)
        partitions = cluster.partitions(TopicSelection(topics=tuple(topic)))
        offsets = _target(cluster, partitions, to)
        before = groups.committed(name)
        table = Table("topic", "partition", "committed", "new", title=f"group {name}")
        for tp, offset in sorted(offsets.items()):
            table.add_row(tp.topic, str(tp.partition), str(before.get(tp, "none")), str(offset))
        console.print(table)
        if not yes:
            console.print(DRY_RUN)
            return
        groups.rewind(name, offsets)
        console.print("Done.")


@app.command()
def delete(name: str, servers: Servers, config: Config = None, yes: Yes = False) -> None:
    """Delete a group with its committed offsets. The group must have no members."""
    with exit_on_error():
        groups = Groups(settings_of(servers, config))
        console.print(show.members(groups.describe(name)))
        console.print(show.lag(groups.lag(name)))
        if not yes:
            console.print(DRY_RUN)
            return
        groups.delete(name)
        console.print("Done.")


def _target(cluster: Cluster, partitions: list[TopicPartition], to: str) -> dict[TopicPartition, int]:
    if to == "earliest":
        return cluster.earliest(partitions)
    latest = cluster.latest(partitions, read_committed=False)
    if to == "latest":
        return latest
    if not to.isdigit():
        raise typer.BadParameter("must be earliest, latest, or a timestamp in ms since 1970", param_hint="--to")
    found = cluster.at_times(dict.fromkeys(partitions, int(to)))
    return {tp: latest[tp] if offset is None else offset for tp, offset in found.items()}
