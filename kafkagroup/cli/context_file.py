"""Contexts: named sets of settings in a file, so that a command names a cluster by one word.

[default]
bootstrap.servers = localhost:9092

[production]
bootstrap.servers = broker-1:9093,broker-2:9093
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.username = alice
sasl.password = ${env:KAFKA_PASSWORD}

[staging]
command.config = staging.properties
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import configparser

FILE_VARIABLE = "KAFKAGROUP_CONTEXTS"
"""The environment variable that names the file."""

NAME_VARIABLE = "KAFKAGROUP_CONTEXT"
"""The environment variable that names a context."""

DEFAULT = "default"
"""The context that is used where nothing names a cluster."""

COMMAND_CONFIG = "command.config"
"""The setting of a context that names a file of settings, in the format of `--command-config`."""

_OPTION = "--context"
_PROVIDERS = "config.providers"
_CLASSES = {"env": "EnvVarConfigProvider", "file": "FileConfigProvider", "directory": "DirectoryConfigProvider"}


@dataclass(frozen=True, slots=True)
class Context:
    """A named set of settings.

    Attributes:
        name: Its name.
        values: Its settings, with variables such as `${env:NAME}` as they are written.
        command_config: A file with more settings; None: there is none. Its own settings take precedence over them.
    """

    name: str
    values: Mapping[str, str]
    command_config: Path | None


def contexts_path() -> Path:
    """Return where the contexts are: `KAFKAGROUP_CONTEXTS`, or `kafkagroup/contexts.ini` in the user's settings."""
    given = os.environ.get(FILE_VARIABLE)
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kafkagroup" / "contexts.ini"


def contexts() -> dict[str, Context]:
    """Return all contexts by name; none if there is no file.

    Raises:
        typer.BadParameter: The file cannot be read.
    """
    import configparser

    path = contexts_path()
    parser = configparser.ConfigParser(
        interpolation=None, delimiters=("=",), default_section="", empty_lines_in_values=False
    )
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        return {}
    except configparser.Error as problem:
        raise typer.BadParameter(f"{path} cannot be read: {_syntax(problem)}", param_hint=_OPTION) from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or " ".join(str(problem).split())
        raise typer.BadParameter(f"{path} cannot be read: {reason}", param_hint=_OPTION) from None
    return {name: _context(path, name, dict(parser[name])) for name in parser.sections()}


def chosen_context(name: str | None, *, has_cluster: bool) -> Context | None:
    """Return the context that a command uses.

    Args:
        name: The value of `--context`.
        has_cluster: Whether an option, the environment or a file names a cluster. Then only `--context` chooses one:
            a password of a context must not go to another cluster.

    Raises:
        typer.BadParameter: There is no such context, or the file cannot be read.
    """
    if name is None and has_cluster:
        return None
    variable = os.environ.get(NAME_VARIABLE)
    wanted = name or variable
    found = contexts()
    if wanted is None:
        return found.get(DEFAULT)
    if wanted not in found:
        known = f"; it has {', '.join(found)}" if found else ""
        hint = _OPTION if name else NAME_VARIABLE
        raise typer.BadParameter(f"there is no context {wanted} in {contexts_path()}{known}", param_hint=hint)
    return found[wanted]


def complete(incomplete: str) -> list[str]:
    """Return the names of contexts that begin so, for the completion of a shell."""
    try:
        return [name for name in contexts() if name.startswith(incomplete)]
    except typer.BadParameter:
        return []


def with_providers(values: Mapping[str, str]) -> dict[str, str]:
    """Return a context's settings, in which `${env:…}`, `${file:…}` and `${directory:…}` need no declaration."""
    if _PROVIDERS in values:
        return dict(values)
    declared = {f"{_PROVIDERS}.{name}.class": kind for name, kind in _CLASSES.items()}
    return {_PROVIDERS: ",".join(_CLASSES), **declared, **values}


def exposed(values: Mapping[str, str], file: Path) -> str | None:
    """Return a secret of a context that others can read in a file, or None.

    Args:
        values: The context's settings that are in the file.
        file: The file of the contexts, or the context's `command.config`.
    """
    from kafka_source.client_config import is_secret

    secret = next((name for name, value in values.items() if is_secret(name) and value and "${" not in value), None)
    others = stat.S_IRGRP | stat.S_IROTH
    return secret if secret and file.stat().st_mode & others else None


def _syntax(problem: configparser.Error) -> str:
    """Return what is wrong with the file and in which lines, without their text: it may hold a secret."""
    kinds = {
        "MissingSectionHeaderError": "a setting before the first [context]",
        "DuplicateSectionError": "a context that is there already",
        "DuplicateOptionError": "a setting that the context has already",
    }
    kind = kinds.get(type(problem).__name__, "neither [context] nor name = value")
    lines: list[int] = [number for number, _ in getattr(problem, "errors", ())] or [
        getattr(problem, "lineno", None) or 0
    ]
    return f"{kind}, line {', '.join(map(str, lines))}"


def _context(path: Path, name: str, section: dict[str, str]) -> Context:
    values = {key.removeprefix("kafka."): value for key, value in section.items()}
    file = values.pop(COMMAND_CONFIG, None)
    return Context(name, values, None if file is None else path.parent / Path(file).expanduser())
