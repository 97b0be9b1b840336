"""`kafkagroup quota show | set | brokers`: how much of its quota a query uses, and what the quota is to be."""

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

quota = typer.Typer(no_args_is_help=True, help="Quotas of queries, and the brokers' own.")

_SECONDS = 30.0


@quota.command()
def show(report: Annotated[Path, typer.Argument(help="The file of the query's option quota.report.")]) -> None:
    """What a running query uses of its quota, by slot."""
    try:
        figures = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(f"it cannot be read: {problem}", param_hint="REPORT") from None
    console.print(_usage(figures))


@quota.command("set")
def set_bound(
    file: Annotated[Path, typer.Argument(help="The file of the query's option quota.watch; made if there is none.")],
    bytes_per_second: Annotated[float | None, typer.Option(help="0: no bound.")] = None,
    records_per_second: Annotated[float | None, typer.Option(help="0: no bound.")] = None,
    client_id: Annotated[str | None, typer.Option(help="Only for queries of this kafka.client.id.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether there is a quota at all.")] = None,
) -> None:
    """Change the quota of the queries that watch a file; it is in effect within one window."""
    document: dict[str, Any] = {}
    if file.exists():
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            read_document(document, client_id or "", UNBOUNDED)
        except (OSError, ValueError) as problem:
            raise typer.BadParameter(f"it holds no quota: {problem}", param_hint="FILE") from None
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
    client_id: Annotated[str | None, typer.Option(help="Change the quota of this client.id.")] = None,
    consumer_bytes: Annotated[float | None, typer.Option(help="Bytes a second to read, a broker; 0: none.")] = None,
    producer_bytes: Annotated[float | None, typer.Option(help="Bytes a second to write, a broker; 0: none.")] = None,
    request_percentage: Annotated[
        float | None, typer.Option(help="Percent of a thread's time for its requests, a broker; 0: none.")
    ] = None,
    yes: Yes = False,
) -> None:
    """The quotas that the brokers keep for clients (KIP-546), or a change of one."""
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
                console.print(DRY_RUN if client_id is not None else "Say whose with --client-id.")


def _usage(figures: Mapping[str, Any]) -> Table:
    bounds = f"{_rate(figures['bytesPerSecond'])} bytes/s, {_rate(figures['recordsPerSecond'])} records/s"
    table = Table(
        "slot", "bytes", "records", "own delay, s", "broker throttle, s",
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
    table = Table("user", "client id", "quota", "value", title="the brokers' quotas")
    for each in sorted(quotas, key=lambda each: str(sorted(each.entity.items(), key=str))):
        for name, value in sorted(each.values.items()):
            table.add_row(_name(each.entity, USER), _name(each.entity, CLIENT), name, f"{value:,.10g}")
    return table


def _name(entity: Mapping[str, str | None], component: str) -> str:
    if component not in entity:
        return "any"
    return entity[component] or "(default)"
