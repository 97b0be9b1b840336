"""The command `kafkagroup embedded`: run Kafka, and a schema registry, until Ctrl-C."""

import secrets
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from kafkagroup.cli.common import ERROR, ctrl_c, note

_USER = "alice"


def embedded(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITIONS]", help="A topic to create. Can be repeated."),
    ] = None,
    registry: Annotated[bool, typer.Option("--registry", help="Start a schema registry too.")] = False,
    security: Annotated[
        str, typer.Option("--security", metavar="PROTOCOL", help="PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL.")
    ] = "PLAINTEXT",
    nodes: Annotated[int, typer.Option("--nodes", metavar="1|3", help="The number of brokers.")] = 1,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="FOLDER", help="Keep the records in this folder.")
    ] = None,
) -> None:
    """Run Kafka on this machine until Ctrl-C, and print commands for another terminal.

    Java 17 and the extra `embedded` are needed. The first start downloads Kafka (45 MB) and the registry (142 MB).
    """
    topics = [_topic(text) for text in topic or ()]
    from kafkagroup.embedded import EmbeddedKafka, EmbeddedKafkaError, SchemaRegistry, Security

    protocol = security.upper()
    users = {_USER: secrets.token_hex(8)} if protocol.startswith("SASL") else {}
    try:
        chosen = Security(protocol, users)  # type: ignore[arg-type]
        kafka = EmbeddedKafka(nodes, security=chosen, data_dir=data_dir, on_progress=note)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        with ctrl_c(), ExitStack() as running:
            note("Starting Kafka …")
            running.enter_context(kafka)
            for name, partitions in topics:
                kafka.create_topic(name, partitions)
            url = None
            if registry:
                note("Starting the schema registry …")
                url = running.enter_context(SchemaRegistry(on_progress=note)).url
            typer.echo(
                _instructions(
                    kafka.bootstrap_servers, kafka.java_client_file() if chosen.protocol != "PLAINTEXT" else None, url
                )
            )
            threading.Event().wait()
    except KeyboardInterrupt:
        note("Kafka has stopped.")
    except EmbeddedKafkaError as error:
        typer.secho(str(error), fg=typer.colors.RED, err=True)
        raise typer.Exit(ERROR) from None


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isdigit() and int(partitions) > 0)):
        raise typer.BadParameter(f"{text!r} must be TOPIC or TOPIC:PARTITIONS", param_hint="--topic")
    return name, int(partitions or 1)


def _instructions(servers: str, file: Path | None, registry: str | None) -> str:
    """Return the lines to paste.

    Args:
        servers: The addresses of the brokers.
        file: The file with the login's settings, readable only for this user; None: no login.
        registry: The URL of the schema registry.
    """
    config = "" if file is None else f" --command-config {file}"
    python = (
        [f'options = {{"kafka.bootstrap.servers": "{servers}"}}']
        if file is None
        else [
            "from pathlib import Path",
            "",
            f'lines = Path("{file}").read_text().splitlines()',
            'options = {"kafka." + name: value for name, value in (line.split("=", 1) for line in lines)}',
        ]
    )
    url = [] if registry is None else [f'registry = "{registry}"']
    shell = [f"export SERVERS={servers}", *([] if registry is None else [f"export REGISTRY={registry}"])]
    return "\n".join(
        [
            "Kafka runs until Ctrl-C. In a terminal:",
            "",
            *(f"    {line}" for line in [*shell, f"kafkagroup topics -b $SERVERS{config}"]),
            "",
            "In Python, with a session `spark` and a topic `orders`:",
            "",
            *(f"    {line}".rstrip() for line in [*python, *url]),
            '    spark.read.format("kafkagroup").options(**options, subscribe="orders").load().show()',
            "",
        ]
    )
