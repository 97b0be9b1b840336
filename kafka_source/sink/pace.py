"""Records no faster than a quota lets them through."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kafka_source.quota.pacer import Pacer
from kafka_source.sink.records import Records

PRODUCER_RATE = "producer_byte_rate"

# What stands around a record's key and value in a batch, about.
_OVERHEAD = 10


def paced(batches: Iterable[Records], pacer: Pacer) -> Iterator[Records]:
    """The same records, in pieces as large as may be sent at once, each when it may be sent."""
    if not pacer.paces:
        yield from batches
        return
    for records in batches:
        sizes = _sizes(records)
        at = 0
        while at < len(sizes):
            while (pause := pacer.wait(len(sizes) - at)) > 0:
                time.sleep(pause)
            count = _fitting(sizes, at, pacer.most_bytes(sum(sizes) / len(sizes)))
            pacer.fetched(sum(sizes[at : at + count]), count)
            yield records if count == len(sizes) else _slice(records, at, at + count)
            at += count


def _fitting(sizes: Sequence[int], at: int, most: int | None) -> int:
    if most is None or sum(sizes[at:]) <= most:
        return len(sizes) - at
    total = 0
    for count, size in enumerate(sizes[at:]):
        total += size
        if total > most:
            return max(1, count)
    return len(sizes) - at


def _sizes(records: Records) -> list[int]:
    # Text may be longer in UTF-8, but not by much where it matters.
    sizes = [_OVERHEAD if value is None else len(value) + _OVERHEAD for value in records.values]
    if records.keys is None:
        return sizes
    return [size + len(key or b"") for size, key in zip(sizes, records.keys, strict=True)]


def _slice(records: Records, begin: int, end: int) -> Records:
    def part(column: Sequence[Any] | None) -> Sequence[Any] | None:
        return None if column is None else column[begin:end]

    topics = records.topics if isinstance(records.topics, str) else records.topics[begin:end]
    return Records(
        records.values[begin:end], part(records.keys), topics, part(records.partitions), part(records.headers)
    )
