"""The commands `kafkagroup quota show | set | brokers`: a query's quota usage, its quota, and the brokers' quotas."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkagroup.cli.common import OutputOption, Yes, emit, exit_on_error, note_outcome, print_json
from kafkagroup.cli.output import Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

quota = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and change the quotas of queries and of brokers."
)

_CHANGE_SECONDS = 30.0


@quota.command(short_help="Show the use of a query's quota.")
def show(
    report: Annotated[Path, typer.Argument(help="The file of the query's option quota.report.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how much of its quota a running query uses, by slot."""
    try:
        figures = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise typer.BadParameter(f"cannot be read: {problem}", param_hint="REPORT") from None
    if output is Output.JSON:
        print_json(figures)
        return
    from kafkagroup.cli.rows import usage

    emit(output, usage(figures))


@quota.command("set", short_help="Change a query's quota while it runs.")
def set_bound(
    file: Annotated[Path, typer.Argument(help="The file of the query's option quota.watch; created if missing.")],
    bytes_per_second: Annotated[float | None, typer.Option(metavar="RATE", help="Byte rate; 0: no byte quota.")] = None,
    records_per_second: Annotated[
        float | None, typer.Option(metavar="RATE", help="Record rate; 0: no record quota.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Only for queries with this kafka.client.id.")
    ] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable", help="Switch the quota on or off.")] = None,
    yes: Yes = False,
) -> None:
    """Change the quota of the queries that watch a file. The change takes effect within one quota window."""
    from kafka_source.quota.bounds import UNBOUNDED, read_document
    from kafka_source.runtime.shared_files import replace_file

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
    print_json(document)
    if yes:
        replace_file(file, json.dumps(document, indent=1) + "\n")
    note_outcome(yes)


@quota.command(short_help="Show and change the brokers' quotas.")
@with_connection
def brokers(
    connection: Connection = NO_OPTIONS,
    client_id: Annotated[str | None, typer.Option(metavar="ID", help="The client.id whose quota to change.")] = None,
    consumer_bytes: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Consumer byte rate per broker, in bytes/s; 0: remove the quota."),
    ] = None,
    producer_bytes: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Producer byte rate per broker, in bytes/s; 0: remove the quota."),
    ] = None,
    request_percentage: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT", help="Request quota per broker, in percent of one thread's time; 0: remove the quota."
        ),
    ] = None,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the brokers' client quotas (KIP-546), or change the quotas of a client.id."""
    wanted = {
        "consumer_byte_rate": consumer_bytes,
        "producer_byte_rate": producer_bytes,
        "request_percentage": request_percentage,
    }
    values = {name: value or None for name, value in wanted.items() if value is not None}
    if values and client_id is None:
        raise typer.BadParameter("is missing: name the client whose quota to change", param_hint="--client-id")
    with exit_on_error():
        from kafka_source.cluster.client_quotas import CLIENT, alter_quota, describe_quotas
        from kafka_source.kafka_client import Deadline, KafkaClient
        from kafkagroup.cli.rows import broker_quotas, quota_changes

        with closing(KafkaClient(connection.settings())) as client:
            deadline = Deadline(_CHANGE_SECONDS)
            quotas = client.run(describe_quotas(client, deadline))
            if client_id is None or not values:
                emit(output, broker_quotas(quotas))
                return
            emit(output, quota_changes(quotas, client_id, values))
            if yes:
                client.run(alter_quota(client, {CLIENT: client_id}, values, deadline))
            note_outcome(yes)
