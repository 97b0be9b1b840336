"""Paces the records of a sink by the query's quota."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

from kafka_source.quota.task_pacer import Pacer
from kafka_source.sink.records import Records

PRODUCER_RATE = "producer_byte_rate"


def paced(batches: Iterable[Records], pacer: Pacer) -> Iterator[Records]:
    """Yield the records in pieces that the quota allows at once, each when the quota allows it."""
    if not pacer.enabled:
        yield from batches
        return
    for records in batches:
        # Bytes of all records before each.
        before = [0, *accumulate(records.sizes())]
        at, end = 0, len(before) - 1
        while at < end:
            while (pause := pacer.wait(end - at)) > 0:
                time.sleep(pause)
            most = pacer.max_bytes(before[-1] / end)
            until = end if most is None else max(at + 1, bisect_right(before, before[at] + most) - 1)
            pacer.fetched(before[until] - before[at], until - at)
            yield records if until - at == end else records.slice(at, until - at)
            at = until
