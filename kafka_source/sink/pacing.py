"""Records no faster than a quota lets them through."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from kafka_source.quota.pacer import Pacer
from kafka_source.sink.records import Records

PRODUCER_RATE = "producer_byte_rate"


def paced(batches: Iterable[Records], pacer: Pacer) -> Iterator[Records]:
    """The same records, in pieces as large as may be sent at once, each when it may be sent."""
    if not pacer.paces:
        yield from batches
        return
    for records in batches:
        sizes = records.sizes()
        at = 0
        while at < len(sizes):
            while (pause := pacer.wait(len(sizes) - at)) > 0:
                time.sleep(pause)
            count = _fitting(sizes, at, pacer.most_bytes(sum(sizes) / len(sizes)))
            pacer.fetched(sum(sizes[at : at + count]), count)
            yield records if count == len(sizes) else records.slice(at, count)
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
