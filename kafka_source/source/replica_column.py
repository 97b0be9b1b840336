"""Reading for several copies of a partition: the column `replica` says for which one a row was read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_source.model.stream_offset import Range
from kafka_source.schema import REPLICA, Column, arrow_schema

# A batch without columns has no rows either.
_CARRIER = Column("partition")


def by_replica(ranges: Sequence[Range]) -> list[tuple[int, tuple[Range, ...]]]:
    """The ranges of each replica, in the order of their numbers; a request may have a partition once only."""
    numbers = sorted({r.replica for r in ranges})
    return [(number, tuple(r for r in ranges if r.replica == number)) for number in numbers]


def columns_to_fetch(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """What an engine is asked for: all columns of records."""
    return tuple(column for column in columns if column.name != REPLICA) or (_CARRIER,)


def with_replica(batch: pa.RecordBatch, columns: tuple[Column, ...], replica: int) -> pa.RecordBatch:
    """The batch with exactly the columns asked for."""
    if not any(column.name == REPLICA for column in columns):
        return batch
    numbers = pa.repeat(pa.scalar(replica, pa.int32()), batch.num_rows)
    arrays = [numbers if column.name == REPLICA else batch.column(column.name) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))
