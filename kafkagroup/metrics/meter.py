"""A listener that turns Spark's progress events into samples and points of metrics."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from assignors.model import TopicPartition
from kafka_source.model.driver_figures import RebalanceCause
from kafkagroup.metrics import catalog
from kafkagroup.metrics.catalog import Point, Series, point
from kafkagroup.metrics.exporter import Exports, Gauges, Update
from kafkagroup.metrics.sample import PartitionSample, ProductionCurve, Sample
from kafkagroup.progress import SourceOffsets, name_of, seconds_of, sources_of

_THROTTLED_BY = {"delayMs": "quota", "throttleMs": "broker"}
# Spark's name of the whole trigger, of which the other durations are parts.
_TRIGGER = "triggerExecution"


class QueryMeter:
    """Makes the updates of one run of a query.

    Args:
        name: The query's name, or its id if it has no name.
        looks: Whether end offsets are looked up at the brokers; the lag is then unknown before the first lookup.

    Attributes:
        has_progress: Whether a micro-batch has ended.
    """

    def __init__(self, name: str, *, looks: bool = False) -> None:
        self._name = name
        self._sampler = Sampler(looks=looks)
        self.has_progress = False
        self._gauges = Gauges()
        # The totals of the quota's account, by source, slot and name.
        self._totals: dict[tuple[int, str, str], float] = {}

    def started(self, now: float) -> Update:
        """Return the update at the start of the query."""
        # Each series begins with 0, because Prometheus sees no increase in a series that begins with 1.
        ends = tuple(point(catalog.TERMINATIONS, 0, self._name, failed) for failed in ("true", "false"))
        return Update((*self.idle(now).points, *ends))

    def progress(self, progress: StreamingQueryProgress, now: float) -> Update:
        """Return the update after a micro-batch.

        Args:
            progress: Spark's progress of the micro-batch.
            now: Seconds since 1970.
        """
        self._name = name_of(progress)
        samples = self._sampler.samples(progress)
        points = [*self._query_points(progress, now)]
        for sample in samples:
            points += _source_points(sample)
            points += _lag_points(self._sampler.with_newest_ends(sample))
            points += self._quota_points(sample)
        return Update(tuple(points), self._gauges.replace(points), samples)

    def partitions(self, cluster: str | None) -> set[TopicPartition]:
        """Return the partitions of the last finished micro-batch, if their cluster is `cluster` or is unknown."""
        return self._sampler.partitions(cluster)

    def look(self, cluster: str | None, ends: Mapping[TopicPartition, int], at: float) -> Update:
        """Return the update after a lookup of end offsets. A micro-batch may be running.

        Args:
            cluster: The cluster of these partitions.
            ends: The end offsets that the lookup has found.
            at: When the lookup began, in seconds since 1970.
        """
        samples = self._sampler.look(cluster, ends, at)
        points = tuple(p for sample in samples for p in _lag_points(sample))
        self._gauges.add(points)
        return Update(points, (), samples)

    def idle(self, now: float) -> Update:
        """Return the update of an idle query."""
        alive = point(catalog.LAST_PROGRESS, now, self._name)
        self._gauges.add([alive])
        return Update((alive,))

    def terminated(self, *, failed: bool) -> Update:
        """Return the update at the end of the query, which removes its gauges."""
        ended = point(catalog.TERMINATIONS, 1, self._name, "true" if failed else "false")
        return Update((ended,), self._gauges.replace([]))

    def _query_points(self, progress: StreamingQueryProgress, now: float) -> Iterator[Point]:
        yield point(catalog.LAST_PROGRESS, now, self._name)
        for phase, took_ms in progress.durationMs.items():
            if phase == _TRIGGER:
                yield point(catalog.TRIGGER, took_ms / 1000, self._name)
            else:
                yield point(catalog.PHASES, took_ms / 1000, self._name, phase)

    def _quota_points(self, sample: Sample) -> Iterator[Point]:
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
        """Return the growth of one of the quota's totals. After a restart, the driver counts from 0."""
        now, key = float(totals.get(name, 0)), (source, slot, name)
        before, self._totals[key] = self._totals.get(key, 0.0), now
        return now - before if now >= before else now


def _source_points(sample: Sample) -> Iterator[Point]:
    labels = _labels(sample)
    yield point(catalog.INPUT_ROWS, sample.rows, sample.query, sample.source)
    yield from _partition_points(sample, labels)
    if sample.bad_records is not None:
        yield point(catalog.BAD_RECORDS, sample.bad_records, *labels)
    if sample.cores_needed is not None:
        yield point(catalog.CORES_NEEDED, sample.cores_needed, *labels)
    if sample.group is None:
        return
    yield point(catalog.GENERATION, sample.generation, *labels)
    yield point(catalog.HALTED, sample.halted, *labels)
    yield point(catalog.COMMIT_FAILURES, sample.failed_commits, *labels)
    for commit in sample.commits:
        yield point(catalog.COMMIT_LATENCY, commit.took_ms / 1000, *labels)
    for cause in RebalanceCause:
        # Report 0 for a cause without rebalances, because Prometheus sees no increase in a series that begins with 1.
        happened = sum(rebalance.cause is cause for rebalance in sample.rebalances)
        yield point(catalog.REBALANCES, happened, *labels, cause.value)
    for rebalance in sample.rebalances:
        yield point(catalog.REBALANCE_LATENCY, rebalance.took_ms / 1000, *labels)


def _partition_points(sample: Sample, labels: Iterable[object]) -> Iterator[Point]:
    assigned: dict[int, int] = {}
    of_source = tuple(map(str, labels))
    for tp, one in sample.partitions.items():
        # `point` is not used, because it would convert the same labels for each of thousands of partitions.
        partition = (*of_source, str(one.slot), tp.topic, str(tp.partition))
        assigned[one.slot] = assigned.get(one.slot, 0) + 1
        yield Point(Series(catalog.POSITION, partition), float(one.end))
        yield Point(Series(catalog.RECORDS, partition), float(one.end - one.start))
    for slot, count in sorted(assigned.items()):
        yield point(catalog.ASSIGNED, count, *labels, slot)


def _lag_points(sample: Sample) -> Iterator[Point]:
    labels = tuple(map(str, _labels(sample)))
    for tp, one in sample.partitions.items():
        partition = (*labels, str(one.slot), tp.topic, str(tp.partition))
        yield Point(Series(catalog.LAG_RECORDS, partition), float(one.lag))
        yield Point(Series(catalog.LAG_SECONDS, partition), one.lag_seconds)
        yield Point(Series(catalog.END_OFFSET, partition), float(one.latest))
    yield Point(Series(catalog.LAG_TIME, labels), sample.at)


def _labels(sample: Sample) -> tuple[object, ...]:
    return sample.query, sample.source, sample.group or ""


class MetricsListener(StreamingQueryListener):
    """Exports the metrics of every streaming query of a session.

    Attributes:
        on_new_query: Called at a query's first progress, which has the partitions; None: end offsets are not looked up.
    """

    def __init__(self, exports: Exports) -> None:
        self._exports = exports
        self.on_new_query: Callable[[], object] | None = None
        # The meters by run id. Spark and the lookups use different threads.
        self._meters: dict[str, QueryMeter] = {}
        self._lock = threading.Lock()

    def partitions(self, cluster: str | None) -> set[TopicPartition]:
        """Return the partitions that the queries read in a cluster."""
        with self._lock:
            return {tp for meter in self._meters.values() for tp in meter.partitions(cluster)}

    def look(self, cluster: str | None, ends: Mapping[TopicPartition, int], at: float) -> None:
        """Export the lag of all queries; see `QueryMeter.look`."""
        with self._lock:
            for meter in self._meters.values():
                self._exports.export(meter.look(cluster, ends, at))

    def _meter(self, name: str) -> QueryMeter:
        return QueryMeter(name, looks=self.on_new_query is not None)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Start the metrics of a query."""
        meter = self._meter(event.name or str(event.id))
        with self._lock:
            self._meters[str(event.runId)] = meter
            self._exports.export(meter.started(time.time()))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Export the metrics of a micro-batch."""
        progress = event.progress
        with self._lock:
            # The listener has no start event of a query that was started before the listener.
            meter = self._meters.setdefault(str(progress.runId), self._meter(progress.name or str(progress.id)))
            is_new, meter.has_progress = not meter.has_progress, True
            self._exports.export(meter.progress(progress, time.time()))
        if is_new and self.on_new_query is not None:
            self.on_new_query()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Export that the query is alive."""
        with self._lock:
            if (meter := self._meters.get(str(event.runId))) is not None:
                self._exports.export(meter.idle(time.time()))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Export the end of a query, and drop its state."""
        with self._lock:
            if (meter := self._meters.pop(str(event.runId), None)) is not None:
                self._exports.export(meter.terminated(failed=event.exception is not None))


@dataclass(frozen=True, slots=True)
class _Look:
    """The end offset of a partition at a time in seconds since 1970."""

    at: float
    end: int


class Sampler:
    """Makes samples of one run of a query, and keeps end offsets to estimate the age of records.

    Args:
        looks: See `QueryMeter`.
    """

    def __init__(self, *, looks: bool = False) -> None:
        self._by_looks = looks
        self._curves: dict[tuple[int, TopicPartition], ProductionCurve] = {}
        # The last sample of each source with its cluster, and the last lookup of each partition.
        self._last: dict[int, tuple[str | None, Sample]] = {}
        self._looks: dict[tuple[int, TopicPartition], _Look] = {}

    def samples(self, progress: StreamingQueryProgress) -> tuple[Sample, ...]:
        """Return a sample for each Kafka source of the query, in the order of the sources."""
        sources = sources_of(progress)
        self._forget_others(sources)
        self._last = {source.number: (source.end.cluster, self._sample(progress, source)) for source in sources}
        return tuple(sample for _, sample in self._last.values())

    def partitions(self, cluster: str | None) -> set[TopicPartition]:
        """Return the partitions of the last samples, if their cluster is `cluster` or is unknown."""
        return {tp for known, sample in self._last.values() if known in (None, cluster) for tp in sample.partitions}

    def look(self, cluster: str | None, ends: Mapping[TopicPartition, int], at: float) -> tuple[Sample, ...]:
        """Return a sample for each source that reads one of these partitions; see `QueryMeter.look`."""
        found = []
        for known, sample in self._last.values():
            if known not in (None, cluster) or not sample.partitions.keys() & ends.keys():
                continue
            for tp in sample.partitions.keys() & ends.keys():
                key = sample.source, tp
                self._curves[key].observe(at, ends[tp])
                self._looks[key] = _Look(at, ends[tp])
            newest = self.with_newest_ends(sample)
            partitions = {tp: replace(one, start=one.end) for tp, one in newest.partitions.items()}
            found.append(
                replace(
                    newest,
                    rows=0,
                    seconds=0.0,
                    partitions=partitions,
                    commits=(),
                    failed_commits=0,
                    rebalances=(),
                    quota={},
                    bad_records=None,
                    cores_needed=None,
                    is_look=True,
                )
            )
        return tuple(found)

    def with_newest_ends(self, sample: Sample) -> Sample:
        """Return a sample with the ends, lag and time of the last lookup, if the lookup is newer than the sample."""
        partitions, times = {}, []
        for tp, one in sample.partitions.items():
            key = sample.source, tp
            look = self._looks.get(key)
            if look is None and self._by_looks:
                times.append(sample.at)
            elif look is None or look.at <= sample.at:
                partitions[tp] = one
                times.append(sample.at)
            else:
                age = self._curves[key].age(one.end, look.at)
                partitions[tp] = replace(one, latest=look.end, lag_seconds=age)
                times.append(look.at)
        return replace(sample, at=min(times, default=sample.at), partitions=partitions)

    def _sample(self, progress: StreamingQueryProgress, source: SourceOffsets) -> Sample:
        driver, new = source.driver, source.new
        at = seconds_of(progress.timestamp) if driver is None else driver.at_ms / 1000
        if new is not None:
            quota, halted = source.quota or {}, new.halt is not None
        else:
            # Without new figures, the state is that of this run's last sample.
            _, last = self._last.get(source.number, (None, None))
            quota, halted = ({}, False) if last is None else (last.quota, last.halted)
        return Sample(
            at=at,
            query=name_of(progress),
            query_id=str(progress.id),
            run_id=str(progress.runId),
            batch=progress.batchId,
            source=source.number,
            group=None if driver is None else driver.group,
            generation=source.end.generation,
            rows=progress.sources[source.number].numInputRows,
            seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
            partitions=self._partitions(source, at),
            commits=() if new is None else new.commits,
            failed_commits=0 if new is None else new.failed_commits,
            rebalances=() if new is None else new.rebalances,
            quota=quota,
            bad_records=None if new is None else new.bad_records,
            cores_needed=None if new is None else new.cores_needed,
            halted=halted,
        )

    def _partitions(self, source: SourceOffsets, at: float) -> dict[TopicPartition, PartitionSample]:
        found = {}
        for tp, span in source.end.partitions.items():
            latest = source.latest.get(tp, span.end)
            curve = self._curves.setdefault((source.number, tp), ProductionCurve())
            if source.has_read:
                curve.observe(at, latest)
                curve.forget_before(span.end)
            start = span.start if source.has_read else span.end
            found[tp] = PartitionSample(start, span.end, span.slot, latest, curve.age(span.end, at))
        return found

    def _forget_others(self, sources: Iterable[SourceOffsets]) -> None:
        known = {(source.number, tp) for source in sources for tp in source.end.partitions}
        for key in self._curves.keys() - known:
            del self._curves[key]
            self._looks.pop(key, None)
