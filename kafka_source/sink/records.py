"""Turn rows into records: the columns with topic, key, value, headers and partition, and their types.

The rules of the schema, and error texts that users may search for, are those of Spark's own Kafka sink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from kafka_source.values.encoding import ColumnEncoding

from kafka_source.errors import InvalidConfigurationError
from kafka_source.model.record_columns import COLUMN_TYPES
from kafka_source.options.kinds import DecodedColumn
from kafka_source.produce.records import HEADERS, Records, compute

# Spark 4.0 passes a stream's rows to the sink one by one.
_ROWS_AT_ONCE = 1000


def from_arrow(
    batch: pa.RecordBatch, columns: SinkColumns, topic: str | None, encodings: Sequence[ColumnEncoding] = ()
) -> Records:
    """Return the records of an Arrow batch.

    Args:
        batch: The rows.
        columns: The positions of a record's parts in the rows.
        topic: The option `topic`.
        encodings: The encodings of keys and values; columns without an encoding are bytes or strings.

    Raises:
        InvalidConfigurationError: A row has no topic, a negative partition, a header without a key, or a value that
            cannot be encoded.
    """
    by_position = _by_position(encodings, columns)

    def column(position: int | None, kind: pa.DataType) -> pa.Array | None:
        if position is None:
            return None
        given = batch.column(position)
        if position in by_position:
            from kafka_source.values.encoding import encode

            topics = batch.column(columns.topic) if topic is None and columns.topic is not None else topic
            return encode(given, topics, by_position[position])
        return _named_headers(given).cast(kind) if kind == HEADERS else given.cast(kind)

    return _records(column, columns, topic)


def from_rows(
    rows: Iterator[Sequence[Any]], columns: SinkColumns, topic: str | None, encodings: Sequence[ColumnEncoding] = ()
) -> Iterator[Records]:
    """Yield the records of rows, 1,000 rows at a time, for Spark versions that write streams row by row.

    Raises:
        InvalidConfigurationError: As for `from_arrow`.
    """
    by_position = _by_position(encodings, columns)
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):

        def column(position: int | None, kind: pa.DataType, chunk: list[Sequence[Any]] = chunk) -> pa.Array | None:
            if position is None:
                return None
            values = [row[position] for row in chunk]
            if position in by_position:
                from kafka_source.values.encoding import column_of, encode

                encoding = by_position[position]
                topics = pa.array([row[columns.topic] for row in chunk]) if columns.topic is not None else topic
                return encode(column_of(values, encoding.type), topics, encoding)
            return pa.array([_headers(value) for value in values] if kind == HEADERS else values, kind)

        yield _records(column, columns, topic)


def _by_position(encodings: Sequence[ColumnEncoding], columns: SinkColumns) -> dict[int, ColumnEncoding]:
    positions = {"key": columns.key, "value": columns.value}
    named = ((positions[one.schema.column], one) for one in encodings)
    return {position: one for position, one in named if position is not None}


def _headers(headers: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    # Each header is a Row or a tuple.
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


def _named_headers(headers: pa.Array) -> pa.Array:
    """Return headers named as in `HEADERS`, because Arrow casts by name, and Spark's names are case-insensitive."""
    names = [field.name for field in HEADERS.value_type]
    if [field.name for field in headers.type.value_type] == names:
        return headers
    structs = headers.values
    named = pa.StructArray.from_arrays([structs.field(0), structs.field(1)], names=names, mask=structs.is_null())
    return pa.ListArray.from_arrays(headers.offsets, named, mask=headers.is_null())


def _records(
    column: Callable[[int | None, pa.DataType], pa.Array | None], columns: SinkColumns, topic: str | None
) -> Records:
    values = column(columns.value, pa.binary())
    if values is None:
        raise InvalidConfigurationError("The DataFrame has no column value.")
    return Records(
        values=values,
        keys=column(columns.key, pa.binary()),
        topics=_topics(column(columns.topic, pa.string())) if topic is None else topic,
        partitions=_partitions(column(columns.partition, pa.int32())),
        headers=_checked_headers(column(columns.headers, HEADERS)),
    )


def _topics(topics: pa.Array | None) -> pa.Array:
    if topics is None or topics.null_count:
        raise InvalidConfigurationError("null topic present in the data. Use the topic option for setting a topic.")
    return topics


def _partitions(partitions: pa.Array | None) -> pa.Array | None:
    if partitions is None or partitions.null_count == len(partitions):
        return None
    smallest = compute().min(partitions).as_py()
    if smallest < 0:
        raise InvalidConfigurationError(
            f"Column partition holds {smallest}; it takes a number from 0 up, or null to let the partitioner choose."
        )
    return partitions


def _checked_headers(headers: pa.Array | None) -> pa.Array | None:
    if headers is None or headers.null_count == len(headers):
        return None
    if compute().struct_field(headers.flatten(), "key").null_count:
        raise InvalidConfigurationError("Column headers holds a header without a key; Kafka requires one.")
    return headers


# The names of types in Spark's SQL.
_ALLOWED: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (COLUMN_TYPES["headers"],),
    "partition": ("int",),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The position of each part of a record in a row; None if there is no such column.

    Attributes:
        value: The column `value`; a null is a tombstone.
        key: The column `key`.
        topic: The column `topic`; None if the option `topic` is set, which takes precedence.
        partition: The column `partition`; for a null, the partitioner chooses the partition.
        headers: The column `headers`.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None


def sink_columns(
    fields: Sequence[tuple[str, str]], topic: str | None, *, encoded: Collection[DecodedColumn] = ()
) -> SinkColumns:
    """Find and check the columns of a record. Other columns are ignored, as in Spark's own sink.

    Args:
        fields: Each column's name, and the name of its type in Spark SQL.
        topic: The option `topic`.
        encoded: The columns that are encoded, which may have any type; each must exist.

    Raises:
        InvalidConfigurationError: A column is missing or has a wrong type; the error names the allowed types.
    """
    allowed = {name: kinds for name, kinds in _ALLOWED.items() if name not in encoded}
    wanted = [name for name in _ALLOWED if name != "topic" or topic is None]
    found = {name: _position(fields, name, allowed.get(name)) for name in wanted}
    if topic is None and found["topic"] is None:
        raise InvalidConfigurationError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    value, missing = found["value"], [name for name in ("value", *encoded) if found[name] is None]
    if value is None or missing:
        there = ", ".join(name for name, _ in fields)
        raise InvalidConfigurationError(f"Required attribute '{missing[0]}' not found among the columns {there}.")
    return SinkColumns(value, found["key"], found.get("topic"), found["partition"], found["headers"])


def _position(fields: Sequence[tuple[str, str]], name: str, allowed: tuple[str, ...] | None) -> int | None:
    """Return the index of a column; None: no such column. Check the column's type unless all types are allowed."""
    position = next((i for i, field in enumerate(fields) if field[0] == name), None)
    if position is None or allowed is None:
        return position
    actual = fields[position][1]
    # As in Spark, the comparison ignores nullability, a string's collation, and the case of names in a header.
    if actual.split(" collate ")[0].lower() not in allowed:
        raise InvalidConfigurationError(
            f"{name} attribute unsupported type {actual}. {name} must be a(n) {' or '.join(allowed)}."
            + (
                f" With {name}.format=avro, protobuf or json a {name} may be a struct."
                if name in ("key", "value")
                else ""
            )
        )
    return position
