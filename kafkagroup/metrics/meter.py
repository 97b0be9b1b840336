"""From samples to points: which metrics get which figures. Pure, except that it remembers totals and gauges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from kafka_source.model.driver_figures import RebalanceCause
from kafkagroup.metrics import catalog
from kafkagroup.metrics.catalog import Kind
from kafkagroup.metrics.exporter import Update
from kafkagroup.metrics.point import Point, Series, point
from kafkagroup.metrics.sample import Sample
from kafkagroup.metrics.sampler import Sampler
from kafkagroup.progress import name_of

_THROTTLED_BY = {"delayMs": "quota", "throttleMs": "broker"}
# Spark's name of the whole trigger, of which the other durations are parts.
_TRIGGER = "triggerExecution"


class QueryMeter:
    """Makes the updates of one run of a query.

    Args:
        name: The query's name, or its id if it has none.
        began: When the run began by Spark's clock, in seconds since 1970; 0: unknown.
    """

    def __init__(self, name: str, began: float = 0.0) -> None:
        self._name = name
        self._sampler = Sampler(began)
        self._gauges: frozenset[Series] = frozenset()
        # The totals of the quota's account, by source, slot and name.
        self._totals: dict[tuple[int, str, str], float] = {}

    def started(self, now: float) -> Update:
        """Return the update at the start of the query."""
        # Prometheus sees no increase in a series that begins with 1.
        ends = tuple(point(catalog.TERMINATIONS, 0, self._name, failed) for failed in ("true", "false"))
        return Update((*self.idle(now).points, *ends))

    def progress(self, progress: StreamingQueryProgress, now: float) -> Update:
        """Return the update after a micro-batch.

        Args:
            progress: What Spark reports of it.
            now: Seconds since 1970.
        """
        self._name = name_of(progress)
        samples = self._sampler.samples(progress)
        points = [*self._of_query(progress, now)]
        for sample in samples:
            points += _of_source(sample)
            points += self._of_quota(sample)
        gauges = frozenset(p.series for p in points if p.series.metric.kind is Kind.GAUGE)
        gone, self._gauges = self._gauges - gauges, gauges
        return Update(tuple(points), tuple(gone), samples)

    def idle(self, now: float) -> Update:
        """Return the update of a query that has nothing to do."""
        alive = point(catalog.LAST_PROGRESS, now, self._name)
        self._gauges |= {alive.series}
        return Update((alive,))

    def terminated(self, *, failed: bool) -> Update:
        """Return the update at the end of the query: its gauges are gone."""
        gone, self._gauges = self._gauges, frozenset()
        ended = point(catalog.TERMINATIONS, 1, self._name, "true" if failed else "false")
        return Update((ended,), tuple(gone))

    def _of_query(self, progress: StreamingQueryProgress, now: float) -> Iterator[Point]:
        yield point(catalog.LAST_PROGRESS, now, self._name)
        for phase, took_ms in progress.durationMs.items():
            if phase == _TRIGGER:
                yield point(catalog.TRIGGER, took_ms / 1000, self._name)
            else:
                yield point(catalog.PHASES, took_ms / 1000, self._name, phase)

    def _of_quota(self, sample: Sample) -> Iterator[Point]:
        quota, labels = sample.quota, _labels(sample)
        if not quota:
            return
        yield point(catalog.QUOTA_USED, quota["usedPercent"] / 100, *labels)
        if quota["bytesPerSecond"] is not None:
            yield point(catalog.QUOTA_BYTES, quota["bytesPerSecond"], *labels)
        if quota["recordsPerSecond"] is not None:
            yield point(catalog.QUOTA_RECORDS, quota["recordsPerSecond"], *labels)
        for slot, totals in quota["slots"].items():
            yield point(catalog.BYTES, self._grown(sample.source, slot, "bytes", totals), *labels, slot)
            for name, by in _THROTTLED_BY.items():
                seconds = self._grown(sample.source, slot, name, totals) / 1000
                yield point(catalog.THROTTLE, seconds, *labels, slot, by)

    def _grown(self, source: int, slot: str, name: str, totals: Mapping[str, Any]) -> float:
        """Return by how much a total of the quota's account has grown; it begins at 0 with each run of the driver."""
        now, key = float(totals.get(name, 0)), (source, slot, name)
        before, self._totals[key] = self._totals.get(key, 0.0), now
        return now - before if now >= before else now


def _of_source(sample: Sample) -> Iterator[Point]:
    labels = _labels(sample)
    yield point(catalog.INPUT_ROWS, sample.rows, sample.query, sample.source)
    yield from _of_partitions(sample, labels)
    if sample.group is None:
        return
    yield point(catalog.GENERATION, sample.generation, *labels)
    yield point(catalog.COMMIT_FAILURES, sample.failed_commits, *labels)
    for commit in sample.commits:
        yield point(catalog.COMMIT_LATENCY, commit.took_ms / 1000, *labels)
    for cause in RebalanceCause:
        # Also those that did not happen: Prometheus sees no increase in a series that begins with 1.
        happened = sum(rebalance.cause is cause for rebalance in sample.rebalances)
        yield point(catalog.REBALANCES, happened, *labels, cause.value)
    for rebalance in sample.rebalances:
        yield point(catalog.REBALANCE_LATENCY, rebalance.took_ms / 1000, *labels)


def _of_partitions(sample: Sample, labels: Iterable[object]) -> Iterator[Point]:
    assigned: dict[int, int] = {}
    of_source = tuple(map(str, labels))
    for tp, one in sample.partitions.items():
        # Not by `point`: thousands of partitions have these labels in common.
        partition = (*of_source, str(one.slot), tp.topic, str(tp.partition))
        assigned[one.slot] = assigned.get(one.slot, 0) + 1
        yield Point(Series(catalog.LAG_RECORDS, partition), float(one.lag))
        yield Point(Series(catalog.LAG_SECONDS, partition), one.lag_seconds)
        yield Point(Series(catalog.POSITION, partition), float(one.end))
        yield Point(Series(catalog.END_OFFSET, partition), float(one.latest))
        yield Point(Series(catalog.RECORDS, partition), float(one.end - one.start))
    for slot, count in sorted(assigned.items()):
        yield point(catalog.ASSIGNED, count, *labels, slot)


def _labels(sample: Sample) -> tuple[object, ...]:
    return sample.query, sample.source, sample.group or ""
