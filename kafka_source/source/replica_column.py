"""Column `replica` (`redundant.emit=all`): the number of the partition's copy for which a row was read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.model.stream_offset import Range
from kafka_source.schema import REPLICA, Column

# Fetched where `replica` is the only column: a record batch without columns has no rows.
_CARRIER = Column("partition")


def by_replica(ranges: Sequence[Range]) -> list[tuple[int, tuple[Range, ...]]]:
    """Group ranges by replica number, in ascending order, because a fetch must not name a partition twice."""
    numbers = sorted({r.replica for r in ranges})
    return [(number, tuple(r for r in ranges if r.replica == number)) for number in numbers]


def columns_to_fetch(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns that an engine reads: all but `replica`, and at least one."""
    return tuple(column for column in columns if column.name != REPLICA) or (_CARRIER,)


def with_replica(batch: pa.RecordBatch, columns: tuple[Column, ...], replica: int) -> pa.RecordBatch:
    """Add the column `replica` at its place, if it is asked for.

    Args:
        batch: The columns of `columns_to_fetch`.
        columns: The columns of the result.
        replica: The number of the copy; the same in every row.
    """
    if not any(column.name == REPLICA for column in columns):
        return batch
    numbers = pa.repeat(pa.scalar(replica, pa.int32()), batch.num_rows)
    arrays = [numbers if column.name == REPLICA else batch.column(column.name) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
