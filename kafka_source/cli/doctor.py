"""The command `kafkagroup doctor`: checks the installation, the way to a cluster, and the rights there."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from kafka_source.cli.common import Config, exit_on_error, settings_of
from kafka_source.doctor import Finding, State, examine
from kafka_source.doctor.finding import document, healthy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red", "skipped": "dim"}
_CONNECT = "sc://"

OptionalServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "--bootstrap-server",
        "-b",
        help="Comma-separated host:port list of bootstrap brokers. Without it, only the installation is checked.",
    ),
]


class Output(str, Enum):
    """How the findings are shown."""

    TABLE = "table"
    JSON = "json"


def doctor(
    servers: OptionalServers = None,
    config: Config = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic to read. Can be repeated.")] = None,
    output_topic: Annotated[list[str] | None, typer.Option(help="A topic to write. Can be repeated.")] = None,
    group: Annotated[str | None, typer.Option(help="A group to join.")] = None,
    transactional_id: Annotated[str | None, typer.Option(help="A sink's transactional.id.prefix.")] = None,
    spark: Annotated[
        str | None,
        typer.Option(help="Also check from Spark's executors: a master, for example local[2], or sc://host:port."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each step of a connection.")] = 10.0,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to show the findings.")] = Output.TABLE,
) -> None:
    """Check the installation, the way to a cluster and the rights there. Nothing is changed.

    The exit code is 0 if no check failed, else 1.
    """
    with exit_on_error():
        if servers is None and (config or topic or output_topic or group or transactional_id):
            raise typer.BadParameter("is needed to check a cluster", param_hint="--bootstrap-servers")
        settings = None if servers is None else settings_of(servers, config)
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
    if output is Output.JSON:
        typer.echo(json.dumps(document(findings), indent=1))
    else:
        _show(findings)
    raise typer.Exit(0 if healthy(findings) else 1)


def _show(findings: list[Finding]) -> None:
    # Soft wrap: the terminal wraps the lines, and what is copied or searched with grep stays in one line.
    console = Console(soft_wrap=True)
    for finding in findings:
        line = Text(f"{finding.state:8}", style=_COLOURS[finding.state])
        line.append(f"{finding.name}: ", style="bold").append(finding.happened, style="default")
        console.print(line)
        if finding.advice:
            console.print(Text(f"{'':8}→ {finding.advice}"))


def _session(master: str) -> SparkSession:
    """Start a Spark session, silent but for errors."""
    # Imported here, because Spark takes a second to import.
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kafkagroup-doctor")
    if master.startswith(_CONNECT):
        return builder.remote(master).getOrCreate()
    session = builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
