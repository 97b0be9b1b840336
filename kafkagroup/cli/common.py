"""Shared by all commands: their options, exit codes, and errors printed as one line.

A command imports what it works with when it runs: `--help` and the completion of a shell load typer and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from kafkagroup.cli.output import Output

ERROR = 1
"""Exit code: the brokers refuse or do not answer, or what was asked for does not exist."""

BOUND_EXCEEDED = 3
"""Exit code: the command did what it should, and a bound such as `--fail-above-lag` is exceeded. 2 is wrong usage."""

DRY_RUN = "Nothing was changed; add --yes to make the change."

OutputOption = Annotated[
    Output, typer.Option("--output", "-o", metavar="table|json|csv", help="How to print the result.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Make the change. Without it, the command only shows the change.")]
GroupArgument = Annotated[str | None, typer.Argument(metavar="GROUP", show_default=False, help="The group id.")]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", metavar="GROUP", help="The group id, as an option.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="A topic, or some partitions of it. Can be repeated."),
]


def one_group(argument: str | None, option: str | None) -> str:
    """Return the group id, which is given as the argument or as `--group`.

    Raises:
        typer.BadParameter: It is given in neither way, or in both ways differently.
    """
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"names another group than the argument {argument}", param_hint="--group")
    name = argument or option
    if name is None:
        raise typer.BadParameter("is missing: name the group", param_hint="GROUP")
    return name


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print a `KafkaGroupError` in one line, without a traceback, and exit with code 1."""
    try:
        yield
    except Exception as error:
        from kafka_source.errors import KafkaGroupError

        if not isinstance(error, KafkaGroupError):
            raise
        # Red on a terminal only.
        typer.secho(" ".join(str(error).split()), fg=typer.colors.RED, err=True)
        raise typer.Exit(ERROR) from None


@contextmanager
def usage_of(hint: str) -> Iterator[None]:
    """Make an `OptionError` an error in the use of a command-line option, whose exit code is 2.

    Args:
        hint: The name of the command-line option.
    """
    try:
        yield
    except ValueError as error:
        from kafka_source.errors import OptionError

        if not isinstance(error, OptionError):
            raise
        raise typer.BadParameter(f"got {error.got!r}; it takes {error.takes}", param_hint=hint) from None


def check_regex(pattern: str | None) -> None:
    """Raise typer.BadParameter if the value of `--regex` is not a valid regular expression."""
    try:
        re.compile(pattern or "")
    except re.error as problem:
        raise typer.BadParameter(f"is not a valid regular expression: {problem}", param_hint="--regex") from None


def note(text: str) -> None:
    """Print a line for people to standard error, so that JSON and CSV on standard output stay whole."""
    typer.echo(text, err=True)


def note_outcome(done: bool) -> None:
    """Say whether the change that was shown was made (`--yes`)."""
    note("Done." if done else DRY_RUN)
