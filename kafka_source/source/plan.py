"""Decide how far a batch reads within its limits (options, quota, AvailableNow), and cut ranges for tasks. No I/O.

`Admission` has a clock and the time of the last plan; everything else is pure.

A plan depends on the batch's end offset. If a partition's span begins too early, it also depends on the start offset
(see `plan`). Spark's checkpoint has both offsets, so a batch that is replayed after a restart has the same plan; see
`MicroBatches.tasks` for the exceptions.

Spark plans a batch's DataFrame once. As in Spark's own source (`KafkaSourceRDD`), the plan of a batch without a group
keeps the words `earliest` and `latest`, and each task looks their offsets up (`mark_late_bounds`). So each action on a
DataFrame or a view reads the records that exist at the time of the action.
"""

import itertools
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from assignors.model import TopicPartition
from kafka_source.model.stream_offset import Copies, PlannedInput, Range, Span, StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.quota import batch_sizing
from kafka_source.quota.server import StreamQuota
from kafka_source.quota.trigger_size import Measured, TriggerSize
from kafka_source.source.start_and_end import BatchBounds

# Spark takes much longer to start a task than the task takes to read this many records.
_DEFAULT_MIN_RECORDS_PER_TASK = 1000

log = logging.getLogger(__name__)


def available_ends(
    starts: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, int]:
    """Return the end up to which each partition can be read; never less than its start.

    Args:
        starts: The first offset to read of each partition.
        latest: The latest offset of at least these partitions.
        target: The ends of an AvailableNow run; None: the query has another trigger.
    """
    # A partition that was created after an AvailableNow run began is left to the next run.
    ends = {tp: latest[tp] if target is None else min(latest[tp], target.get(tp, 0)) for tp in starts}
    return {tp: max(start, ends[tp]) for tp, start in starts.items()}


def rate_limit(
    available: Mapping[TopicPartition, tuple[int, int]], max_offsets: int | None
) -> dict[TopicPartition, int]:
    """Return the end of each partition in a micro-batch of at most `max_offsets` offsets.

    Each partition gets a share in proportion to its available offsets. A partition with new offsets gets at least one
    offset, so that it does not starve (Spark's KafkaMicroBatchStream.rateLimit). The batch may therefore exceed the
    limit by one offset for each partition.

    Args:
        available: For each partition, the first offset to read and the end.
        max_offsets: The limit, in offsets; None: no limit.
    """
    sizes = {tp: max(0, end - start) for tp, (start, end) in available.items()}
    if max_offsets is None:
        return {tp: start + sizes[tp] for tp, (start, _) in available.items()}
    total = sum(sizes.values())
    return {tp: start + _share(max_offsets, sizes[tp], total) for tp, (start, _) in available.items()}


def _share(max_offsets: int, size: int, total: int) -> int:
    if size == 0:
        return 0
    # Compute in floating point and in this order, so that shares have Spark's rounding errors.
    share = max_offsets * (size / total)
    return min(size, math.ceil(share) if share < 1 else math.floor(share))


class Admission:
    """Admit offsets to the micro-batches of one stream.

    Args:
        options: The limits: `maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `targetTriggerDuration`,
            `minOffsetsPerTrigger` and `maxTriggerDelay`.
        quota: The stream's quota, which knows the sizes of records and when tasks end; None: no quota.
        clock: The time in seconds; only differences count.
        wall_clock: The time in seconds since 1970.
    """

    def __init__(
        self,
        options: ReadOptions,
        quota: StreamQuota | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_offsets = options.max_offsets_per_trigger
        self._max_bytes = options.max_bytes_per_trigger
        self._min_offsets = options.min_offsets_per_trigger
        self._max_delay = options.max_trigger_delay / 1000
        target = options.target_trigger_duration
        self._size = None if target is None else TriggerSize(target / 1000)
        self._quota = quota
        self._clock, self._wall_clock = clock, wall_clock
        # When the current micro-batch was planned, and its number of offsets; None: no micro-batch is measured.
        self._under_way: tuple[float, int] | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._without_target: frozenset[TopicPartition] = frozenset()
        self._last_batch = float("-inf")

    def stop_at(self, target: Mapping[TopicPartition, int], unknown: Collection[TopicPartition] = ()) -> None:
        """Admit nothing beyond these offsets, at which an AvailableNow run ends.

        Args:
            target: The end of each partition.
            unknown: The partitions without a leader; each end is looked up once its partition has a leader.
        """
        self._target, self._without_target = dict(target), frozenset(unknown)

    @property
    def runs_to_an_end(self) -> bool:
        """Whether this is an AvailableNow run, which must not end before it has read everything."""
        return self._target is not None

    def ends(
        self,
        starts: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, int] | None = None,
        *,
        limited: bool,
        may_wait: bool = True,
    ) -> dict[TopicPartition, int]:
        """Return the end of each partition in the next micro-batch; the starts, while the query waits for more records.

        Args:
            starts: The first offset to read of each partition.
            latest: The latest offset of each partition with a leader; other partitions end at their start.
            bounds: The largest ends, see `Alignment`. `minOffsetsPerTrigger` also counts offsets beyond these ends.
            limited: Apply the options' limits and the quota.
            may_wait: Whether `minOffsetsPerTrigger` may wait for more records.
        """
        ends = self.available(starts, latest)
        waits = limited and may_wait and self._waits_for_more(sum(ends[tp] - start for tp, start in starts.items()))
        if bounds:
            ends |= {tp: min(ends[tp], bound) for tp, bound in bounds.items()}
        if waits:
            return dict(starts)
        if not limited:
            return ends
        ends = rate_limit({tp: (start, ends[tp]) for tp, start in starts.items()}, self.max_offsets)
        if self._max_bytes is not None:
            sizes = {} if self._quota is None else self._quota.record_bytes()
            ends = batch_sizing.admit(starts, ends, sizes, (self._max_bytes, math.inf))
        return ends if self._quota is None else self._quota.admit(starts, ends)

    def available(
        self, starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the end of each partition before limits apply; arguments as in `ends`."""
        if self._target is not None:
            self._target |= {tp: latest[tp] for tp in self._without_target & latest.keys()}
            self._without_target -= latest.keys()
        return available_ends(starts, {**starts, **latest}, self._target)

    @property
    def max_offsets(self) -> int | None:
        """The maximum number of offsets in the next micro-batch, by options and measured triggers; None: no limit."""
        if self._size is None:
            return self._max_offsets
        size = max(self._size.limit, self._min_offsets or 0)
        return size if self._max_offsets is None else min(size, self._max_offsets)

    def trigger_started(self) -> None:
        """Record that Spark requests the next micro-batch, so the last micro-batch is done."""
        if self._size is None or self._under_way is None:
            return
        (since, offsets), self._under_way = self._under_way, None
        now, ended = self._clock(), None if self._quota is None else self._quota.tasks_done_at()
        reading = None if ended is None or ended <= since else ended - since
        before, self._size = self._size, self._size.after(Measured(offsets, now - since, reading, self._wall_clock()))
        if self._size.least is not None and before.least is None:
            log.warning(
                "A trigger takes about %.1f s however few records it has, so targetTriggerDuration (%g s) cannot be "
                "met; set it to twice that time or more",
                self._size.least,
                self._size.target,
            )

    def batch_planned(self, offsets: int) -> None:
        """Record that a micro-batch with this number of offsets is planned, and restart `maxTriggerDelay`."""
        self._last_batch = self._clock()
        self._under_way = (self._last_batch, offsets) if offsets else None

    def _waits_for_more(self, new_offsets: int) -> bool:
        # An AvailableNow run has to end, so it never waits.
        if self._min_offsets is None or self._target is not None:
            return False
        return new_offsets < self._min_offsets and self._clock() - self._last_batch < self._max_delay


# ---- ranges and input partitions


def spans(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    slots: Mapping[TopicPartition, int],
    copies: Mapping[TopicPartition, Copies],
) -> dict[TopicPartition, Span]:
    """Combine starts, ends and readers into the spans of a batch.

    Args:
        starts: The first offset of each partition.
        ends: The offset after the last record.
        slots: The slot that reads each partition; a partition without a slot gets -1, as without a group.
        copies: The slots and replicas that read each partition, if all copies emit rows.
    """
    return {tp: Span(starts[tp], ends[tp], slots.get(tp, -1), copies.get(tp, ())) for tp in starts}


def plan(end: StreamOffset, start: StreamOffset | None = None) -> list[PlannedInput]:
    """Return the input partitions of the batch that ends at `end`.

    Args:
        end: The batch's end offset, with each partition's start, end and slot, and the options that cut ranges.
        start: The batch's start offset; None: the starts in `end` count. Spark before 4.2 requests the end offset
            without the start, so after a restart spans in `end` may begin too early. The plan leaves out records before
            `start`, unless the topic was created again or the group was rewound. With `commit=sink` the starts in `end`
            count if the stream's id shows that `end` was planned from `start`.
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
            epoch = end.epochs.get(tp, -1)
            for slot, replica in span.readers:
                by_slot.setdefault(slot, []).append(
                    Range(tp.topic, tp.partition, first, span.end, replica, epoch=epoch)
                )
    if end.slots == 0:
        ranges = [r for slot in sorted(by_slot) for r in by_slot[slot]]
        return [PlannedInput(-1, (piece,)) for piece in split(ranges, end.min_partitions, end.max_records)]
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
        inputs += [PlannedInput(slot, (piece,)) for piece in split(ranges, pieces, end.max_records)]
    return inputs


def _rewound(tp: TopicPartition, start: StreamOffset, end: StreamOffset) -> bool:
    return end.rewinds.get(tp) not in (None, start.rewinds.get(tp))


def split(ranges: Sequence[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Cut large ranges into pieces (Spark's KafkaOffsetRangeCalculator), and drop empty ranges.

    Args:
        ranges: The ranges; the pieces keep their order.
        min_partitions: Cut until there are about this many pieces; None: no minimum.
        max_records: The maximum size of a piece, in offsets; None: no maximum.
    """
    pieces = [r for r in ranges if r.size > 0]
    if max_records is not None:
        pieces = [piece for r in pieces for piece in _cut(r, -(-r.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        return _split_in_proportion(pieces, min_partitions)
    return pieces


def _split_in_proportion(ranges: Sequence[Range], min_partitions: int) -> list[Range]:
    """Cut the ranges that are large enough, in proportion to their sizes (SPARK-36576).

    The proportions leave out ranges that stay whole; otherwise small ranges would leave fewer pieces for large ranges.
    """

    def count(size: int, total: int, pieces: int) -> int:
        # Rounded half up, as Java's Math.round.
        return max(1, math.floor(size / total * pieces + 0.5))

    total = sum(r.size for r in ranges)
    whole = {r.topic_partition for r in ranges if count(r.size, total, min_partitions) == 1}
    left = total - sum(r.size for r in ranges if r.topic_partition in whole)
    pieces = max(1, min_partitions - sum(r.topic_partition in whole for r in ranges))
    return [
        piece for r in ranges for piece in ([r] if r.topic_partition in whole else _cut(r, count(r.size, left, pieces)))
    ]


def _cut(whole: Range, count: int) -> list[Range]:
    """Cut a range into pieces, the larger pieces last."""
    bounds = [whole.start]
    for left in range(min(count, whole.size), 0, -1):
        bounds.append(bounds[-1] + (whole.end - bounds[-1]) // left)
    return [whole._replace(start=low, end=high) for low, high in itertools.pairwise(bounds) if low < high]


def bundles(inputs: Sequence[PlannedInput], min_offsets: int) -> list[list[PlannedInput]]:
    """Group small inputs, so that one Spark task reads several of them.

    Inputs without a slot need no credentials, so a bundle merges them into one input, for one read.

    Args:
        inputs: The inputs, as `plan` returns them. Bundles keep the inputs' order.
        min_offsets: Inputs with fewer offsets share a bundle until it has this many offsets; larger inputs stay alone.
    """
    found: list[list[PlannedInput]] = []
    open_bundle: list[PlannedInput] = []
    read: set[tuple[TopicPartition, int]] = set()
    filled = 0
    for one in inputs:
        if one.size >= min_offsets:
            found.append([one])
            continue
        reads = {(r.topic_partition, r.replica) for r in one.ranges}
        # A read has at most one range of a partition's copy, so pieces of a partition do not share a bundle.
        if not open_bundle or filled >= min_offsets or read & reads:
            open_bundle, read, filled = [], set(), 0
            found.append(open_bundle)
        open_bundle.append(one)
        read |= reads
        filled += one.size
    return [_joined(bundle) if bundle[0].slot < 0 else bundle for bundle in found]


def _joined(bundle: list[PlannedInput]) -> list[PlannedInput]:
    return [PlannedInput(-1, tuple(r for one in bundle for r in one.ranges))]


def min_records_per_task(options: ReadOptions) -> int:
    """Return `min.records.per.task`; by default inputs share tasks only if no option cuts ranges."""
    if options.min_records_per_task is not None:
        return options.min_records_per_task
    cuts = options.min_partitions is not None or options.max_records_per_partition is not None
    return 1 if cuts else _DEFAULT_MIN_RECORDS_PER_TASK


# ---- bounds that each action of a batch looks up


def mark_late_bounds(planned: Sequence[PlannedInput], bounds: BatchBounds) -> list[PlannedInput]:
    """Mark the starts and ends that each action looks up, in the plan of a batch without a group.

    If the end of an empty partition is late, it gets an input too, because it may have records when the task runs.

    Args:
        planned: The plan with the current offsets; each input has one range.
        bounds: The current offsets, with the partitions whose bounds are late.
    """
    ranges = [r for one in planned for r in one.ranges]
    read = {r.topic_partition for r in ranges}
    ranges += [Range(*tp, bounds.starts[tp], bounds.ends[tp]) for tp in bounds.late_ends if tp not in read]
    # Tasks that wait for a leader come last, so that other tasks read first.
    ordered = sorted(ranges, key=lambda r: (r.topic_partition in bounds.leaderless, r))
    return [PlannedInput(-1, (_with_late_bounds(r, bounds),)) for r in ordered]


def _with_late_bounds(r: Range, bounds: BatchBounds) -> Range:
    tp = r.topic_partition
    is_late, is_first, is_last = tp in bounds.late_starts, r.start == bounds.starts[tp], r.end == bounds.ends[tp]
    return r._replace(
        from_earliest=is_late and is_first,
        # Retention may delete a part of any piece between two actions.
        skip_deleted=is_late and not is_first,
        to_latest=is_last and tp in bounds.late_ends,
    )
