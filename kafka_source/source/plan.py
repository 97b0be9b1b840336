"""From what there is to read to the ranges of each input partition. Pure: the same arguments give the same plan."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assignors.model import TopicPartition
from kafka_source.model.stream_offset import Copies, Range, Span, StreamOffset


def limit(available: Mapping[TopicPartition, tuple[int, int]], most: int | None) -> dict[TopicPartition, int]:
    """Where each partition ends if a micro-batch may have `most` offsets.

    Each gets a share in proportion to what it has, and a partition with anything new at least one offset a batch, so
    that none starves (Spark's KafkaMicroBatchStream.rateLimit).

    Args:
        available: For each partition where it stands and where it ends.
        most: The bound, in offsets; None: none.
    """
    sizes = {tp: max(0, end - start) for tp, (start, end) in available.items()}
    total = sum(sizes.values())
    if most is None or total <= most:
        return {tp: start + sizes[tp] for tp, (start, _) in available.items()}
    ends = {}
    for tp, (start, _) in available.items():
        share = most * sizes[tp] / total
        # Rounding down to nothing would starve a small partition for ever; one offset is the least progress.
        ends[tp] = start + min(sizes[tp], max(1, int(share)) if sizes[tp] else 0)
    return ends


def split(ranges: Sequence[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Cut large ranges into pieces (Spark's KafkaOffsetRangeCalculator); empty ranges are dropped.

    Args:
        ranges: In the order in which the pieces shall come.
        min_partitions: Cut until there are about so many; None: as they are.
        max_records: No piece is larger, in offsets; None: any.
    """
    pieces = [r for r in ranges if r.size > 0]
    if max_records is not None:
        pieces = [piece for r in pieces for piece in _cut(r, -(-r.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        total = sum(r.size for r in pieces)
        pieces = [piece for r in pieces for piece in _cut(r, max(1, round(r.size / total * min_partitions)))]
    return pieces


def _cut(whole: Range, count: int) -> list[Range]:
    bounds = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [replace(whole, start=low, end=high) for low, high in itertools.pairwise(bounds) if low < high]


def plan(end: StreamOffset, start: StreamOffset | None = None) -> list[tuple[int, tuple[Range, ...]]]:
    """The input partitions of the micro-batch that ends at `end`, each a slot (-1: none) and its ranges.

    Args:
        end: The batch's end offset; the plan depends on it alone.
        start: The offset before it. Spark before 4.2 does not tell a reader where it stands when it asks for the latest
            offset, so after a restart `end` may begin too early: nothing before `start` is read again.
    """
    done = {tp: at for tp, at in start.ends.items() if end.same_topic(start, tp.topic)} if start is not None else {}
    by_slot: dict[int, list[Range]] = {}
    for tp, span in sorted(end.partitions.items()):
        begin = max(span.start, done.get(tp, span.start))
        if begin < span.end:
            for slot, replica in span.readers:
                by_slot.setdefault(slot, []).append(Range(tp.topic, tp.partition, begin, span.end, replica))
    if end.slots == 0:
        ranges = [r for slot in sorted(by_slot) for r in by_slot[slot]]
        return [(-1, (piece,)) for piece in split(ranges, end.min_partitions, end.max_records)]
    inputs: list[tuple[int, tuple[Range, ...]]] = []
    total = sum(r.size for ranges in by_slot.values() for r in ranges)
    for slot in sorted(by_slot):
        ranges = by_slot[slot]
        if end.min_partitions is None and end.max_records is None:
            inputs.append((slot, tuple(ranges)))
            continue
        share = None
        if end.min_partitions is not None:
            share = max(1, round(sum(r.size for r in ranges) / total * end.min_partitions))
        inputs += [(slot, (piece,)) for piece in split(ranges, share, end.max_records)]
    return inputs


def bundles(inputs: Sequence[tuple[int, tuple[Range, ...]]], least: int) -> list[list[tuple[int, tuple[Range, ...]]]]:
    """Which of a plan's input partitions one task reads: small ones share tasks, in their order.

    Args:
        inputs: As `plan` gives them.
        least: Of fewer offsets than this there is one bundle at most; larger inputs stay alone.
    """
    whole: list[list[tuple[int, tuple[Range, ...]]]] = []
    filling: list[tuple[int, tuple[Range, ...]]] = []
    filled = 0
    for one in inputs:
        size = sum(r.size for r in one[1])
        if size >= least:
            whole.append([one])
            continue
        if not filling:
            whole.append(filling)
        filling.append(one)
        filled += size
        if filled >= least:
            filling, filled = [], 0
    return whole


def spans(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    slots: Mapping[TopicPartition, int],
    copies: Mapping[TopicPartition, Copies],
) -> dict[TopicPartition, Span]:
    """The spans of a micro-batch; `slots` says who reads what (-1: no group), `copies` who else does."""
    return {tp: Span(starts[tp], ends[tp], slots.get(tp, -1), copies.get(tp, ())) for tp in starts}
