"""Shared by all commands: the options for brokers and client settings, and errors printed as one red line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from kafka_source.client_config import Settings
from kafka_source.client_config.check import check_settings
from kafka_source.client_config.java_settings import Role
from kafka_source.errors import KafkaGroupError
from kafka_source.options import KAFKA_PREFIX

console = Console()

Servers = Annotated[
    str, typer.Option("--bootstrap-servers", "-b", help="Comma-separated host:port list of bootstrap brokers.")
]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", "-X", help="A Kafka client setting as name=value, with Java's name. Can be repeated."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Make the change. Without it, the command only shows the change.")]

DRY_RUN = "Nothing was changed; add --yes to make the change."


def settings_of(servers: str, config: list[str] | None) -> Settings:
    """Return the settings of the Kafka clients.

    Args:
        servers: The value of `--bootstrap-servers`.
        config: The values of `--config`, each `name=value`.

    Raises:
        OptionError: No Kafka client knows a setting, or it has an invalid value.
        typer.BadParameter: A value of `--config` is not `name=value`.
    """
    values = {"bootstrap.servers": servers}
    for setting in config or []:
        name, separator, value = setting.partition("=")
        if not separator:
            raise typer.BadParameter("must be name=value", param_hint="--config")
        values[name.strip().removeprefix(KAFKA_PREFIX)] = value
    settings = Settings(values)
    for warning in check_settings(settings, Role.ADMIN, native=True):
        Console(stderr=True).print(f"[yellow]{warning}[/yellow]")
    return settings


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print a `KafkaGroupError` without a traceback and exit with code 1."""
    try:
        yield
    except KafkaGroupError as error:
        # As text, since the message may contain what rich takes for markup, and in one line.
        Console(stderr=True, soft_wrap=True).print(Text(str(error), style="red"))
        raise typer.Exit(1) from None
