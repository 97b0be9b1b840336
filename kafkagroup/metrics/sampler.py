"""Makes samples of what Spark reports of a query."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from pyspark.sql.streaming.listener import StreamingQueryProgress

from assignors.model import TopicPartition
from kafkagroup.metrics.production_curve import ProductionCurve
from kafkagroup.metrics.sample import PartitionSample, Sample
from kafkagroup.progress import SourceOffsets, name_of, sources_of


class Sampler:
    """Makes samples of one run of a query. It remembers the ends of partitions, to tell the age of records.

    Args:
        began: When the run began by Spark's clock, in seconds since 1970; 0: unknown.
    """

    def __init__(self, began: float = 0.0) -> None:
        self._began = began
        self._curves: dict[tuple[int, TopicPartition], ProductionCurve] = {}

    def samples(self, progress: StreamingQueryProgress) -> tuple[Sample, ...]:
        """Return a sample for each Kafka source of the query, in their order."""
        sources = sources_of(progress)
        self._forget_others(sources)
        return tuple(self._sample(progress, source) for source in sources)

    def _sample(self, progress: StreamingQueryProgress, source: SourceOffsets) -> Sample:
        driver = source.driver
        at = seconds_of(progress.timestamp) if driver is None else driver.at_ms / 1000
        # A batch that a restart runs again has its end offset from the checkpoint, with the figures of the driver
        # process of the run before. They are not of this run, and its own process counts the quota's totals from 0.
        of_this_run = at >= self._began
        new = driver if source.has_read and of_this_run else None
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
            quota=(source.quota if of_this_run else None) or {},
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


def seconds_of(timestamp: str) -> float:
    """Return a timestamp of Spark's events in seconds since 1970."""
    # Python 3.10 does not parse the Z of Spark's "2026-11-23T02:20:00.123Z".
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).astimezone(timezone.utc).timestamp()
