"""Rows, by Arrow batches or one by one, as the columns of Kafka records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError
from kafka_source.sink.schema import SinkColumns

Headers = list[tuple[str, bytes | None]]

_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Records:
    """Some records, as columns of the same length; None: no record has this part.

    Attributes:
        values: Bytes, or text to be encoded as UTF-8, or None.
        keys: The same.
        topics: One for each record, or one for all.
        partitions: -1: the partitioner decides.
        headers: None where a record has none.
    """

    values: Sequence[bytes | str | None]
    keys: Sequence[bytes | str | None] | None
    topics: Sequence[str] | str
    partitions: Sequence[int] | None
    headers: Sequence[Headers | None] | None


def from_arrow(batch: pa.RecordBatch, columns: SinkColumns, topic: str | None) -> Records:
    """The records of an Arrow batch.

    Raises:
        InvalidConfigurationError: A row has no topic, a negative partition or a header without a key.
    """

    def column(position: int | None) -> list[Any] | None:
        return None if position is None else batch.column(position).to_pylist()

    return _records(column, columns, topic)


def from_rows(rows: Iterator[Sequence[Any]], columns: SinkColumns, topic: str | None) -> Iterator[Records]:
    """The records of rows, some at a time; for Spark versions that write streams row by row.

    Raises:
        InvalidConfigurationError: As `from_arrow`.
    """
    while chunk := list(islice(rows, _ROWS)):

        def column(position: int | None, chunk: list[Sequence[Any]] = chunk) -> list[Any] | None:
            return None if position is None else [_fixed(row[position]) for row in chunk]

        yield _records(column, columns, topic)


def _fixed(value: Any) -> Any:
    # Spark's rows have binary columns as bytearrays, which librdkafka's client does not take.
    return bytes(value) if isinstance(value, bytearray) else value


def _records(column: Any, columns: SinkColumns, topic: str | None) -> Records:
    return Records(
        values=column(columns.value),
        keys=column(columns.key),
        topics=_topics(column(columns.topic)) if topic is None else topic,
        partitions=_partitions(column(columns.partition)),
        headers=_headers(column(columns.headers)),
    )


def _topics(topics: list[str | None]) -> Sequence[str]:
    if None in topics:
        raise InvalidConfigurationError("null topic present in the data. Use the topic option for setting a topic.")
    return topics  # type: ignore[return-value]


def _partitions(partitions: list[int | None] | None) -> Sequence[int] | None:
    if partitions is None or partitions.count(None) == len(partitions):
        return None
    chosen = [-1 if partition is None else partition for partition in partitions]
    if any(partition is not None and partition < 0 for partition in partitions):
        raise InvalidConfigurationError(
            f"Column partition holds {min(chosen)}; a partition is a number from 0 up, or null for the partitioner's "
            "choice."
        )
    return chosen


def _headers(headers: list[Any] | None) -> Sequence[Headers | None] | None:
    if headers is None or headers.count(None) == len(headers):
        return None
    return [None if of_one is None else [_header(header) for header in of_one] for of_one in headers]


def _header(header: Any) -> tuple[str, bytes | None]:
    # A dictionary from Arrow, a Row or tuple from rows.
    key, value = (header["key"], header["value"]) if isinstance(header, dict) else header
    if key is None:
        raise InvalidConfigurationError("Column headers holds a header without a key; Kafka's headers all have one.")
    return key, None if value is None else bytes(value)
