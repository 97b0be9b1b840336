"""How many values are bad in a stream, as its tasks report it to the driver."""

from __future__ import annotations

from kafka_source.quota.server import StreamQuota


class BadRecords:
    """Count the records whose values are bad, from one report of the driver to the next.

    Args:
        quota: What the tasks report to; None: they report nothing.
        counts: Whether the stream continues after bad values.
    """

    def __init__(self, quota: StreamQuota | None, *, counts: bool) -> None:
        self._quota = quota if counts else None
        self._told = 0
        # How many tasks have reported when all those of the last batch have; None: no batch of this process has ended.
        self._expected: int | None = None

    def expect(self, tasks: int) -> None:
        """Note that so many tasks are made, which report how many records are bad."""
        if self._quota is not None:
            self._expected = self._quota.tasks_done() + tasks

    @property
    def has_new(self) -> bool:
        """Whether tasks have reported bad records that no call of `take` has returned."""
        return self._quota is not None and self._quota.bad_records() > self._told

    def take(self) -> int | None:
        """Return the bad records reported since the last call; None: not all tasks have reported."""
        if self._quota is None or self._expected is None:
            return None
        has_all = self._quota.tasks_done() >= self._expected
        before, self._told = self._told, self._quota.bad_records()
        new = self._told - before
        return new if new or has_all else None
