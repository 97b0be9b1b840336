"""The columns of the rows: those that an engine fetches, and those that a task makes itself.

A task makes the column `replica` (`redundant.emit=all`), the number of the partition's copy for which a row was read,
and what is decoded of the value (`value.format`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.schema import REPLICA, Column

if TYPE_CHECKING:
    from kafka_source.values.decoding import ValueDecoding
    from kafka_source.values.reader_schema import ReaderSchema

# Fetched where `replica` is the only column: a record batch without columns has no rows.
_CARRIER = Column("partition")

# What is fetched to decode a value: itself, and where it is, for errors.
_FOR_VALUES = ("value", "topic", "partition", "offset")
# And to write it to another topic if it is bad.
_FOR_DEAD_LETTERS = (*_FOR_VALUES, "key", "headers")


def columns_to_fetch(columns: tuple[Column, ...], *, dead_letters: bool = False) -> tuple[Column, ...]:
    """Return the columns that an engine reads for these columns of rows; at least one.

    Args:
        columns: The columns of the rows.
        dead_letters: Whether records whose values cannot be decoded are written to another topic.
    """
    fetched = tuple(column for column in columns if column.name != REPLICA and column.made is None)
    if any(column.made is not None for column in columns):
        named = {column.name for column in fetched}
        needed = _FOR_DEAD_LETTERS if dead_letters else _FOR_VALUES
        fetched += tuple(Column(name) for name in needed if name not in named)
    return fetched or (_CARRIER,)


def rows_of(
    batch: pa.RecordBatch,
    columns: tuple[Column, ...],
    *,
    replica: int = 0,
    decoding: ValueDecoding | None = None,
    reader: ReaderSchema | None = None,
    on_bad: Callable[[pa.RecordBatch, Sequence[str]], None] | None = None,
) -> pa.RecordBatch:
    """Return the rows of fetched records, with exactly the requested columns.

    Args:
        batch: The columns of `columns_to_fetch`.
        columns: The columns of the result.
        replica: The number of the copy; the same in every row.
        decoding: How the values are decoded; None: they are not.
        reader: The schema with which the batch was planned; see `decode`.
        on_bad: See `decode`.

    Raises:
        KafkaGroupError: See `decode`.
    """
    made: dict[str, pa.Array] = {}
    if decoding is not None:
        # Only tasks that decode load this.
        from kafka_source.values.decoding import decode

        batch, made = decode(batch, decoding, reader, on_bad)
    if any(column.name == REPLICA for column in columns):
        made[REPLICA] = pa.repeat(pa.scalar(replica, pa.int32()), batch.num_rows)
    return _with(made, batch, columns) if made else batch


def _with(made: Mapping[str, pa.Array], batch: pa.RecordBatch, columns: tuple[Column, ...]) -> pa.RecordBatch:
    arrays = [made[column.name] if column.name in made else batch.column(column.name) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
