"""How many offsets a micro-batch may have so that its trigger takes a wished time (`targetTriggerDuration`). Pure.

The next micro-batch has as many offsets as the last one would have had in that time: offsets x target / duration. A
trigger has a part that does not depend on the number of its offsets, so a short one says less than the truth. Two sizes
tell about how long that part takes, and the size grows faster by it. It comes near to its goal from below, and does not
swing. Nothing is kept over a restart, which may have changed the speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

FIRST_OFFSETS = 1000
"""The first micro-batch of a run: little enough for slow work on each record, and measured before more is read."""

MAX_CHANGE = 10.0
"""A micro-batch is at most so many times as large or as small as the last: one odd trigger does not decide."""

_NEAR = 0.25
"""So near to the goal, half of the difference is taken for chance."""

_COMPARABLE = 2.0
"""Two micro-batches of which one is so many times as large tell how long a trigger takes that reads nothing."""

_OVER_FIXED = 1.25
"""A trigger gets so many times what it takes at least: smaller micro-batches would not be quicker, only read less."""

_TRUSTED_TRIGGERS = 20
"""For so many triggers a fixed time above the target is believed. Then half a micro-batch shows whether it still is."""

_WAITED_SECONDS = 0.1
"""With an interval, Spark starts a trigger that waited at a multiple of it since 1970, and asks us soon after."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one micro-batch took.

    Attributes:
        offsets: The number of its offsets, above 0.
        seconds: From the moment when it was planned until Spark asked for the next one: with an interval of triggers,
            also the time in which Spark waited for it.
        reading: From the moment when it was planned to the end of its last task; None: unknown.
        asked_at: When Spark asked for the next one, in seconds since 1970.
    """

    offsets: int
    seconds: float
    reading: float | None = None
    asked_at: float = 0.5

    @property
    def may_have_waited(self) -> bool:
        """Whether Spark may have waited for the interval of its triggers: the next one started at a whole second."""
        return self.asked_at % 1 < _WAITED_SECONDS


@dataclass(frozen=True, slots=True)
class TriggerSize:
    """How many offsets the next micro-batch may have, and what the ones before have shown.

    Attributes:
        target: How long a trigger should take, in seconds.
        limit: The most offsets of the next micro-batch.
        after_reading: How many times as long as its reading a trigger takes with what comes after, such as the sink's
            commit.
        fixed: Seconds that a trigger takes however few offsets it has, as last measured; 0: too few to matter.
        compared: The offsets of an earlier micro-batch, and the seconds of its trigger, for `fixed`.
        since_compared: The number of triggers since `fixed` was measured.
    """

    target: float
    limit: int = FIRST_OFFSETS
    after_reading: float = 1.0
    fixed: float = 0.0
    compared: tuple[int, float] | None = None
    since_compared: int = 0

    @property
    def goal(self) -> float:
        """How long the next trigger shall take, in seconds: the target, unless a trigger cannot be so short."""
        return max(self.target, _OVER_FIXED * self.fixed)

    def after(self, batch: Measured) -> TriggerSize:
        """Return the size of the next micro-batch."""
        learned = self._with_after_reading(batch)._with_fixed(batch)
        goal, seconds = learned.goal, learned._work(batch)
        change = goal / max(seconds, 1e-3)
        if goal == self.target and 1 - _NEAR <= seconds / goal <= 1 + _NEAR:
            change = math.sqrt(change)
        elif seconds < goal:
            # Beyond the fixed part the time grows with the offsets. That part is an estimate: half of it is believed.
            beyond = (goal - learned.fixed) / max(seconds - learned.fixed, 1e-3)
            change = math.sqrt(change * min(MAX_CHANGE, beyond))
        elif goal > self.target and learned.since_compared >= _TRUSTED_TRIGGERS:
            change = 1 / _COMPARABLE
        change = min(MAX_CHANGE, max(1 / MAX_CHANGE, change))
        # Rounded down: 13 offsets that should be 12.5 would stay 13, and their trigger too long, for ever.
        return replace(learned, limit=max(1, math.floor(batch.offsets * change)))

    def _work(self, batch: Measured) -> float:
        """Return the seconds of a trigger without those in which Spark waited for the interval."""
        if not batch.may_have_waited:
            return batch.seconds
        if batch.reading is None:
            # Somewhere below what was measured. This may be above the target by waiting alone, so it does not count.
            return min(batch.seconds, self.target)
        return min(batch.seconds, batch.reading * self.after_reading)

    def _with_after_reading(self, batch: Measured) -> TriggerSize:
        if batch.reading is None or batch.may_have_waited:
            return self
        return replace(self, after_reading=max(1.0, batch.seconds / max(batch.reading, 1e-3)))

    def _with_fixed(self, batch: Measured) -> TriggerSize:
        now = batch.offsets, self._work(batch)
        before = self.compared or now
        (few, less), (many, more) = sorted((before, now))
        if many >= _COMPARABLE * few and more >= (1 - _NEAR) * less:
            # The line through both, at 0 offsets. Where the larger one was much quicker, the speed has changed.
            fixed = min(less, max(0.0, (less * many - more * few) / (many - few)))
            return replace(self, fixed=fixed, compared=now, since_compared=0)
        # Sizes that shrink slowly are compared with the first of them, as long as their triggers are not longer, and
        # not far shorter than in proportion: then the speed has changed, and the first one says nothing any more.
        in_proportion = before[1] * now[0] / before[0]
        shrinks = now[0] < before[0] and (1 - _NEAR) * in_proportion <= now[1] <= before[1]
        return replace(self, compared=before if shrinks else now, since_compared=self.since_compared + 1)
