"""The number of offsets that makes a trigger last its target time (`targetTriggerDuration`). Pure.

A trigger takes `fixed + cost x offsets` seconds: a line through the recent micro-batches, whose slope is the median of
the slopes between pairs of them (Theil-Sen). So one trigger of unusual length does not move the line. The next
micro-batch has as many offsets as the line allows. If all recent micro-batches have similar sizes, a larger micro-batch
shows which part of the time is fixed. A restart may change the speed, so it discards all measurements.
"""

import math
from dataclasses import dataclass, replace
from statistics import median

FIRST_OFFSETS = 1000
"""The size of a run's first micro-batch, small enough for slow work on each record."""

MAX_CHANGE = 10.0
"""The largest factor from one micro-batch's size to the next, because the line does not hold far beyond its points."""

_NEAR = 0.25
"""A trigger meets its goal if its duration differs from the goal by at most this part of the goal."""

_ODD = 1.5
"""A trigger is odd if its duration is off the line by more than this factor. Two in a row mean a changed speed."""

_COMPARABLE = 1.5
"""Two micro-batches give a slope only if one is at least this many times as large as the other."""

_REMEMBERED = 10
"""The number of micro-batches through which the line goes."""

_PROBE_AFTER = 3
"""After this number of micro-batches of similar size that miss the goal, the next micro-batch has twice the size."""

_PROBE_AGAIN = 30
"""The number of triggers after which the measured fixed part is too old."""

_OVER_FIXED = 1.25
"""The shortest trigger, as a multiple of its fixed part, because smaller micro-batches would hardly be faster."""

_WAITED_SECONDS = 0.1
"""After a wait, Spark calls the source at most this time after a multiple (since 1970) of the trigger interval."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The duration and size of one micro-batch.

    Attributes:
        offsets: The number of the micro-batch's offsets, above 0.
        seconds: The seconds from the micro-batch's plan to Spark's next request, with Spark's wait for the interval.
        reading: The seconds from the micro-batch's plan to the end of its last task; None: unknown.
        asked_at: The time of Spark's request for the next micro-batch, in seconds since 1970.
    """

    offsets: int
    seconds: float
    reading: float | None = None
    asked_at: float = 0.5

    @property
    def may_have_waited(self) -> bool:
        """Whether Spark may have waited for its interval, because the next trigger started at a whole second."""
        return self.asked_at % 1 < _WAITED_SECONDS


@dataclass(frozen=True, slots=True)
class Line:
    """The duration of a trigger: `fixed + cost x offsets`.

    Attributes:
        fixed: Seconds independent of the number of offsets.
        cost: Seconds for each offset.
    """

    fixed: float
    cost: float

    def seconds(self, offsets: int) -> float:
        """Return the duration of a trigger with this number of offsets."""
        return self.fixed + self.cost * offsets


_Point = tuple[int, float]
"""The offsets of a micro-batch, and the seconds of its trigger."""


@dataclass(frozen=True, slots=True)
class TriggerSize:
    """The number of offsets of the next micro-batch, from the durations of previous micro-batches.

    Attributes:
        target: The target duration of a trigger, in seconds.
        limit: The maximum number of offsets of the next micro-batch.
        after_reading: The duration of a trigger, with the sink's commit, divided by the duration of its reading.
        fixed: The last known fixed part of a trigger, in seconds.
        points: The recent micro-batches, the latest last.
        unknown_for: The number of triggers since the fixed part was last known.
        least: The duration of the smallest possible micro-batch, if longer than the target; else None.
    """

    target: float
    limit: int = FIRST_OFFSETS
    after_reading: float = 1.0
    fixed: float = 0.0
    points: tuple[_Point, ...] = ()
    unknown_for: int = _PROBE_AGAIN
    least: float | None = None

    @property
    def goal(self) -> float:
        """The wanted duration of the next trigger, in seconds: the target, unless a trigger cannot be so short."""
        return max(self.target, _OVER_FIXED * self.fixed)

    def after(self, batch: Measured) -> "TriggerSize":
        """Return the size of the next micro-batch."""
        size = replace(self, after_reading=self._after_reading(batch))
        latest = batch.offsets, max(size._work(batch), 1e-3)
        if latest[0] < self.limit / 2 and latest[1] <= self.goal:
            # A quiet topic: a micro-batch far below the limit does not contradict the limit.
            return size
        # Earlier points of triggers that waited are too short if the time after the reading was unknown.
        earlier = self.points if size.after_reading <= _ODD * self.after_reading else ()
        points = _without_former_speed((*earlier, latest), self.fixed)[-_REMEMBERED:]
        line, known = line_through(points, self.fixed), bool(_slopes(points))
        size = replace(size, points=points, fixed=line.fixed, unknown_for=0 if known else self.unknown_for + 1)
        return size._with_limit(latest, line, may_be_smaller=1 < latest[0] <= self.limit)

    def _with_limit(self, latest: _Point, line: Line, *, may_be_smaller: bool) -> "TriggerSize":
        offsets, seconds = latest
        wanted = (self.goal - line.fixed) / max(line.cost, 1e-12)
        usual = median(seconds for _, seconds in self.points[-_PROBE_AFTER:])
        too_long = usual > (1 + _NEAR) * self.goal and not may_be_smaller
        too_short = usual < (1 - _NEAR) * self.goal and wanted < offsets + 1 <= 1 / _NEAR
        if (too_long or too_short) and len(self.points) >= _PROBE_AFTER and self.unknown_for >= _PROBE_AGAIN:
            wanted = max(wanted, 2 * offsets)
        elif seconds > _ODD * self.goal:
            wanted = min(wanted, offsets * self.goal / seconds)
        wanted = min(offsets * MAX_CHANGE, max(offsets / MAX_CHANGE, wanted))
        least = usual if too_long else line.fixed if self.goal > self.target else None
        # 1e-6: a whole number stays whole despite the error of floating point.
        return replace(self, limit=max(1, math.floor(wanted + 1e-6)), least=least)

    def _work(self, batch: Measured) -> float:
        """Return the seconds of a trigger without Spark's wait for the interval."""
        if not batch.may_have_waited:
            return batch.seconds
        if batch.reading is None:
            # Waiting alone may make the measured duration exceed the target, so at most the target counts.
            return min(batch.seconds, self.target)
        return min(batch.seconds, batch.reading * self.after_reading)

    def _after_reading(self, batch: Measured) -> float:
        if batch.reading is None or batch.may_have_waited:
            return self.after_reading
        return max(1.0, batch.seconds / max(batch.reading, 1e-3))


def line_through(points: tuple[_Point, ...], fixed: float) -> Line:
    """Return the line through these micro-batches; if their sizes are alike, the line has the given fixed part."""
    if slopes := _slopes(points):
        slope = median(slopes)
        fixed = median(seconds - slope * offsets for offsets, seconds in points)
    fixed = min(max(0.0, fixed), *(seconds for _, seconds in points))
    return Line(fixed, median((seconds - fixed) / offsets for offsets, seconds in points))


def _slopes(points: tuple[_Point, ...]) -> list[float]:
    return [
        (seconds - less) / (offsets - few)
        for few, less in points
        for offsets, seconds in points
        if offsets >= _COMPARABLE * few
    ]


def _without_former_speed(points: tuple[_Point, ...], fixed: float) -> tuple[_Point, ...]:
    if len(points) < 3:
        return points
    line = line_through(points[:-2], fixed)
    odd = [seconds / max(line.seconds(offsets), 1e-9) for offsets, seconds in points[-2:]]
    return points[-2:] if min(odd) > _ODD or max(odd) < 1 / _ODD else points
