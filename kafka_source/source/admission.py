"""Decide how far a micro-batch reads: the options' limits, the quota, and the end of an AvailableNow run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.options import ReadOptions
from kafka_source.quota import batch_sizing
from kafka_source.quota.server import StreamQuota


def available_ends(
    starts: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int] | None,
) -> dict[TopicPartition, int]:
    """Return how far each partition can be read; never less than its start.

    Args:
        starts: The first offset to read of each partition.
        latest: The latest offset of at least these partitions.
        target: Where an AvailableNow run ends; None: another trigger.
    """
    # A partition that was created after an AvailableNow run began is left to the next run.
    ends = {tp: latest[tp] if target is None else min(latest[tp], target.get(tp, 0)) for tp in starts}
    return {tp: max(start, ends[tp]) for tp, start in starts.items()}


def rate_limit(
    available: Mapping[TopicPartition, tuple[int, int]], max_offsets: int | None
) -> dict[TopicPartition, int]:
    """Return where each partition ends if a micro-batch may have `max_offsets` offsets.

    Each partition gets a share in proportion to its available offsets. A partition with new offsets gets at least one
    of them, so that it does not starve (Spark's KafkaMicroBatchStream.rateLimit); the batch may therefore exceed the
    limit by one offset for each partition.

    Args:
        available: The first offset to read and the end of each partition.
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
    # In floating point and in this order, so that a share which is off by one is off as in Spark.
    share = max_offsets * (size / total)
    return min(size, math.ceil(share) if share < 1 else math.floor(share))


class Admission:
    """Admit offsets to the micro-batches of one stream.

    Args:
        options: `maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay` are the
            limits.
        quota: The stream's quota, which also knows the size of records; None: no quota, and no size is known.
        clock: The time in seconds; only differences count.
    """

    def __init__(
        self, options: ReadOptions, quota: StreamQuota | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_offsets = options.max_offsets_per_trigger
        self._max_bytes = options.max_bytes_per_trigger
        self._min_offsets = options.min_offsets_per_trigger
        self._max_delay = options.max_trigger_delay / 1000
        self._quota = quota
        self._clock = clock
        self._target: dict[TopicPartition, int] | None = None
        self._without_target: frozenset[TopicPartition] = frozenset()
        self._last_batch = float("-inf")

    def stop_at(self, target: Mapping[TopicPartition, int], unknown: Collection[TopicPartition] = ()) -> None:
        """Admit nothing beyond these offsets, where an AvailableNow run ends.

        Args:
            target: The end of each partition.
            unknown: The partitions that have no leader. The run ends there where they end when they have one.
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
        slots: Mapping[TopicPartition, int],
        *,
        limited: bool,
    ) -> dict[TopicPartition, int] | None:
        """Return where each partition of the next micro-batch ends; None: wait for more records.

        Args:
            starts: The first offset to read of each partition.
            latest: The latest offset of each partition; a partition without a leader is left out, and ends at its
                start.
            slots: The slot that reads each partition, whose quota may be its own.
            limited: Apply the options' limits and the quota.
        """
        if self._target is not None:
            self._target |= {tp: latest[tp] for tp in self._without_target & latest.keys()}
            self._without_target -= latest.keys()
        latest = {**starts, **latest}
        ends = available_ends(starts, latest, self._target)
        if not limited:
            return ends
        if self._waits_for_more(sum(ends[tp] - start for tp, start in starts.items())):
            return None
        ends = rate_limit({tp: (start, ends[tp]) for tp, start in starts.items()}, self._max_offsets)
        if self._max_bytes is not None:
            sizes = {} if self._quota is None else self._quota.record_bytes()
            ends = batch_sizing.admit(starts, ends, sizes, (self._max_bytes, math.inf))
        return ends if self._quota is None else self._quota.admit(starts, ends, slots)

    def batch_planned(self) -> None:
        """Note that a micro-batch is planned now: `maxTriggerDelay` starts again."""
        self._last_batch = self._clock()

    def _waits_for_more(self, new_offsets: int) -> bool:
        # An AvailableNow run has to end, so it never waits.
        if self._min_offsets is None or self._target is not None:
            return False
        return new_offsets < self._min_offsets and self._clock() - self._last_batch < self._max_delay
