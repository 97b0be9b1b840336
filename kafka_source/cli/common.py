"""What every command has: brokers to begin with, their settings, and errors as one red line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from kafka_source.client_config import Settings, librdkafka_config
from kafka_source.errors import KafkaGroupError
from kafka_source.options import KAFKA_PREFIX

console = Console()

Servers = Annotated[str, typer.Option("--bootstrap-servers", "-b", help="Brokers to begin with, host:port.")]
Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", help="A setting of the Kafka clients in Java's name, name=value; again for more."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this it only shows what it would do.")]

DRY_RUN = "Nothing was changed; add --yes to do it."


def settings_of(servers: str, config: list[str] | None) -> Settings:
    """The settings of the Kafka clients.

    Raises:
        OptionError: One is none that a Kafka client knows.
    """
    values = {"bootstrap.servers": servers}
    for setting in config or []:
        name, separator, value = setting.partition("=")
        if not separator:
            raise typer.BadParameter("it takes name=value", param_hint="--config")
        values[name.strip().removeprefix(KAFKA_PREFIX)] = value
    settings = Settings(values)
    librdkafka_config(settings)
    return settings


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Errors of ours end the command with their text, and without a traceback."""
    try:
        yield
    except KafkaGroupError as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        raise typer.Exit(1) from None
