"""The commands `kafkagroup doctor | contexts | options`: an installation, its settings and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafka_source.runtime.visible_text import visible
from kafkagroup.cli.common import ERROR, OutputOption, emit, exit_on_error, print_json
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, contexts, contexts_path, with_connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkagroup.doctor import Finding, State


_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red", "skipped": "dim"}
_CONNECT = "sc://"


@with_connection
def doctor(
    connection: Connection = NO_OPTIONS,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Check the rights to read this topic. Can be repeated."),
    ] = None,
    output_topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Check the rights to write this topic. Can be repeated.")
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="GROUP", help="Check the rights to join this group.")] = None,
    transactional_id: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Check the rights of a sink with this prefix.")
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="Also check from the executors of this master, for example local[2], or sc://host:port.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="The time limit for each step of a connection.")
    ] = 10.0,
    report: Annotated[
        typer.FileTextWrite | None,
        typer.Option(metavar="FILE", help="Also write the JSON to a file, for a bug report."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the installation, the connection to a cluster and your rights in this cluster. The command changes nothing.

    Without a cluster, only the installation is checked. The exit code is 1 if a check failed, else 0.
    """
    with exit_on_error():
        from kafkagroup.doctor import examine
        from kafkagroup.doctor.versions import document, healthy

        has_cluster = connection.names_cluster()
        if not has_cluster and (connection.config or topic or output_topic or group or transactional_id):
            raise typer.BadParameter("is needed to check a cluster", param_hint="--bootstrap-servers")
        settings = connection.settings() if has_cluster else None
        session = None if spark is None else _session(spark)
        try:
            findings = examine(
                settings,
                spark=session,
                topics=topic or (),
                output_topics=output_topic or (),
                group=group,
                transactional_id=transactional_id,
                seconds=timeout,
            )
        finally:
            if session is not None:
                session.stop()
    if report is not None:
        print_json(document(findings), report)
    if output is Output.JSON:
        print_json(document(findings))
    elif output is Output.CSV:
        from kafkagroup.admin.rows import Rows
        from kafkagroup.doctor import Finding

        emit(output, Listing("findings", Rows(Finding, findings)))
    else:
        _show(findings)
    raise typer.Exit(0 if healthy(findings) else ERROR)


def _show(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    # Soft wrap: the terminal wraps the lines, so that copied text and results of grep have whole lines.
    console = Console(soft_wrap=True)
    for finding in findings:
        line = Text(f"{finding.state:8}", style=_COLOURS[finding.state])
        line.append(f"{finding.name}: ", style="bold").append(visible(finding.happened), style="default")
        console.print(line)
        if finding.advice:
            console.print(Text(f"{'':8}→ {visible(finding.advice)}"))


def _session(master: str) -> SparkSession:
    """Start a Spark session that logs only errors."""
    # Imported here, because Spark takes a second to import.
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kafkagroup-doctor")
    if master.startswith(_CONNECT):
        return builder.remote(master).getOrCreate()
    session = builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def list_contexts(output: OutputOption = Output.TABLE) -> None:
    """List the contexts: named sets of settings in a file. The list shows the brokers, but no other values.

    KAFKAGROUP_CONTEXTS names the file. The default is kafkagroup/contexts.ini in XDG_CONFIG_HOME, else in ~/.config.
    """
    with exit_on_error():
        from kafkagroup.cli.rows import context_rows

        rows = context_rows(contexts().values())
        hidden = frozenset() if any(one.command_config for one in rows) else frozenset({"command_config"})
        empty = f"There are no contexts: {contexts_path()} does not exist, or is empty."
        emit(output, Listing("contexts", rows, hidden=hidden, empty=empty))


def list_options(
    name: Annotated[str, typer.Argument(show_default=False, help="Only options whose name contains NAME.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the options of the format, with their values and defaults."""
    from kafkagroup.cli.rows import option_rows

    emit(output, Listing("options", option_rows(name), empty="There are no such options."))


def _print_and_exit(asked: bool) -> None:
    if asked:
        from kafka_source.version import __version__

        typer.echo(__version__)
        raise typer.Exit


def print_version(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_and_exit, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that need no command."""
