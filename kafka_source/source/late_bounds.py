"""Late binding of a batch read without a group: `earliest` and `latest` mean what they mean when an action runs.

Spark plans a DataFrame once. Like Spark's own source (`KafkaSourceRDD`), the plan keeps the two words, and each task
looks its offsets up. A DataFrame or a view that is used twice therefore reads what is there at the time of each action.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafka_source.cluster.lookup import Cluster
from kafka_source.model.stream_offset import Range
from kafka_source.source.plan import PlannedInput
from kafka_source.source.start_and_end import BatchBounds, start_after_end


def mark(planned: Sequence[PlannedInput], bounds: BatchBounds) -> list[PlannedInput]:
    """Return the plan of a batch without a group with its late starts and ends.

    A partition that is empty now gets an input too if its end is late, because it may have records later.

    Args:
        planned: The plan with the offsets of now; each input has one range.
        bounds: The offsets of now, and which of them are late.
    """
    ranges = [r for one in planned for r in one.ranges]
    read = {r.topic_partition for r in ranges}
    ranges += [Range(*tp, bounds.starts[tp], bounds.ends[tp]) for tp in bounds.late_ends if tp not in read]
    return [PlannedInput(-1, (_with_late_bounds(r, bounds),)) for r in sorted(ranges)]


def _with_late_bounds(r: Range, bounds: BatchBounds) -> Range:
    tp = r.topic_partition
    is_late, is_first, is_last = tp in bounds.late_starts, r.start == bounds.starts[tp], r.end == bounds.ends[tp]
    return r._replace(
        from_earliest=is_late and is_first,
        # Retention may delete a part of any piece between two actions.
        skip_deleted=is_late and not is_first,
        to_latest=is_last and tp in bounds.late_ends,
    )


def is_unbound(ranges: Collection[Range]) -> bool:
    """Return whether the ranges contain no planned offset, so that they mean the same in a topic created again."""
    return all(r.from_earliest and r.to_latest for r in ranges)


def resolve(ranges: Collection[Range], cluster: Cluster, *, read_committed: bool) -> tuple[Range, ...]:
    """Return the ranges with the offsets of now.

    Args:
        ranges: The ranges of a task, at least one with a late bound.
        cluster: Where to look up offsets.
        read_committed: Whether the latest offset is the last stable one.

    Raises:
        InvalidConfigurationError: A start that the options give lies beyond the latest offset.
        KafkaGroupError: The brokers refuse, or do not answer in time.
    """
    earliest, latest = cluster.bounds(
        [r.topic_partition for r in ranges if r.from_earliest or r.skip_deleted],
        [r.topic_partition for r in ranges if r.to_latest],
        read_committed=read_committed,
    )
    found = []
    for r in ranges:
        tp = r.topic_partition
        start = earliest[tp] if r.from_earliest else max(r.start, earliest.get(tp, r.start))
        end = latest.get(tp, r.end)
        if r.to_latest and not (r.from_earliest or r.skip_deleted) and start > end:
            raise start_after_end(tp, start, end)
        found.append(Range(*tp, start, end, r.replica))
    return tuple(found)


def has_late_bounds(ranges: Collection[Range]) -> bool:
    """Return whether a task has to look up offsets before it can read these ranges."""
    return any(r.from_earliest or r.skip_deleted or r.to_latest for r in ranges)
