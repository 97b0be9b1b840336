"""Any stream of record batches is a table for the libraries that know Arrow's PyCapsule interface."""

from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest

from kafkagroup.arrow.progress import Progress
from kafkagroup.arrow.stream import Stream

SCHEMA = pa.schema([("n", pa.int32())])


class Numbers(Stream):
    """Two batches, and then perhaps an error."""

    schema = SCHEMA
    progress = Progress()

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.is_closed = error, False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for numbers in ([1, 2], [3]):
            yield pa.record_batch({"n": pa.array(numbers, pa.int32())}, schema=SCHEMA)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.is_closed = True


def test_a_stream_is_a_table_and_a_reader() -> None:
    with Numbers() as stream:
        assert pa.table(stream).to_pydict() == {"n": [1, 2, 3]}
        assert pl.DataFrame(stream).to_dict(as_series=False) == {"n": [1, 2, 3]}
        assert stream.to_reader().read_next_batch().num_rows == 2
        assert pa.schema(stream) == SCHEMA
        wider = pa.schema([("n", pa.int64())])
        assert pa.RecordBatchReader.from_stream(stream, schema=wider).read_all().schema == wider
    assert stream.is_closed


def test_an_error_comes_through_with_its_text() -> None:
    stream = Numbers(ValueError("no broker answers"))
    with pytest.raises(Exception, match="no broker answers"):
        pl.DataFrame(stream)
