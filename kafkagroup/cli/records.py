"""The commands `kafkagroup brokers | produce | schema`: addresses, records from lines, registered schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkagroup.cli.common import OutputOption, emit, exit_on_error, note
from kafkagroup.cli.output import Listing, Output
from kafkagroup.cli.settings import NO_OPTIONS, Connection, with_connection

if TYPE_CHECKING:
    import pyarrow as pa


@with_connection
def brokers(connection: Connection = NO_OPTIONS, output: OutputOption = Output.TABLE) -> None:
    """List the brokers of a cluster with the addresses that they advertise, and the partitions that they lead."""
    with exit_on_error():
        from kafkagroup.admin import Topics

        rows, cluster = Topics(connection.settings()).brokers()
        emit(output, Listing("brokers", rows, f"cluster {cluster}"))


_LINES_AT_ONCE = 10_000
_FIELDS = {"key", "value", "headers", "partition"}


@with_connection
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic.")],
    connection: Connection = NO_OPTIONS,
    separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help="The text between a line's key and value, such as a colon."
        ),
    ] = None,
    from_json: Annotated[
        bool,
        typer.Option(
            "--from-json",
            help='Each line is an object: {"key": "k", "value": "v", "partition": 0, "headers": {"h": "x"}}. Values '
            "other than text are written as JSON.",
        ),
    ] = False,
) -> None:
    """Write each line of standard input to a topic as one record.

    The producer is idempotent and waits for all acknowledgements.
    """
    if from_json and separator is not None:
        raise typer.BadParameter("contradicts --from-json", param_hint="--key-separator")
    with exit_on_error():
        from kafkagroup import arrow
        from kafkagroup.admin import Topics

        # Describe the topic before the first line is read, because its name may be misspelt.
        Topics(connection.settings()).describe(topic)
        written = 0
        lines = (line.rstrip("\r\n") for line in sys.stdin)
        for numbered in _parts(enumerate(lines, 1)):
            rows = [_of_json(number, line) if from_json else _of_text(line, separator) for number, line in numbered]
            written += arrow.write(topic, _batch(rows), connection.settings().given)
        note(f"Wrote {written:,} record{'' if written == 1 else 's'} to {topic}.")


def _parts(lines: Iterator[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    while part := list(islice(lines, _LINES_AT_ONCE)):
        yield part


def _of_text(line: str, separator: str | None) -> dict[str, Any]:
    key, found, value = line.partition(separator) if separator else ("", "", line)
    return {"key": key, "value": value} if found else {"key": None, "value": line}


def _of_json(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise typer.BadParameter(f"line {number} is not JSON: {error}", param_hint="--from-json") from None
    if not isinstance(row, dict) or "value" not in row or row.keys() - _FIELDS:
        takes = "an object with `value`, and optionally with key, headers and partition"
        raise typer.BadParameter(f"line {number} must be {takes}", param_hint="--from-json")
    headers = row.get("headers")
    return {
        **row,
        "key": _text(row.get("key")),
        "value": _text(row["value"]),
        "headers": headers and [{"key": key, "value": _text(value)} for key, value in headers.items()],
    }


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {"key": pa.binary(), "value": pa.binary(), "headers": pa.list_(header), "partition": pa.int32()}
    kept = list(rows)
    arrays = [pa.array([_bytes(row.get(name), name) for row in kept], kind) for name, kind in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _bytes(value: Any, column: str) -> Any:
    if column == "headers":
        return value and [{"key": one["key"], "value": _bytes(one["value"], "value")} for one in value]
    return value.encode() if isinstance(value, str) else value


@with_connection
def schema(
    given: Annotated[
        str, typer.Argument(metavar="ID|TOPIC", show_default=False, help="An id, or the topic whose ids to count.")
    ],
    connection: Connection = NO_OPTIONS,
    registry: Annotated[
        str | None, typer.Option("--schema-registry", metavar="URL", help="The registry; default: schema.registry.url.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="How many of the last records to read.")
    ] = 1000,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the schema with an id, or count the ids in the values of a topic's last records.

    Only ids of Confluent's framing are found. With a registry, Protobuf messages are named too.
    """
    settings = connection.registry(registry)
    if given.isdecimal():
        if settings is None:
            raise typer.BadParameter("is missing: give it, or schema.registry.url", param_hint="--schema-registry")
        with exit_on_error():
            from kafka_source.errors import InvalidConfigurationError
            from kafka_source.values.registry import Unusable, registry_of

            found = registry_of(settings).by_id(int(given))
            if isinstance(found, Unusable):
                raise InvalidConfigurationError(f"The registry has no schema {given} that can be shown: {found.reason}")
            typer.echo(found.text)
        return
    with exit_on_error():
        from kafkagroup.admin.peek import Peek, schemas_of

        records = Peek(connection.settings(), given, registry=settings).records(None, count)
        emit(output, Listing("schemas", schemas_of(records), empty="No value has the id of a schema."))
