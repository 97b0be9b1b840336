"""Records as Arrow columns for a producer: by topic, with their sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# The approximate bytes of a record in a record batch besides key and value.
_OVERHEAD = 10


@dataclass(frozen=True, slots=True)
class Records:
    """Records as Arrow columns of the same length. A column that is None is null in every record.

    Attributes:
        values: binary; a null is a tombstone.
        keys: binary.
        topics: string for each record, or one topic for all records.
        partitions: int32; for a null the partitioner chooses the partition.
        headers: list<struct<key: string, value: binary>>; null for a record without headers.
    """

    values: pa.Array
    keys: pa.Array | None
    topics: pa.Array | str
    partitions: pa.Array | None = None
    headers: pa.Array | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)

    def slice(self, begin: int, count: int) -> Records:
        """Return `count` records from index `begin` on, without a copy."""
        return self._each(lambda column: column.slice(begin, count))

    def sizes(self) -> list[int]:
        """Return the approximate size of each record in a record batch, in bytes."""
        pc = compute()
        sizes = pc.fill_null(pc.binary_length(self.values), 0)
        if self.keys is not None:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(self.keys), 0))
        found: list[int] = pc.add(sizes, _OVERHEAD).to_pylist()
        return found

    def last_partition(self) -> int:
        """Return the highest partition that a record names; -1: no record names a partition."""
        last = None if self.partitions is None else compute().max(self.partitions).as_py()
        return -1 if last is None else int(last)

    def by_topic(self) -> Iterator[tuple[str, Records]]:
        """Yield each topic with its records, in their order."""
        if isinstance(self.topics, str):
            yield self.topics, self
            return
        topics = self.topics.unique().to_pylist()
        for topic in topics:
            of_topic = self if len(topics) == 1 else self._where(compute().equal(self.topics, topic))
            yield topic, of_topic

    def _where(self, mask: pa.Array) -> Records:
        return self._each(lambda column: column.filter(mask))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> Records:
        def part(column: pa.Array | None) -> pa.Array | None:
            return None if column is None else change(column)

        topics = self.topics if isinstance(self.topics, str) else change(self.topics)
        return Records(change(self.values), part(self.keys), topics, part(self.partitions), part(self.headers))


def compute() -> Any:
    """Return pyarrow.compute, whose import takes 50 ms in each Python worker; most sinks do not need the module."""
    import pyarrow.compute

    return pyarrow.compute
