"""Rows, by Arrow batches or one by one, as the columns of Kafka records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from kafka_source.errors import InvalidConfigurationError
from kafka_source.sink.schema import SinkColumns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_ROWS = 1000
# What stands around a record's key and value in a batch, about.
_OVERHEAD = 10


@dataclass(frozen=True, slots=True)
class Records:
    """Some records, as Arrow columns of the same length; None: no record has this part.

    Attributes:
        values: Binary, null is a tombstone.
        keys: Binary.
        topics: A string for each record, or one for all.
        partitions: int32; null: the partitioner decides.
        headers: list<struct<key: string, value: binary>>; null where a record has none.
    """

    values: pa.Array
    keys: pa.Array | None
    topics: pa.Array | str
    partitions: pa.Array | None = None
    headers: pa.Array | None = None

    def __len__(self) -> int:
        """How many."""
        return len(self.values)

    def slice(self, begin: int, count: int) -> Records:
        """`count` of them from the number `begin` on, without a copy."""
        return self._each(lambda column: column.slice(begin, count))

    def sizes(self) -> list[int]:
        """Bytes of each in a batch, about."""
        pc = _compute()
        sizes = pc.fill_null(pc.binary_length(self.values), 0)
        if self.keys is not None:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(self.keys), 0))
        found: list[int] = pc.add(sizes, _OVERHEAD).to_pylist()
        return found

    def by_topic(self) -> Iterator[tuple[str, Records]]:
        """The records of each topic, in their order."""
        if isinstance(self.topics, str):
            yield self.topics, self
            return
        topics = self.topics.unique().to_pylist()
        for topic in topics:
            mine = self if len(topics) == 1 else self._where(_compute().equal(self.topics, topic))
            yield topic, mine

    def _where(self, mask: pa.Array) -> Records:
        return self._each(lambda column: column.filter(mask))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> Records:
        def part(column: pa.Array | None) -> pa.Array | None:
            return None if column is None else change(column)

        topics = self.topics if isinstance(self.topics, str) else change(self.topics)
        return Records(change(self.values), part(self.keys), topics, part(self.partitions), part(self.headers))


def from_arrow(batch: pa.RecordBatch, columns: SinkColumns, topic: str | None) -> Records:
    """The records of an Arrow batch.

    Raises:
        InvalidConfigurationError: A row has no topic, a negative partition or a header without a key.
    """

    def column(position: int | None, kind: pa.DataType) -> pa.Array | None:
        return None if position is None else batch.column(position).cast(kind)

    return _records(column, columns, topic)


def from_rows(rows: Iterator[Sequence[Any]], columns: SinkColumns, topic: str | None) -> Iterator[Records]:
    """The records of rows, some at a time; for Spark versions that write streams row by row.

    Raises:
        InvalidConfigurationError: As `from_arrow`.
    """
    while chunk := list(islice(rows, _ROWS)):

        def column(position: int | None, kind: pa.DataType, chunk: list[Sequence[Any]] = chunk) -> pa.Array | None:
            if position is None:
                return None
            values = [row[position] for row in chunk]
            return pa.array([_headers(value) for value in values] if kind == HEADERS else values, kind)

        yield _records(column, columns, topic)


def _headers(headers: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    # Each is a Row or a tuple.
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


def _records(
    column: Callable[[int | None, pa.DataType], pa.Array | None], columns: SinkColumns, topic: str | None
) -> Records:
    values = column(columns.value, pa.binary())
    if values is None:
        raise InvalidConfigurationError("The DataFrame has no column value.")
    return Records(
        values=values,
        keys=column(columns.key, pa.binary()),
        topics=_topics(column(columns.topic, pa.string())) if topic is None else topic,
        partitions=_partitions(column(columns.partition, pa.int32())),
        headers=_checked_headers(column(columns.headers, HEADERS)),
    )


def _topics(topics: pa.Array | None) -> pa.Array:
    if topics is None or topics.null_count:
        raise InvalidConfigurationError("null topic present in the data. Use the topic option for setting a topic.")
    return topics


def _partitions(partitions: pa.Array | None) -> pa.Array | None:
    if partitions is None or partitions.null_count == len(partitions):
        return None
    least = _compute().min(partitions).as_py()
    if least < 0:
        raise InvalidConfigurationError(
            f"Column partition holds {least}; a partition is a number from 0 up, or null for the partitioner's choice."
        )
    return partitions


def _checked_headers(headers: pa.Array | None) -> pa.Array | None:
    if headers is None or headers.null_count == len(headers):
        return None
    if _compute().struct_field(headers.flatten(), "key").null_count:
        raise InvalidConfigurationError("Column headers holds a header without a key; Kafka's headers all have one.")
    return headers


def _compute() -> Any:
    # Most sinks need none of it, and each process of Spark's would take 50 ms longer to start.
    import pyarrow.compute

    return pyarrow.compute
