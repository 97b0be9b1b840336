"""A stream of Arrow record batches, for every library that supports Arrow's PyCapsule interface."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeVar

import pyarrow as pa

from kafkagroup.arrow.progress import Bar, Progress

_Self = TypeVar("_Self", bound="Stream")


class Stream(ABC):
    """Record batches of one schema.

    polars, pandas, DuckDB, pyarrow and other libraries read the stream as a table: `polars.DataFrame(stream)`,
    `duckdb.sql("from stream")`, `pyarrow.table(stream)`.

    Args:
        schema: The columns of the batches.
        bar: Shows the progress.
        lag: The offsets that are left to read, if known.
    """

    def __init__(self, schema: pa.Schema, bar: Bar, lag: int = 0) -> None:
        self._schema, self._bar = schema, bar
        self._progress = Progress(lag=lag)
        self._is_closed = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        return self._schema

    @property
    def progress(self) -> Progress:
        """The stream's progress: the numbers of returned records and of offsets that are left."""
        return self._progress

    def _show(self, progress: Progress) -> None:
        self._progress = progress
        self._bar.update(progress)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the stream is closed")

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches."""

    @abstractmethod
    def close(self) -> None:
        """Release the stream's resources."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of pyarrow over this stream."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a PyCapsule (Arrow's C data interface)."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches as a PyCapsule (Arrow's C stream interface)."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
