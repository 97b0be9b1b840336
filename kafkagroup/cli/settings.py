"""Collect a command's client settings from a context, a file, the environment and the command line.

The command line takes precedence over the environment, the environment over the file, the file over the context.
"""

from __future__ import annotations

import functools
import inspect
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import configparser
if TYPE_CHECKING:
    from kafka_source.client_config import Settings


CONTEXTS_VARIABLE = "KAFKAGROUP_CONTEXTS"
"""The environment variable that names the file of the contexts."""

NAME_VARIABLE = "KAFKAGROUP_CONTEXT"
"""The environment variable that names a context."""

DEFAULT = "default"
"""The context of commands that name no cluster."""

COMMAND_CONFIG = "command.config"
"""A context's setting that names a file with further settings, in the format of `--command-config`."""

_OPTION = "--context"
_PROVIDERS = "config.providers"
_CLASSES = {"env": "EnvVarConfigProvider", "file": "FileConfigProvider", "directory": "DirectoryConfigProvider"}


@dataclass(frozen=True, slots=True)
class Context:
    """A named set of settings.

    Attributes:
        name: Its name.
        values: Its settings, with variables such as `${env:NAME}` as they are written.
        command_config: A file with more settings, over which `values` take precedence; None: no file.
    """

    name: str
    values: Mapping[str, str]
    command_config: Path | None


def contexts_path() -> Path:
    """Return the contexts' file: `KAFKAGROUP_CONTEXTS`, or `kafkagroup/contexts.ini` in the user's config folder."""
    given = os.environ.get(CONTEXTS_VARIABLE)
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kafkagroup" / "contexts.ini"


def contexts() -> dict[str, Context]:
    """Return all contexts by name; without a file there are no contexts.

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
    """Return the context that a command uses; None: no context.

    Args:
        name: The value of `--context`.
        has_cluster: Whether an option, the environment or a file names a cluster. If a cluster is named, only
            `--context` chooses a context, because a context's password must not go to another cluster.

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
    """Return the names of contexts that begin with `incomplete`, for the completion of a shell."""
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
    """Return the name of a context's secret if other users can read the secret in its file; else None.

    Args:
        values: The context's settings that are in the file.
        file: The file of the contexts, or the context's `command.config`.
    """
    from kafka_source.client_config import is_secret

    secret = next((name for name, value in values.items() if is_secret(name) and value and "${" not in value), None)
    others = stat.S_IRGRP | stat.S_IROTH
    return secret if secret and file.stat().st_mode & others else None


def _syntax(problem: configparser.Error) -> str:
    """Return the faults of the file with their line numbers, without the lines' text, which may be a secret."""
    kinds = {
        "MissingSectionHeaderError": "a setting before the first [context]",
        "DuplicateSectionError": "a repeated context",
        "DuplicateOptionError": "a repeated setting of a context",
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


ENVIRONMENT_PREFIX = "KAFKAGROUP_KAFKA_"
"""`KAFKAGROUP_KAFKA_SASL_PASSWORD` is the setting `sasl.password`."""

SERVERS_VARIABLE = "KAFKAGROUP_BOOTSTRAP_SERVERS"
"""The environment variable for `--bootstrap-servers`."""

FILE_VARIABLE = "KAFKAGROUP_COMMAND_CONFIG"
"""The environment variable for `--command-config`."""

_SERVERS = "bootstrap.servers"
# The prefix of a schema registry's settings, which are in the same file as Kafka's settings.
_REGISTRY_PREFIX = "schema.registry."

_Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        help="Bootstrap brokers. Can be in --command-config or a context too. Variable: KAFKAGROUP_BOOTSTRAP_SERVERS.",
    ),
]
_ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client settings, in the format of Java's properties files. Variable: KAFKAGROUP_COMMAND_CONFIG.",
    ),
]
_Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        "-X",
        metavar="NAME=VALUE",
        help="A client setting with Java's name. Can be repeated. Not for passwords: other users see them.",
    ),
]
_Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        autocompletion=complete,
        help="A context: see kafkagroup contexts. Variable: KAFKAGROUP_CONTEXT.",
    ),
]


@dataclass(frozen=True, slots=True)
class Connection:
    """The options with which a command reaches its cluster; see `with_connection`.

    Attributes:
        servers: The value of `--bootstrap-servers`.
        config_file: The value of `--command-config`.
        config: The values of `--config`, each `name=value`.
        context: The value of `--context`.
    """

    servers: _Servers = None
    config_file: _ConfigFile = None
    config: _Config = None
    context: _Context = None

    def settings(self) -> Settings:
        """Return the settings of the Kafka clients.

        Raises:
            OptionError: A setting is unknown to all Kafka clients, or has an invalid value.
            typer.BadParameter: No source names the bootstrap servers, a file cannot be read, the context does not
                exist, or a value of `--config` is not `name=value`.
        """
        from kafka_source.client_config import Settings
        from kafka_source.client_config.check import check_settings
        from kafka_source.client_config.java_settings import Role

        _warn_of_secrets(self.config)
        found, used = self._values()
        if used is not None:
            _warn_of_exposed(used)
        values = {name: value for name, value in found.items() if not name.startswith(_REGISTRY_PREFIX)}
        if not values.get(_SERVERS):
            raise typer.BadParameter(
                f"no broker is named. Give -b HOST:PORT, or set {_SERVERS} in --command-config or in a context, or set "
                f"the variable {SERVERS_VARIABLE}.",
                param_hint="--bootstrap-servers",
            )
        settings = Settings(values)
        for warning in check_settings(settings, Role.ADMIN, native=True):
            typer.secho(warning, fg=typer.colors.YELLOW, err=True)
        return settings

    def registry(self, url: str | None) -> Settings | None:
        """Return the settings of the schema registry's client, without their prefix; None if no URL is given.

        Args:
            url: The URL that a command-line option gives. The login of another configured URL is left out.

        Raises:
            typer.BadParameter: As in `settings`.
        """
        from kafka_source.client_config import Settings

        values = {
            name.removeprefix(_REGISTRY_PREFIX): value
            for name, value in self._values()[0].items()
            if name.startswith((_REGISTRY_PREFIX, "config.providers"))
        }
        if url is not None:
            values = {**values, "url": url} if values.get("url", url) == url else {"url": url}
        return Settings(values) if values.get("url") else None

    def _values(self) -> tuple[dict[str, str], Context | None]:
        """Return all settings, and the context that is used."""
        given = _from_command_line(self.servers, self.config)
        implied, used = _implied(given.get(_SERVERS), self.config_file, self.context)
        return {**implied, **given}, used

    def names_cluster(self) -> bool:
        """Return whether a cluster is named, for commands that do not need a cluster.

        Raises:
            typer.BadParameter: As in `settings`.
        """
        return bool(self._values()[0].get(_SERVERS))


NO_OPTIONS = Connection()
"""The connection of a command without its options; the environment or a context names the cluster."""


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `connection` by the command-line options of a `Connection`."""
    signature = inspect.signature(command, eval_str=True)
    options = inspect.signature(Connection, eval_str=True).parameters
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options.values() if parameter.annotation is Connection else [parameter]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        values = {field.name: given.pop(field.name) for field in fields(Connection)}
        command(connection=Connection(**values), **given)

    # Typer reads the options of a command from these two attributes.
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _implied(servers: str | None, file: Path | None, context: str | None) -> tuple[dict[str, str], Context | None]:
    """Return the settings of files and of the environment, and the context that is used, if any.

    With `--context`, the environment is ignored, because a variable for another cluster must not redirect a command.
    """
    from_variables = {} if context else from_environment(os.environ)
    if file is None and not context and os.environ.get(FILE_VARIABLE):
        file = Path(os.environ[FILE_VARIABLE])
    of_file = _from_file(file)
    has_cluster = bool(servers or of_file.get(_SERVERS) or from_variables.get(_SERVERS))
    used = chosen_context(context, has_cluster=has_cluster)
    of_context = (
        {} if used is None else with_providers({**_from_file(used.command_config, COMMAND_CONFIG), **used.values})
    )
    return {**of_context, **of_file, **from_variables}, used


def _warn_of_exposed(context: Context) -> None:
    files = [(context.values, contexts_path())]
    if context.command_config is not None:
        files.append((_from_file(context.command_config, COMMAND_CONFIG), context.command_config))
    for values, file in files:
        if secret := exposed(values, file):
            typer.secho(
                f"{secret} of context {context.name} can be read by other users of this machine: chmod 600 {file}, "
                "or refer to it by ${env:NAME} or ${file:PATH:KEY}.",
                fg=typer.colors.YELLOW,
                err=True,
            )


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in variables such as `KAFKAGROUP_KAFKA_SASL_PASSWORD`; an underscore stands for a dot."""
    found = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and value
    }
    servers = environment.get(SERVERS_VARIABLE)
    return {**found, _SERVERS: servers} if servers else found


def _from_file(file: Path | None, hint: str = "--command-config") -> dict[str, str]:
    """Return the settings in a file.

    Args:
        file: The file; None: no file.
        hint: The option or variable that named the file.
    """
    if file is None:
        return {}
    from kafka_source.client_config.config_providers import parse_properties

    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise typer.BadParameter(f"{file} cannot be read: {reason}", param_hint=hint) from None
    return {_plain(name): value for name, value in parse_properties(text).items()}


def _from_command_line(servers: str | None, config: list[str] | None) -> dict[str, str]:
    values = {}
    for setting in config or []:
        name, separator, value = setting.partition("=")
        if not separator:
            raise typer.BadParameter("must be name=value", param_hint="--config")
        values[_plain(name)] = value
    return values if servers is None else {**values, _SERVERS: servers}


def _warn_of_secrets(config: list[str] | None) -> None:
    from kafka_source.client_config import is_secret

    for setting in config or []:
        name, _, value = setting.partition("=")
        # A variable of a config provider is no secret itself.
        if is_secret(name) and "${" not in value:
            typer.secho(
                f"{_plain(name)} on the command line can be seen by other users of this machine: put it into "
                f"--command-config or {ENVIRONMENT_PREFIX}{_plain(name).upper().replace('.', '_')}.",
                fg=typer.colors.YELLOW,
                err=True,
            )


def _plain(name: str) -> str:
    """Return a setting's name without the prefix that it has as an option of Spark."""
    return name.strip().lower().removeprefix("kafka.")
