"""A batch that is decoded as one."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from kafka_source.options.kinds import DecodedColumn
from kafka_source.values import decoding
from kafka_source.values.reader_schema import ReaderSchema


def decode(
    batch: pa.RecordBatch,
    how: decoding.Decoding,
    planned: Mapping[DecodedColumn, ReaderSchema] | None = None,
    on_bad: Callable[[pa.RecordBatch, Sequence[str]], None] | None = None,
) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """Return what `decoding.decode` yields, which must be one batch."""
    (one,) = decoding.decode(batch, how, planned, on_bad)
    return one
