"""Plan a micro-batch: which slot reads which ranges, in which input partitions. Pure.

A plan depends on the batch's end offset, and on the start offset where a partition's span begins before it (see
`plan`). Both are in Spark's checkpoint, so a batch that is replayed after a restart gets the same plan. Two things can
make the replay smaller, see `MicroBatches.tasks`: topics that were deleted or created again, and with `commit=sink`
what the group's other members have read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assignors.model import TopicPartition
from kafka_source.model.stream_offset import Copies, CutRule, Range, Span, StreamOffset


class PlannedInput(NamedTuple):
    """What one input partition reads.

    Attributes:
        slot: The slot that reads; -1 without a group.
        ranges: The ranges that it reads.
    """

    slot: int
    ranges: tuple[Range, ...]

    @property
    def size(self) -> int:
        """The number of offsets in all ranges."""
        return sum(r.size for r in self.ranges)


def spans(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    slots: Mapping[TopicPartition, int],
    copies: Mapping[TopicPartition, Copies],
) -> dict[TopicPartition, Span]:
    """Combine starts, ends and readers into the spans of a batch.

    Args:
        starts: The first offset of each partition.
        ends: The offset after the last one.
        slots: The slot that reads the partition; -1 where it is missing, which means no group.
        copies: The slots and replicas that read it where all copies emit rows.
    """
    return {tp: Span(starts[tp], ends[tp], slots.get(tp, -1), copies.get(tp, ())) for tp in starts}


def plan(end: StreamOffset, start: StreamOffset | None = None) -> list[PlannedInput]:
    """Return the input partitions of the batch that ends at `end`.

    Args:
        end: The batch's end offset. It has each partition's start, end and slot, and the options that cut ranges.
        start: The batch's start offset; None: that of `end` itself. Spark before 4.2 asks for the end offset without
            telling the reader the start, so after a restart `end` may begin too early. The plan leaves out what lies
            before `start`, unless the topic was created again or the group was rewound in between, or the stream's id
            says that `end` was planned from `start` (`commit=sink`): then somebody has rewound the group.
    """
    if start is not None and start.by_sink and start.stream == end.stream:
        start = None
    done = {}
    if start is not None:
        done = {
            tp: span.end
            for tp, span in start.partitions.items()
            if end.same_topic(start, tp.topic) and not _rewound(tp, start, end)
        }
    by_slot: dict[int, list[Range]] = {}
    for tp, span in sorted(end.partitions.items()):
        first = max(span.start, done.get(tp, span.start))
        if first < span.end:
            for slot, replica in span.readers:
                by_slot.setdefault(slot, []).append(Range(tp.topic, tp.partition, first, span.end, replica))
    if end.slots == 0:
        ranges = [r for slot in sorted(by_slot) for r in by_slot[slot]]
        return [
            PlannedInput(-1, (piece,)) for piece in split(ranges, end.min_partitions, end.max_records, end.cut_rule)
        ]
    inputs: list[PlannedInput] = []
    total = sum(r.size for ranges in by_slot.values() for r in ranges)
    for slot in sorted(by_slot):
        ranges = by_slot[slot]
        if end.min_partitions is None and end.max_records is None:
            inputs.append(PlannedInput(slot, tuple(ranges)))
            continue
        pieces = None
        if end.min_partitions is not None:
            pieces = max(1, round(sum(r.size for r in ranges) / total * end.min_partitions))
        inputs += [PlannedInput(slot, (piece,)) for piece in split(ranges, pieces, end.max_records, end.cut_rule)]
    return inputs


def _rewound(tp: TopicPartition, start: StreamOffset, end: StreamOffset) -> bool:
    return end.rewinds.get(tp) not in (None, start.rewinds.get(tp))


def split(
    ranges: Sequence[Range], min_partitions: int | None, max_records: int | None, rule: CutRule = 2
) -> list[Range]:
    """Cut large ranges into pieces (Spark's KafkaOffsetRangeCalculator), and drop empty ranges.

    Args:
        ranges: The ranges, in the order in which the pieces shall come.
        min_partitions: Cut until there are about this many pieces; None: do not cut for a number of pieces.
        max_records: The maximum size of a piece, in offsets; None: no maximum.
        rule: How to cut.
    """
    cut = _cut if rule == 2 else _cut_before_rule_2
    pieces = [r for r in ranges if r.size > 0]
    if max_records is not None:
        pieces = [piece for r in pieces for piece in cut(r, -(-r.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        if rule == 2:
            return _split_in_proportion(pieces, min_partitions)
        total = sum(r.size for r in pieces)
        pieces = [piece for r in pieces for piece in cut(r, max(1, round(r.size / total * min_partitions)))]
    return pieces


def _split_in_proportion(ranges: Sequence[Range], min_partitions: int) -> list[Range]:
    """Cut the ranges that are large enough, in proportion to their sizes (SPARK-36576).

    The ranges that stay whole do not count for the proportion: otherwise one small range beside a large one would cost
    the large one a piece.
    """

    def count(size: int, total: int, least: int) -> int:
        # Rounded half up, as Java's Math.round.
        return max(1, math.floor(size / total * least + 0.5))

    total = sum(r.size for r in ranges)
    whole = {r.topic_partition for r in ranges if count(r.size, total, min_partitions) == 1}
    left = total - sum(r.size for r in ranges if r.topic_partition in whole)
    least = max(1, min_partitions - sum(r.topic_partition in whole for r in ranges))
    return [
        piece for r in ranges for piece in ([r] if r.topic_partition in whole else _cut(r, count(r.size, left, least)))
    ]


def _cut(whole: Range, count: int) -> list[Range]:
    """Cut a range into pieces, the larger ones last."""
    bounds = [whole.start]
    for left in range(count, 0, -1):
        bounds.append(bounds[-1] + (whole.end - bounds[-1]) // left)
    return _between(whole, bounds)


def _cut_before_rule_2(whole: Range, count: int) -> list[Range]:
    return _between(whole, [whole.start + whole.size * i // count for i in range(count + 1)])


def _between(whole: Range, bounds: Sequence[int]) -> list[Range]:
    return [whole._replace(start=low, end=high) for low, high in itertools.pairwise(bounds) if low < high]


def bundles(inputs: Sequence[PlannedInput], min_offsets: int) -> list[list[PlannedInput]]:
    """Group small inputs, so that one Spark task reads several of them.

    Inputs of no slot become one input in their bundle: they need no credentials, so one read can fetch them all.

    Args:
        inputs: The inputs, as `plan` returns them. A bundle keeps their order.
        min_offsets: Inputs with fewer offsets share bundles until a bundle has this many; larger inputs stay alone.
    """
    found: list[list[PlannedInput]] = []
    open_bundle: list[PlannedInput] = []
    read: set[tuple[TopicPartition, int]] = set()
    filled = 0
    for one in inputs:
        if one.size >= min_offsets:
            found.append([one])
            continue
        mine = {(r.topic_partition, r.replica) for r in one.ranges}
        # One read takes at most one range of a partition's copy, so pieces of a partition do not share a bundle.
        if not open_bundle or filled >= min_offsets or read & mine:
            open_bundle, read, filled = [], set(), 0
            found.append(open_bundle)
        open_bundle.append(one)
        read |= mine
        filled += one.size
    return [_joined(bundle) if bundle[0].slot < 0 else bundle for bundle in found]


def _joined(bundle: list[PlannedInput]) -> list[PlannedInput]:
    return [PlannedInput(-1, tuple(r for one in bundle for r in one.ranges))]
