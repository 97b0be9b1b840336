"""The commands `kafkagroup quota show | set | brokers`: a query's quota usage, its quota, and the brokers' quotas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from kafka_source.cli.common import DRY_RUN, Config, Servers, Yes, console, exit_on_error, settings_of
from kafka_source.cluster.client_quotas import CLIENT, USER, ClientQuota, alter_quota, describe_quotas
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.quota.bounds import UNBOUNDED, read_document
from kafka_source.runtime.replace_file import replace_file

quota = typer.Typer(no_args_is_help=True, help="Show and change the quotas of queries and of brokers.")

_SECONDS = 30.0


@quota.command()
def show(report: Annotated[Path, typer.Argument(help="The file of the query's option quota.report.")]) -> None:
    """Show how much of its quota a running query uses, by slot."""
    try:
        figures = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(f"cannot be read: {problem}", param_hint="REPORT") from None
    console.print(_usage(figures))


@quota.command("set")
def set_bound(
    file: Annotated[Path, typer.Argument(help="The file of the query's option quota.watch; created if missing.")],
    bytes_per_second: Annotated[float | None, typer.Option(help="Byte rate; 0: no byte quota.")] = None,
    records_per_second: Annotated[float | None, typer.Option(help="Record rate; 0: no record quota.")] = None,
    client_id: Annotated[str | None, typer.Option(help="Only for queries with this kafka.client.id.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Switch the quota on or off.")] = None,
) -> None:
    """Change the quota of the queries that watch a file; it takes effect within one quota window."""
    document: dict[str, Any] = {}
    if file.exists():
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            read_document(document, client_id or "", UNBOUNDED)
        except (OSError, ValueError) as problem:
            raise typer.BadParameter(f"contains no valid quota: {problem}", param_hint="FILE") from None
    entry = document if client_id is None else document.setdefault("clients", {}).setdefault(client_id, {})
    for name, value in (("bytes_per_second", bytes_per_second), ("records_per_second", records_per_second)):
        if value is not None:
            entry[name] = value or None
    if enabled is not None:
        entry["enabled"] = enabled
    try:
        read_document(document, client_id or "", UNBOUNDED)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    replace_file(file, json.dumps(document, indent=1) + "\n")
    console.print_json(data=document)


@quota.command()
def brokers(
    servers: Servers,
    config: Config = None,
    client_id: Annotated[str | None, typer.Option(help="The client.id whose quota to change.")] = None,
    consumer_bytes: Annotated[
        float | None, typer.Option(help="Consumer byte rate per broker, in bytes/s; 0: remove the quota.")
    ] = None,
    producer_bytes: Annotated[
        float | None, typer.Option(help="Producer byte rate per broker, in bytes/s; 0: remove the quota.")
    ] = None,
    request_percentage: Annotated[
        float | None,
        typer.Option(help="Request quota per broker, in percent of one thread's time; 0: remove the quota."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Show the brokers' client quotas (KIP-546), or change those of a client.id."""
    wanted = {
        "consumer_byte_rate": consumer_bytes,
        "producer_byte_rate": producer_bytes,
        "request_percentage": request_percentage,
    }
    values = {name: value or None for name, value in wanted.items() if value is not None}
    with exit_on_error():
        with closing(KafkaClient(settings_of(servers, config))) as client:
            deadline = Deadline(_SECONDS)
            if client_id is not None and values and yes:
                client.run(alter_quota(client, {CLIENT: client_id}, values, deadline))
            console.print(_entities(client.run(describe_quotas(client, deadline))))
            if values and (client_id is None or not yes):
                console.print(
                    DRY_RUN if client_id is not None else "Nothing was changed; name a client with --client-id."
                )


def _usage(figures: Mapping[str, Any]) -> Table:
    bounds = f"{_rate(figures['bytesPerSecond'])} bytes/s, {_rate(figures['recordsPerSecond'])} records/s"
    table = Table(
        "slot", "bytes", "records", "own throttle, s", "broker throttle, s",
        title=f"client {figures['clientId']}: {figures['usedPercent']} % used of {bounds}",
    )  # fmt: skip
    for number, slot in figures["slots"].items():
        table.add_row(
            number,
            f"{slot['bytes']:,}",
            f"{slot['records']:,}",
            f"{slot['delayMs'] / 1000:.2f}",
            f"{slot['throttleMs'] / 1000:.2f}",
        )
    table.caption = (
        f"now {figures['observedBytesPerSecond']:,} bytes/s, {figures['observedRecordsPerSecond']:,} records/s"
    )
    return table


def _rate(value: float | None) -> str:
    return "any" if value is None else f"{value:,.0f}"


def _entities(quotas: list[ClientQuota]) -> Table:
    table = Table("user", "client id", "quota", "value", title="client quotas of the brokers")
    for each in sorted(quotas, key=lambda each: str(sorted(each.entity.items(), key=str))):
        for name, value in sorted(each.values.items()):
            table.add_row(_name(each.entity, USER), _name(each.entity, CLIENT), name, f"{value:,.10g}")
    return table


def _name(entity: Mapping[str, str | None], component: str) -> str:
    if component not in entity:
        return "any"
    return entity[component] or "(default)"
