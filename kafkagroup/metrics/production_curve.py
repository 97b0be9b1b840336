"""When a partition had how many records: from that, the time of any offset without asking the brokers."""

from __future__ import annotations

from bisect import bisect_right


class ProductionCurve:
    """The ends of one partition's log as triggers saw them, over time.

    The time of an offset between two ends is interpolated, as Kafka Lag Exporter does it; it is as exact as triggers
    are frequent.

    Args:
        most_points: How many ends to remember; older ones become coarser. None: all.
    """

    def __init__(self, most_points: int | None = 256) -> None:
        self._most = most_points
        self._times: list[float] = []
        self._ends: list[int] = []

    def observe(self, at: float, end: int) -> None:
        """Note that the log ended at `end` at this time, in seconds since 1970."""
        if self._ends and end < self._ends[-1]:
            # The topic was created again, or its log was cut: what was seen before says nothing any more.
            self._times, self._ends = [], []
        elif self._times and at <= self._times[-1]:
            return
        if len(self._ends) > 1 and self._ends[-2] == end:
            # Nothing was written: move the end of the flat part.
            self._times[-1] = at
            return
        self._times.append(at)
        self._ends.append(end)
        if self._most is not None and len(self._ends) > self._most:
            # The older half becomes coarser.
            half = self._most // 2
            self._times[1:half] = self._times[2:half:2]
            self._ends[1:half] = self._ends[2:half:2]

    def forget_before(self, offset: int) -> None:
        """Drop what is needed only for offsets before this one."""
        first = max(0, bisect_right(self._ends, offset) - 1)
        del self._times[:first], self._ends[:first]

    def saw(self, offset: int) -> bool:
        """Return whether the record at this offset was written after the first look."""
        return bool(self._ends) and offset >= self._ends[0]

    def written_at(self, offset: int) -> float | None:
        """Return about when the record at this offset was written, in seconds since 1970.

        None: the log has not reached it yet. For an offset from before the first look the time is extrapolated by the
        rate of what was seen since; without such a rate it is the time of the first look, so the record is older.
        """
        if not self._ends or offset >= self._ends[-1]:
            return None
        # The record at `offset` made the end pass from `offset` to `offset + 1`.
        after = bisect_right(self._ends, offset)
        if after == 0:
            span, produced = self._times[-1] - self._times[0], self._ends[-1] - self._ends[0]
            early = (self._ends[0] - offset) * span / produced if produced else 0.0
            return self._times[0] - early
        t0, t1 = self._times[after - 1], self._times[after]
        e0, e1 = self._ends[after - 1], self._ends[after]
        return t0 + (t1 - t0) * (offset - e0) / (e1 - e0)

    def age(self, position: int, now: float) -> float:
        """Return how many seconds ago the record at `position` was written; 0 if there is none yet."""
        written = self.written_at(position)
        return 0.0 if written is None else max(0.0, now - written)
