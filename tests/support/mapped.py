"""A function for `map.function` that copies records, so that what is tested of a read holds with a function too."""

from collections.abc import Iterator

import pyarrow as pa

from kafka_source.arrow_function import arrow_function

COPIED = {
    "map.function": "tests.support.mapped:copied",
    "map.schema": "key binary, value binary, partition int, offset bigint",
    "map.columns": "key, value, partition, offset",
}


@arrow_function
def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each record, made by Python; each batch comes when the next one has been taken."""
    before = None
    for batch in batches:
        if before is not None:
            yield before
        before = pa.RecordBatch.from_pylist(batch.to_pylist(), batch.schema)
    if before is not None:
        yield before
