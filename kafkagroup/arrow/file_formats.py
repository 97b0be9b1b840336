"""Write record batches as Parquet, Arrow, CSV or JSON lines.

CSV and JSON have no type for bytes, so bytes in columns and in headers are base64. Times are ISO 8601 in UTC with
milliseconds. A time after the year 9999 is written as the number of milliseconds since 1970. In JSON, decoded values
are those of `json_values`.
"""

import json
from abc import ABC, abstractmethod
from enum import Enum
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from kafka_source.values.json_values import json_values

_ROW_GROUP_BYTES = 32 << 20
"""The size in Arrow of a Parquet row group, which is kept in memory until it is complete."""


# The years 1 and 10000, in milliseconds since 1970.
_FIRST_MS, _BEYOND_MS = -62_135_596_800_000, 253_402_300_800_000


class FileFormat(str, Enum):
    """A file format; the value is also the suffix of the file's name."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    JSONL = "jsonl"


class BatchWriter(ABC):
    """Writes record batches to an open file."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch, or keep it for the next row group."""

    @abstractmethod
    def finish(self) -> None:
        """Write the remaining rows, and the end of the file."""

    def give_up(self) -> None:  # noqa: B027 - most writers have nothing to do
        """Write nothing more, because the caller removes the file, or closes it without its end."""


def batch_writer(form: FileFormat, schema: pa.Schema, file: IO[bytes], *, pipe: bool = False) -> BatchWriter:
    """Return a writer of this format.

    Args:
        form: The format.
        schema: The columns of the batches.
        file: The file for the bytes; `finish` does not close it.
        pipe: Whether to write Arrow's streaming format, which a pipe needs, instead of its file format.
    """
    if form is FileFormat.PARQUET:
        return _Parquet(schema, file)
    if form is FileFormat.ARROW:
        return _Arrow(schema, file, pipe=pipe)
    return _Csv(schema, file) if form is FileFormat.CSV else _JsonLines(file)


class _Parquet(BatchWriter):
    def __init__(self, schema: pa.Schema, file: IO[bytes]) -> None:
        # Some installations of pyarrow have no Parquet.
        from pyarrow.parquet import ParquetWriter

        self._writer = ParquetWriter(file, schema, compression="zstd")
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def finish(self) -> None:
        if self._held:
            self._write_row_group()
        self._writer.close()

    def give_up(self) -> None:
        # Otherwise the garbage-collected writer would write the file's end, and raise because the file is closed.
        self._writer.is_open = False

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._held)
        self._held, self._bytes = [], 0
        self._writer.write_table(table, row_group_size=table.num_rows)


class _Arrow(BatchWriter):
    def __init__(self, schema: pa.Schema, file: IO[bytes], *, pipe: bool) -> None:
        self._writer = (pa.ipc.new_stream if pipe else pa.ipc.new_file)(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._writer.close()


class _Csv(BatchWriter):
    def __init__(self, schema: pa.Schema, file: IO[bytes]) -> None:
        from pyarrow.csv import CSVWriter

        self._writer = CSVWriter(file, _as_text(pa.RecordBatch.from_pylist([], schema)).schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(_as_text(batch))

    def finish(self) -> None:
        self._writer.close()


class _JsonLines(BatchWriter):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    def write(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        rows = zip(*(json_values(_times_as_text(column)) for column in batch.columns), strict=True)
        lines = (self._encode(dict(zip(names, row, strict=True))) for row in rows)
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def finish(self) -> None:
        self._file.flush()


def _as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with bytes as base64, times as ISO 8601, and headers as JSON."""
    return pa.record_batch([_text_column(column) for column in batch.columns], names=batch.schema.names)


def _text_column(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return pa.array(json_values(column), pa.string())
    if pa.types.is_list(column.type):
        headers = json_values(column)
        return pa.array([None if one is None else json.dumps(one, ensure_ascii=False) for one in headers], pa.string())
    return _times_as_text(column)


def _times_as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        # Kafka's times are milliseconds. Calendars end in the year 9999, so a later time is written as a number.
        times = column.cast(pa.timestamp("ms"), safe=False)
        numbers = times.cast(pa.int64())
        known = pc.and_(pc.greater_equal(numbers, _FIRST_MS), pc.less(numbers, _BEYOND_MS))
        plain = pc.if_else(known, times, None).cast(pa.string())
        text = pc.binary_join_element_wise(pc.replace_substring(plain, " ", "T"), "Z", "")
        return pc.if_else(known, text, numbers.cast(pa.string()))
    return column
