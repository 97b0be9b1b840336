"""Figures from a stream's task reports: the number of bad values, and the number of cores that the target needs."""

from kafka_source.quota.server import StreamQuota


class TaskFigures:
    """Add up the tasks' reports from one micro-batch to the next.

    Args:
        quota: The server of the tasks' reports; None: no reports.
        counts_bad: Whether the stream continues after bad values.
        target: `targetTriggerDuration` in seconds; None: not set.
    """

    def __init__(self, quota: StreamQuota | None, *, counts_bad: bool, target: float | None) -> None:
        self._quota, self._counts_bad, self._target = quota, counts_bad, target
        self._bad, self._busy = 0, 0.0
        # The number of reports once all tasks of the last batch are done; None: no tasks were made yet.
        self._expected: int | None = None

    def expect(self, reports: int) -> None:
        """Record that the tasks which are made now will send this number of reports."""
        if self._quota is not None:
            self._expected = self._quota.reported.tasks_done + reports

    @property
    def has_bad_records(self) -> bool:
        """Whether tasks have reported bad records that no call of `take` has returned."""
        return self._counts_bad and self._quota is not None and self._quota.reported.bad_records > self._bad

    def take(self) -> tuple[int | None, float | None]:
        """Return the bad records reported since the last call, and the cores that the target needs.

        The cores are the tasks' busy seconds divided by the target's seconds. None: not all tasks have reported.
        """
        if self._quota is None or self._expected is None:
            return None, None
        now = self._quota.reported
        bad, busy = now.bad_records - self._bad, now.busy - self._busy
        self._bad, self._busy = now.bad_records, now.busy
        has_all = now.tasks_done >= self._expected
        cores = busy / self._target if has_all and self._target is not None else None
        return (bad if self._counts_bad and (bad or has_all) else None), cores
