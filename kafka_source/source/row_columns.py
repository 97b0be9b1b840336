"""The columns that a task fetches for its rows, and the columns that it makes.

A task makes decoded columns (`value.format`, `key.format`). With `redundant.emit=all` a task also makes the column
`replica`: the number of the partition's copy for which a row was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.schema import REPLICA, Column

if TYPE_CHECKING:
    from kafka_source.source.decoded_columns import Readers
    from kafka_source.values.decoding import Decoding

# Fetched if `replica` is the only column, because a record batch without columns has no rows.
_CARRIER = Column("partition")

# Columns that decoding needs for its errors.
_FOR_ERRORS = ["topic", "partition", "offset"]
# Columns that a dead letter needs.
_FOR_DEAD_LETTERS = ["key", "value", "headers"]


def columns_to_fetch(
    columns: tuple[Column, ...], decoding: Decoding | None = None, *, dead_letters: bool = False
) -> tuple[Column, ...]:
    """Return the columns that an engine reads for these columns of rows; at least one column.

    Args:
        columns: The columns of the rows.
        decoding: How columns are decoded; None: no column is decoded.
        dead_letters: Whether records that cannot be decoded are written to another topic.
    """
    fetched = tuple(column for column in columns if column.name != REPLICA and column.made is None)
    if decoding is not None:
        if decoding.mode != "FAILFAST":
            fetched = tuple(replace(one, lenient=one.name == "timestamp" and one.nullable) for one in fetched)
        needed = [*(one.reader.column for one in decoding.columns), *_FOR_ERRORS]
        needed += ["headers"] if any(one.has_ids_in_headers for one in decoding.columns) else []
        needed += _FOR_DEAD_LETTERS if dead_letters else []
        named = {column.name for column in fetched}
        fetched += tuple(Column(name) for name in dict.fromkeys(needed) if name not in named)
    return fetched or (_CARRIER,)


def rows_of(
    batch: pa.RecordBatch,
    columns: tuple[Column, ...],
    *,
    replica: int = 0,
    decoding: Decoding | None = None,
    readers: Readers | None = None,
    on_bad: Callable[[pa.RecordBatch, Sequence[str]], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of fetched records, with exactly the requested columns; `decode` may cut the rows into batches.

    Args:
        batch: The columns of `columns_to_fetch`.
        columns: The columns of the result.
        replica: The number of the copy; the same in every row.
        decoding: How columns are decoded; None: no column is decoded.
        readers: The schemas with which the batch was planned; see `decode`.
        on_bad: See `decode`.

    Raises:
        KafkaGroupError: See `decode`.
    """
    batches: Iterable[tuple[pa.RecordBatch, dict[str, pa.Array]]] = [(batch, {})]
    if decoding is not None:
        # Only tasks that decode load this.
        from kafka_source.values.decoding import decode

        batches = decode(batch, decoding, readers, on_bad)
    for rows, made in batches:
        if any(column.name == REPLICA for column in columns):
            made[REPLICA] = pa.repeat(pa.scalar(replica, pa.int32()), rows.num_rows)
        yield _with(made, rows, columns) if made else rows


def _with(made: Mapping[str, pa.Array], batch: pa.RecordBatch, columns: tuple[Column, ...]) -> pa.RecordBatch:
    arrays = [made[column.name] if column.name in made else batch.column(column.name) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
