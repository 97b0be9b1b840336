"""A bound that is kept: how long to wait before the next fetch. Pure: it is told the time.

KIP-13 bounds the average over a whole window, so a reader that has been idle, as between two micro-batches, may catch
up within it. Here it does so at a pace, and not in a burst, and no few seconds have much more than the bound.
"""

from __future__ import annotations

from collections import deque

from kafka_source.quota.bounds import Bounds
from kafka_source.quota.sensor import Sensor

LATE_SECONDS = 0.025
"""A fetch may be so late, by its own way to the broker and back, and the next ones still come as planned."""

Amounts = tuple[float, float]
"""Bytes and records."""

CATCH_UP = 1.04
"""A reader that is behind goes so much faster than the bound."""

SMOOTH_SECONDS = 5.0
"""Any so many seconds are kept close to the bound, whatever the window is."""

# What they have of it at most, less a fetch that comes late into them.
_SMOOTH, _LEAST_SMOOTH = 1.048, 1.03
_SMOOTH_SAMPLES = 100

# A reader at its bound makes good for a pause, as between two micro-batches, in as many seconds, but for a little that
# keeps it off the bound of the window: who has caught up before the next pause feels that in full.
_AIM, _AIM_LESS_BY_FETCH, _LEAST_AIM = 0.995, 0.155, 0.975
_LONGEST_PAUSE, _SHORTEST_CYCLE_SECONDS = 0.6, 4.0
# All pauses are made as long as the longest of the last ones, so that none comes unforeseen; to begin with, as long as
# Spark's often are.
_PAUSES, _FIRST_PAUSE = 20, 0.45
# Who has used less of its bound than this was not held up by it, and is not held up now.
_AT_BOUND = 0.9
_NEVER = float("-inf")


def most_of_smooth(amount: float, bound: float) -> float:
    """What any `SMOOTH_SECONDS` have at most, however far behind a reader is that fetches so much at once."""
    over = max(_LEAST_SMOOTH, _SMOOTH - (LATE_SECONDS + amount / bound) / SMOOTH_SECONDS)
    return over * bound * SMOOTH_SECONDS


def pace_after(pause: float, amount: float, bound: float, *, brokers_refuse: bool) -> float:
    """How fast a reader goes on after a pause, where it fetches so much at once: of the bound's unit, a second."""
    fetch_seconds = amount / bound
    aim = max(_LEAST_AIM, _AIM - _AIM_LESS_BY_FETCH * fetch_seconds) if brokers_refuse else _AIM
    # The pause stands for the time until the next fetch, too.
    return aim * bound / (1 - max(0.0, min(pause, _LONGEST_PAUSE) - fetch_seconds) / SMOOTH_SECONDS)


class Quota:
    """Bytes and records against their bounds.

    Args:
        bounds: What is let through.
        windows: How many samples the window has.
        seconds: The length of one sample.
        brokers_refuse: Whether brokers keep the bound too, so that what they refuse comes late.
    """

    def __init__(
        self, bounds: Bounds, windows: int = 11, seconds: float = 1.0, *, brokers_refuse: bool = False
    ) -> None:
        self._shape = (windows, seconds)
        self._bounds = bounds
        self._brokers_refuse = brokers_refuse
        # The readers that are done with this micro-batch: one that reads again has begun the next.
        self._done: set[int] = set()
        self._idle_since: float | None = None
        self._pauses = deque([_FIRST_PAUSE], _PAUSES)
        self._begin()

    def _begin(self) -> None:
        self._meters = _Meter(*self._shape), _Meter(*self._shape)
        # How long the pause was, when it ended, and until when it is being made good for.
        self._pause = 0.0
        self._resumed_at = _NEVER
        self._steady_until = _NEVER

    @property
    def bounds(self) -> Bounds:
        """What is let through now."""
        return self._bounds

    def change(self, bounds: Bounds) -> None:
        """Other bounds from here on; what was fetched under the old ones is settled."""
        if bounds != self._bounds:
            self._bounds = bounds
            self._begin()

    def check(self, now: float) -> float:
        """Seconds to wait before the next fetch; 0: it may leave."""
        return self._delay((0.0, 0.0), now)

    def turn(self, expected: Amounts, now: float) -> float:
        """Seconds until a fetch of about so much may leave; a fetch that is asked for after it comes after it.

        Whoever takes a turn tells `on_response` of it.
        """
        delay = self._delay(expected, now)
        for meter, bound, amount in self._bound_meters(expected):
            meter.take(amount, self._pace(amount, bound, now), now, now + delay)
        self._record(expected, now)
        return delay

    def done(self, reader: int, now: float, *, others: bool) -> None:
        """A reader has nothing left to read in this micro-batch; `others`: whether somebody else has."""
        self._done.add(reader)
        if not others:
            self._idle_since = now

    def reads(self, reader: int, now: float) -> None:
        """A reader has something left to read; if nobody had, that was a pause."""
        anew = reader in self._done
        if anew:
            self._done.clear()
        since, self._idle_since = self._idle_since, None
        if self._resumed_at == _NEVER:
            # A first window that has all of its bound leaves the next one no room to make good for pauses.
            windows, seconds = self._shape
            self._resumed_at, self._steady_until = now, now + windows * seconds
            return
        if since is None:
            return
        pause = now - since
        if not anew or now < self._resumed_at + _SHORTEST_CYCLE_SECONDS:
            # Between two readers of one micro-batch, or of the short ones of a trigger that is bounded otherwise.
            self._pause += pause
            return
        if self._fraction(now) >= _AT_BOUND:
            self._pauses.append(min(pause, _LONGEST_PAUSE))
            pause = max(pause, *self._pauses)
        self._pause, self._resumed_at = pause, since + pause
        self._steady_until = self._resumed_at + SMOOTH_SECONDS

    def on_response(self, fetched_bytes: float, records: float, now: float, *, expected: Amounts = (0.0, 0.0)) -> float:
        """Take note of a response; seconds to wait as of `check`.

        Args:
            fetched_bytes: Of the response.
            records: Of the response.
            now: The time.
            expected: Of what its turn was taken.
        """
        more = (fetched_bytes - expected[0], records - expected[1])
        self._record(more, now)
        for meter, bound, amount in self._bound_meters(more):
            meter.correct(amount, self._pace(abs(amount), bound, now), now)
        return self.check(now)

    def used(self, now: float) -> float:
        """The fraction of the quota that is used, 0 to 100 %; 100 is throttled."""
        if self.check(now) > 0:
            return 100.0
        return min(100.0, 100 * self._fraction(now))

    def rates(self, now: float) -> tuple[float, float]:
        """Bytes and records a second, as observed in the window."""
        by_bytes, by_records = self._meters
        return by_bytes.sensor.rate(now), by_records.sensor.rate(now)

    def _fraction(self, now: float) -> float:
        return max((meter.sensor.rate(now) / bound for meter, bound, _ in self._bound_meters()), default=0.0)

    def _pace(self, amount: float, bound: float, now: float) -> float:
        if now < self._steady_until:
            return pace_after(self._pause, amount, bound, brokers_refuse=self._brokers_refuse)
        return CATCH_UP * bound

    def _delay(self, amounts: Amounts, now: float) -> float:
        delays = (meter.delay(amount, bound, now) for meter, bound, amount in self._bound_meters(amounts))
        return max(0.0, self._resumed_at - now, *delays)

    def _record(self, amounts: Amounts, now: float) -> None:
        for meter, amount in zip(self._meters, amounts, strict=True):
            meter.sensor.record(amount, now)

    def _bound_meters(self, amounts: Amounts = (0.0, 0.0)) -> list[tuple[_Meter, float, float]]:
        both = (self._bounds.bytes_per_second, self._bounds.records_per_second)
        return [(m, b, amount) for m, b, amount in zip(self._meters, both, amounts, strict=True) if b is not None]


class _Meter:
    """One amount: its sensor, what came in the last few seconds, and when its next may come if it is to come evenly."""

    def __init__(self, windows: int, seconds: float) -> None:
        self.sensor = Sensor(windows, seconds)
        self._whole_window = max(1, windows - 1) * seconds
        # Two more: of the oldest only a part is in the window, and a fetch may come late into the next one.
        self._recent = Sensor(_SMOOTH_SAMPLES + 2, SMOOTH_SECONDS / _SMOOTH_SAMPLES)
        self._next_at = _NEVER

    def take(self, amount: float, pace: float, now: float, at: float) -> None:
        """So much is to come at a time."""
        self._next_at = max(self._next_at, at - LATE_SECONDS)
        self._push_back(amount, pace, now)
        self._recent.record(amount, at)

    def correct(self, amount: float, pace: float, now: float) -> None:
        """So much more (or less) has come than its turn was taken for."""
        self._push_back(amount, pace, now)
        self._recent.record(amount, now)

    def delay(self, amount: float, bound: float, now: float) -> float:
        """Seconds until so much may come."""
        smooth = self._recent.delay_until(amount, most_of_smooth(amount, bound), now)
        # Brokers refuse a fetch that does not fit whole into their window, which is as long as this at least.
        whole = amount if self.sensor.window(now) >= self._whole_window else 0.0
        return max(self.sensor.delay(bound, now, whole), smooth, self._next_at - now, 0.0)

    def _push_back(self, amount: float, pace: float, now: float) -> None:
        self._next_at = max(self._next_at, now - LATE_SECONDS) + amount / pace
