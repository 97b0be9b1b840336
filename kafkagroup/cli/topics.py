"""The commands `kafkagroup topics | peek | export | redrive`: topics with their partitions, and records of a topic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_source.runtime.visible_text import visible
from kafkagroup.cli.common import OutputOption, check_regex, ctrl_c, emit, exit_on_error, note, parse_topics, usage_of
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    from kafkagroup.admin import Rows
    from kafkagroup.admin.peek import Peek, Record, Start
    from kafkagroup.arrow.file_formats import FileFormat


@with_connection
def topics(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", show_default=False, help="Show these topics' partitions.")
    ] = None,
    connection: Connection = NO_OPTIONS,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Show the partitions of this topic. Can be repeated."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--regex", metavar="REGEX", help="Only topics whose name contains a match of REGEX.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also list Kafka's internal topics.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics of a cluster, or the partitions of named topics, with their leaders and offsets."""
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
    """The isolation level, in Kafka's words."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Engine(str, Enum):
    """The engine that reads."""

    AUTO = "auto"
    NATIVE = "native"
    LIBRDKAFKA = "librdkafka"


IsolationOption = Annotated[
    Isolation,
    typer.Option(
        "--isolation-level",
        metavar="read_uncommitted|read_committed",
        help="read_committed leaves out records of open and aborted transactions.",
    ),
]
EngineOption = Annotated[
    Engine, typer.Option("--engine", metavar="auto|native|librdkafka", help="The engine that reads.")
]


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
            help="Start at earliest, a time (ISO 8601, or ms since 1970), or @OFFSET such as @1500; default: the last "
            "records.",
        ),
    ] = None,
    back: Annotated[
        str | None, typer.Option("--back", metavar="DURATION", help="Start this long before now: 90s, 2h30m, 7d.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also show new records, until Ctrl-C.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="The number of records.")] = 10,
    registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="URL",
            help="Show Avro and Protobuf as JSON, with the schemas of this registry. Set its login "
            "(schema.registry.basic.auth.user.info …) in --command-config or a context.",
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="MODULE:FUNCTION",
            help="Show the rows that a function returns for the records, one JSON object a line. The function needs "
            "the decorator kafkagroup.arrow_function, and its module must be in this folder or installed.",
        ),
    ] = None,
    isolation: IsolationOption = Isolation.READ_UNCOMMITTED,
    engine: EngineOption = Engine.AUTO,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show records of a topic in order of time, with keys, values, headers and the ids of Confluent's schemas.

    The command joins no group and commits no offset. --follow prints one line for each new record. A registry is used
    if --schema-registry or the setting schema.registry.url is given.
    """
    given = name or topic_option
    if given is None or (name and topic_option and name != topic_option):
        problem = "is missing: name the topic" if given is None else "names another topic than the argument"
        raise typer.BadParameter(problem, param_hint="TOPIC" if given is None else "--topic")
    selection = parse_topics([given], "TOPIC")
    if start is not None and back is not None:
        raise typer.BadParameter("contradicts --from", param_hint="--back")
    if function is not None and follow:
        raise typer.BadParameter("cannot be used with --follow", param_hint="--map")
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
            registry=connection.registry(registry),
        )
        records = look.records(position, count)
        if function is not None:
            _show_rows(function, look, records)
            return
        if follow:
            _follow(look, records, output)
            return
        hidden = frozenset({"topic", "timestamp_type"})
        emit(output, Listing("records", records, hidden=hidden, empty="There are no such records."))


def _show_rows(function: str, look: Peek, records: Rows[Record]) -> None:
    """Print the rows of a function; the function's own output goes to standard error."""
    import json
    import sys
    from contextlib import redirect_stdout

    from kafka_source.arrow_function import Mapping, function_named
    from kafkagroup.admin.peek import EVERY_COLUMN, payload

    sys.path.insert(0, "")
    with redirect_stdout(sys.stderr):
        found = function_named(function)
        names = tuple(column.name for column in EVERY_COLUMN)
        mapping = Mapping(lambda: found, names, None, batch_rows=1 << 16, batch_bytes=1 << 21)
        rows = [row for batch in mapping.rows(look.batches(records)) for row in batch.to_pylist()]
    for row in rows:
        shown = json.dumps(row, default=lambda value: payload(value).text if isinstance(value, bytes) else str(value))
        typer.echo(shown)


_FOLLOW_SECONDS = 0.5


def _follow(look: Peek, records: Rows[Record], output: Output) -> None:
    """Print records, and then new records, one a line, until Ctrl-C."""
    import json

    if output is Output.CSV:
        raise typer.BadParameter("csv is not printed line by line: use jsonl or table", param_hint="--output")
    try:
        with ctrl_c() as pressed:
            while not pressed.is_set():
                for one in map(_line, records) if output is Output.TABLE else map(json.dumps, records.records()):
                    typer.echo(one)
                if not records:
                    pressed.wait(_FOLLOW_SECONDS)
                records = look.new()
    except KeyboardInterrupt:
        # Ctrl-C ends the command.
        pass


def _line(record: Record) -> str:
    place = f"{record.timestamp} {record.topic}-{record.partition}@{record.offset}"
    return visible(f"{place} {record.key} {record.value}")


def _start(position: str | None, back: str | None) -> Start:
    import time

    from kafka_source.errors import OptionError
    from kafka_source.model.rewind_target import parse_duration, parse_position
    from kafkagroup.admin import AtOffset, AtTime

    if back is not None:
        return AtTime(max(0, round(time.time() * 1000) - parse_duration(back)))
    if position is None:
        return None
    target = parse_position(position)
    if not isinstance(target, str):
        return target
    if target != "earliest":
        raise OptionError("from", position, "earliest, a time, or @OFFSET; without --from the last records are shown")
    return AtOffset(0)


@with_connection
def export(
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FILE|FOLDER/|-",
            show_default=False,
            help="A file with the suffix .parquet, .arrow, .csv or .jsonl; a folder, which exists or ends with /; or "
            "- for standard output.",
        ),
    ],
    connection: Connection = NO_OPTIONS,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Begin at earliest (the default), a time (ISO 8601, or ms since 1970), -1h for one hour ago, @1500 "
            'for an offset of all partitions, or offsets as JSON: {"0": 1500, "1": 1498}. For a folder, give a start '
            "only in the first export.",
        ),
    ] = None,
    end: Annotated[
        str, typer.Option("--until", metavar="POSITION", help="End before this position; latest: the current end.")
    ] = "latest",
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAMES",
            help="Some of: key, value, topic, partition, offset, timestamp, timestampType, headers. Headers are left "
            "out by default. Write `key string, value string` for text. In CSV and JSON, the values of headers are "
            "in base64, and so are keys and values unless they are a `string`.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="parquet|arrow|csv|jsonl",
            help="The format of a folder (default: parquet), or of a file whose name does not show the format.",
        ),
    ] = None,
    value_schema: Annotated[
        int | None,
        typer.Option(
            "--value-schema",
            min=1,
            metavar="ID",
            help="Decode the values (Avro, Protobuf or JSON) into the columns of the schema with this id. Only "
            "into a file of the format parquet, arrow or jsonl.",
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            "--value-message",
            metavar="NAME",
            help="For Protobuf: the full name of the values' message; default: the first message of --value-schema.",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry", metavar="URL", help="The registry of --value-schema; default: schema.registry.url."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    part_bytes: Annotated[
        int | None,
        typer.Option(
            "--part-bytes",
            min=1,
            metavar="N",
            help="In a folder: the size, before compression, at which a part ends; 128 MiB by default.",
        ),
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue without records that retention has deleted.")
    ] = False,
    isolation: IsolationOption = Isolation.READ_UNCOMMITTED,
    engine: EngineOption = Engine.AUTO,
) -> None:
    """Write the records of a topic to Parquet, Arrow, CSV or JSON lines, without joining a group or committing offsets.

    A file appears when it is complete. In a folder, the name of each part contains its offsets. The next export to the
    folder adds the records since then, each record once, even after a crash.
    """
    path = None if to == "-" else Path(to)
    is_folder = path is not None and (to.endswith(("/", os.sep)) or path.is_dir())
    if overwrite and (path is None or is_folder):
        raise typer.BadParameter("is only for a file", param_hint="--overwrite")
    form_of_file = None if form is None and is_folder else _form_of(to, form)
    decoder = connection.registry(registry) if value_schema is not None else None
    if value_schema is not None and (is_folder or form_of_file == "csv"):
        raise typer.BadParameter("is for a file of parquet, arrow or jsonl", param_hint="--value-schema")
    if value_schema is not None and decoder is None:
        raise typer.BadParameter("is missing: give it, or schema.registry.url", param_hint="--schema-registry")
    first, last = None if start is None else _position_of(start, "--from"), _position_of(end, "--until")
    with exit_on_error(_WORDS), _usage_of_arguments(), ctrl_c() as pressed:
        # This import loads pyarrow, which other commands do not need.
        from kafkagroup.arrow.decoding import decode_values
        from kafkagroup.arrow.export import DEFAULT_PART_BYTES, Export

        records = Export(
            name,
            {"isolation.level": isolation.value, **connection.settings().given},
            form_of_file,
            start=first,
            end=last,
            columns=columns,
            part_bytes=part_bytes or DEFAULT_PART_BYTES,
            accept_loss=accept_loss,
            engine=engine.value,
            decode=None
            if decoder is None or value_schema is None
            else partial(decode_values, registry=decoder.given, schema_id=value_schema, message=message),
            is_interrupted=pressed.is_set,
        )
        if path is None:
            exported = records.to_pipe(typer.get_binary_stream("stdout"))
        else:
            exported = records.to_folder(path) if is_folder else records.to_file(path, overwrite=overwrite)
        where = "standard output" if path is None else to
        parts = f" in {exported.files:,} new parts" if is_folder else ""
        note(f"Exported {exported.records:,} records of {name} to {where}{parts}.")


@with_connection
def redrive(
    name: Annotated[
        str,
        typer.Argument(metavar="TOPIC", show_default=False, help="The topic of the dead letters (deadletter.topic)."),
    ],
    connection: Connection = NO_OPTIONS,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="Write to this topic. By default each dead letter goes to its original topic, where every group "
            "reads the record again.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Begin the first run at a time (ISO 8601, or ms since 1970), or -1h for one hour ago; default: the "
            "first dead letter. Later runs ignore this option.",
        ),
    ] = None,
) -> None:
    """Write each dead letter back once, up to the current end of the topic. The next run begins where this run ended.

    The command commits its progress as offsets of the group TOPIC-redrive. Records keep key, value and headers. The
    header kafkagroup.redrive.attempt counts how often a record was put back.
    """
    with exit_on_error(), _usage_of_arguments(start="--since"):
        # This import loads pyarrow, which other commands do not need.
        from kafkagroup.admin.dead_letters import redrive as put_back

        done = put_back(connection.settings(), name, to=to, since=since)
        where = to or "the topics of their records, where every group reads them again"
        note(f"Put {done.letters:,} records of {name} back to {where}; {done.doubles:,} letters were duplicates.")
        if done.others:
            note(f"{done.others:,} records of {name} are no dead letters, and were left out.")


# The command's options for the arguments that errors of `kafkagroup.arrow` name.
_WORDS = {"fail_on_data_loss=False": "--accept-loss"}
_ARGUMENTS = {"to": "--to", "end": "--until", "offsets": "--from or --until", "columns": "--columns"}


@contextmanager
def _usage_of_arguments(start: str = "--from") -> Iterator[None]:
    """Report an `OptionError` about an argument of `arrow.read` as wrong usage of the command's option.

    Args:
        start: The command's option for the start.
    """
    hints = {**_ARGUMENTS, "start": start}
    try:
        yield
    except ValueError as error:
        from kafka_source.errors import OptionError

        if not isinstance(error, OptionError) or error.option not in hints:
            raise
        problem = f"got {error.got!r}; it takes {error.takes}" if error.takes else error.problem
        raise typer.BadParameter(problem, param_hint=hints[error.option]) from None


def _form_of(to: str, given: str | None) -> FileFormat:
    """Return the format with the given name; without a name, the format of the file's suffix."""
    from kafkagroup.arrow.file_formats import FileFormat

    name = (Path(to).suffix.removeprefix(".") if given is None else given).lower()
    forms = [one.value for one in FileFormat]
    if name in forms:
        return FileFormat(name)
    if given is not None:
        raise typer.BadParameter(f"got {given!r}; it takes {', '.join(forms)}", param_hint="--format")
    suffixes = ", ".join(f".{one}" for one in forms)
    raise typer.BadParameter(f"says no format: end it with one of {suffixes}, or give --format", param_hint="--to")


def _position_of(text: str, hint: str) -> str | dict[str, dict[int, int]] | dict[int, int]:
    """Return a position of `arrow.read`: JSON of offsets becomes a dictionary."""
    if not text.lstrip().startswith("{"):
        return text
    import json

    try:
        offsets: dict[str, object] = json.loads(text)
        if all(isinstance(value, dict) for value in offsets.values()):
            return {topic: _numbers(value) for topic, value in offsets.items() if isinstance(value, dict)}
        return _numbers(offsets)
    except (ValueError, TypeError):
        takes = '{"0": 1500, "1": 1498}: an offset of each partition'
        raise typer.BadParameter(f"got {text!r}; as JSON it takes {takes}", param_hint=hint) from None


def _numbers(offsets: dict[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in offsets.items()}
