"""The commands `kafkagroup topics | peek`: topics with their partitions, and records of a topic."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkagroup.cli.common import OutputOption, check_regex, ctrl_c, emit, exit_on_error, parse_topics, usage_of
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafkagroup.admin import Rows
    from kafkagroup.admin.peek import Peek, Record, Start


@with_connection
def topics(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", show_default=False, help="Show these topics' partitions."),
    ] = None,
    connection: Connection = NO_OPTIONS,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Show the partitions of this topic. Can be repeated."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--regex", metavar="REGEX", help="Only topics whose name matches somewhere.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also list Kafka's internal topics.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics of a cluster, or the partitions of topics that you name with their leaders and offsets."""
    check_regex(pattern)
    topic = [*(names or ()), *(topic or ())]
    with exit_on_error():
        from kafkagroup.admin import Topics

        found = Topics(connection.settings())
        if topic:
            emit(output, Listing("partitions", found.describe(*topic)))
        else:
            rows = found.list(pattern=pattern, internal=internal)
            emit(output, Listing("topics", rows, empty="There are no such topics."))


class Isolation(str, Enum):
    """Which records of transactions are read, with Kafka's words."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Engine(str, Enum):
    """Which engine reads."""

    AUTO = "auto"
    NATIVE = "native"
    LIBRDKAFKA = "librdkafka"


@with_connection
def peek(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC[:0,1]", show_default=False, help="The topic, or some partitions of it."),
    ] = None,
    topic_option: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="The topic, as an option.")
    ] = None,
    connection: Connection = NO_OPTIONS,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Start at earliest, a time (ISO 8601, or ms since 1970), or @OFFSET such as @1500. Without it, "
            "the last records.",
        ),
    ] = None,
    back: Annotated[
        str | None, typer.Option("--back", metavar="DURATION", help="Start this long before now: 90s, 2h30m, 7d.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new records as they come, until Ctrl-C.")
    ] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="The number of records.")] = 10,
    isolation: Annotated[
        Isolation,
        typer.Option(
            "--isolation-level",
            metavar="read_uncommitted|read_committed",
            help="read_committed: without records of open and aborted transactions.",
        ),
    ] = Isolation.READ_UNCOMMITTED,
    engine: Annotated[
        Engine, typer.Option("--engine", metavar="auto|native|librdkafka", help="Which engine reads.")
    ] = Engine.AUTO,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show records of a topic by time: keys, values, headers; JSON and the schema ids of Confluent's framing.

    No group is joined, and no offset is committed. --follow prints one line for each new record.
    """
    given = name or topic_option
    if given is None or (name and topic_option and name != topic_option):
        problem = "is missing: name the topic" if given is None else "names another topic than the argument"
        raise typer.BadParameter(problem, param_hint="TOPIC" if given is None else "--topic")
    selection = parse_topics([given], "TOPIC")
    if start is not None and back is not None:
        raise typer.BadParameter("contradicts --from", param_hint="--back")
    with usage_of("--from" if back is None else "--back"):
        position = _start(start, back)
    with exit_on_error():
        from kafkagroup.admin.peek import Peek

        (named,) = selection.names
        look = Peek(
            connection.settings(),
            named,
            partitions=tuple(tp.partition for tp in selection.partitions),
            read_committed=isolation is Isolation.READ_COMMITTED,
            engine=engine.value,
        )
        records = look.records(position, count)
        if follow:
            _follow(look, records, output)
            return
        hidden = frozenset({"topic", "timestamp_type"})
        emit(output, Listing("records", records, hidden=hidden, empty="There are no such records."))


_FOLLOW_SECONDS = 0.5


def _follow(look: Peek, records: Rows[Record], output: Output) -> None:
    """Print records, one a line, and those that come, until Ctrl-C."""
    import json

    if output is Output.CSV:
        raise typer.BadParameter("csv is not printed line by line: use json or table", param_hint="--output")
    try:
        with ctrl_c() as pressed:
            while not pressed.is_set():
                for one in records.records() if output is Output.JSON else map(_line, records):
                    typer.echo(json.dumps(one) if output is Output.JSON else one)
                if not records:
                    pressed.wait(_FOLLOW_SECONDS)
                records = look.new()
    except KeyboardInterrupt:
        # This is how the command ends.
        pass


def _line(record: Record) -> str:
    place = f"{record.timestamp} {record.topic}-{record.partition}@{record.offset}"
    return f"{place} {record.key} {record.value}"


def _start(position: str | None, back: str | None) -> Start:
    import time

    from kafka_source.errors import OptionError
    from kafka_source.model.rewind_target import MAX_LONG, parse_duration, parse_position
    from kafkagroup.admin import AtOffset, AtTime

    if back is not None:
        return AtTime(max(0, round(time.time() * 1000) - parse_duration(back)))
    if position is None:
        return None
    if position.startswith("@") and position[1:].isdecimal() and int(position[1:]) <= MAX_LONG:
        return AtOffset(int(position[1:]))
    target = "earliest" if position == "beginning" else parse_position(position)
    if isinstance(target, AtTime):
        return target
    if target != "earliest":
        raise OptionError("from", position, "earliest, a time, or @OFFSET; without --from the last records are shown")
    return AtOffset(0)
