"""What `kafkagroup contexts` shows of a context."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from kafkagroup.admin.rows import Rows
from kafkagroup.cli.context_file import DEFAULT, NAME_VARIABLE, Context

_SERVERS = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class ContextRow:
    """A context.

    Attributes:
        context: The name of the context.
        current: Whether it is used where nothing else names a cluster.
        bootstrap_servers: Its bootstrap brokers; None: it has none, or they are in its `command.config`.
        command_config: The file of settings that it names; None: it names none.
        settings: The names of its other settings. Their values are not shown: they may be secrets.
    """

    context: str
    current: bool
    bootstrap_servers: str | None
    command_config: str | None
    settings: tuple[str, ...]


def context_rows(contexts: Iterable[Context]) -> Rows[ContextRow]:
    """Return contexts as rows, in the order of the file."""
    current = os.environ.get(NAME_VARIABLE) or DEFAULT
    return Rows(
        ContextRow,
        (
            ContextRow(
                one.name,
                one.name == current,
                one.values.get(_SERVERS),
                None if one.command_config is None else str(one.command_config),
                tuple(sorted(one.values.keys() - {_SERVERS})),
            )
            for one in contexts
        ),
    )
