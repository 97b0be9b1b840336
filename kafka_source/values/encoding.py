"""Encode the values and keys of record batches, in tasks: a column of any type -> bytes, with the id of the schema.

A null stays null, which is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from kafkagroup_native import AvroEncoder, JsonEncoder, ProtobufEncoder

from kafka_source.errors import InvalidConfigurationError
from kafka_source.runtime.process_cache import ProcessCache
from kafka_source.values.writer_schema import WriterSchema


@dataclass(frozen=True, slots=True)
class ColumnEncoding:
    """The encoding of a sink's column; sent to every task.

    Attributes:
        schema: The schema of the column, with its format.
        type: The type of the column.
    """

    schema: WriterSchema
    type: pa.DataType


def encode(values: pa.Array, topics: pa.Array | str | None, encoding: ColumnEncoding) -> pa.Array:
    """Return the values as binary.

    Args:
        values: The column.
        topics: The topic of each row, or one topic for all rows; errors name it.
        encoding: The encoding.

    Raises:
        InvalidConfigurationError: A value does not fit the schema; the error names its topic and the path of the field.
    """
    from kafkagroup_native import UnfitValue

    try:
        return pa.array(_encoders.of(encoding.schema).encode(values))
    except UnfitValue as problem:
        topic = topics[problem.row].as_py() if isinstance(topics, pa.Array) else topics
        what = f"A {encoding.schema.column} for topic {topic}"
        raise InvalidConfigurationError(
            f"{what} cannot be written with {encoding.schema}: {problem}. Correct the rows, or write with another "
            "schema."
        ) from None


def column_of(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Return values from Spark's rows as a column. In the rows, structs are tuples and instants are local times."""
    return pa.array([_plain(value, kind) for value in values], kind)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value for Arrow."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        row: Sequence[Any] = value
        return {field.name: _plain(row[i], field.type) for i, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(key, _plain(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_timestamp(kind) and kind.tz is not None and isinstance(value, datetime):
        # A time without a zone is local, as in Spark's rows.
        return value.astimezone(timezone.utc)
    return value


def _encoder(schema: WriterSchema) -> AvroEncoder | ProtobufEncoder | JsonEncoder:
    return schema.encoder()


_encoders = ProcessCache(_encoder)
