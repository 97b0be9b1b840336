"""Parts that all commands share, such as `--yes`, `--output`, `--topic`, exit codes, and errors in one line.

A command imports its modules when it runs, so `--help` and the completion of a shell load only typer.
"""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from kafka_source.runtime.visible_text import visible
from kafkagroup.cli.output import Listing, Output, cell

if TYPE_CHECKING:
    from assignors.model import TopicPartition
    from kafka_source.client_config import Settings
    from kafkagroup.admin.rows import Rows


ERROR = 1
"""Exit code: the brokers refuse or do not answer, or the requested object does not exist."""

BOUND_EXCEEDED = 3
"""Exit code: the command succeeded, and a bound such as `--fail-above-lag` is exceeded. Code 2 is wrong usage."""

DRY_RUN = "Nothing was changed; add --yes to make the change."

OutputOption = Annotated[
    Output, typer.Option("--output", "-o", metavar="table|json|csv|jsonl", help="How to print the result.")
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
        typer.BadParameter: The id is missing, or the argument and the option differ.
    """
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"names another group than the argument {argument}", param_hint="--group")
    name = argument or option
    if name is None:
        raise typer.BadParameter("is missing: name the group", param_hint="GROUP")
    return name


@contextmanager
def exit_on_error(words: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Print a `KafkaGroupError` in one line, without a traceback, and exit with code 1.

    Args:
        words: The command's names for the connector's options; they replace the options' names in the message.
    """
    try:
        yield
    except Exception as error:
        from kafka_source.errors import KafkaGroupError

        if not isinstance(error, KafkaGroupError):
            raise
        text = " ".join(str(error).split())
        for before, here in words.items():
            text = text.replace(before, here)
        typer.secho(text, fg=typer.colors.RED, err=True)
        raise typer.Exit(ERROR) from None


@contextmanager
def usage_of(hint: str) -> Iterator[None]:
    """Report an `OptionError` as wrong usage of a command-line option, with exit code 2.

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
    typer.echo(visible(text, keep="\n"), err=True)


def note_outcome(done: bool) -> None:
    """Print whether the change was made (`--yes`)."""
    note("Done." if done else DRY_RUN)


def note_idle(settings: Settings, group: str) -> None:
    """Print the names of the processes in which a stop has left queries idle."""
    from kafkagroup.admin import idle_queries

    if idle := idle_queries(settings, group):
        note(f"Stopped. These processes still run with idle queries, which StopListener would end: {', '.join(idle)}.")


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics and partitions that `--topic` selects.

    Attributes:
        topics: Topics of which all partitions are selected.
        partitions: Single partitions of other topics.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self.topics) | {tp.topic for tp in self.partitions}

    def has(self, topic: str, partition: int) -> bool:
        """Return whether a partition is selected. Without `--topic`, all partitions are selected."""
        if not self.topics and not self.partitions:
            return True
        return topic in self.topics or (topic, partition) in self.partitions


def parse_topics(given: Iterable[str] | None, hint: str = "--topic") -> Selection:
    """Parse texts such as `orders` and `orders:0,1`.

    Raises:
        typer.BadParameter: A partition is no number.
    """
    # Imported here, because the package of the assignors reads the metadata of installed distributions.
    from assignors.model import TopicPartition

    topics: dict[str, None] = {}
    partitions: dict[TopicPartition, None] = {}
    for text in given or ():
        # The name of a topic has no colon.
        topic, colon, numbers = text.partition(":")
        if not colon:
            topics[topic] = None
            continue
        for number in numbers.split(","):
            if not number.strip().isdigit():
                raise typer.BadParameter(f"{text!r} must be TOPIC or TOPIC:0,1", param_hint=hint)
            partitions[TopicPartition(topic, int(number))] = None
    return Selection(tuple(topics), tuple(tp for tp in partitions if tp.topic not in topics))


def emit(output: Output, *listings: Listing, document: bool = False) -> None:
    """Print listings to standard output.

    Args:
        output: The format. JSON is an array of objects for one listing, and an object of such arrays for several
            listings. CSV (with a line of names) and JSON lines contain the first listing only.
        listings: The listings.
        document: Whether the JSON of one listing is an object, not an array.
    """
    if output is Output.JSON:
        print_json(as_json(*listings, document=document))
    elif output is Output.JSONL:
        for one in listings[0].rows.records():
            typer.echo(json.dumps(one))
    elif output is Output.CSV:
        typer.echo(as_csv(listings[0].rows), nl=False)
    else:
        # Imported here, because a command with JSON must not wait for the import of rich.
        from kafkagroup.cli.tables import print_tables

        print_tables(listings)


def as_json(*listings: Listing, document: bool = False) -> Any:
    """Return listings as JSON values, see `emit`."""
    if len(listings) == 1 and not document:
        return listings[0].rows.records()
    return {one.name: one.rows.records() for one in listings}


def print_json(value: object, file: TextIO | None = None) -> None:
    """Print one JSON document, to standard output or to a file."""
    typer.echo(json.dumps(value, indent=1), file)


def as_csv(rows: Rows[object]) -> str:
    """Return rows as CSV with a line of names. A missing value is empty."""
    from kafkagroup.admin.rows import columns

    names = list(columns(rows.kind))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(getattr(row, name), missing="") for name in names] for row in rows)
    return text.getvalue()


@contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets, because finalizers, callbacks and some imports lose a KeyboardInterrupt."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        pressed.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
