"""The present figures of all series, for exporters that are asked for them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kafkagroup.metrics.catalog import METRICS, Kind, Metric
from kafkagroup.metrics.exporter import Update


@dataclass(slots=True)
class Distribution:
    """What a histogram has observed: the number of observations up to each bucket's bound and above, and their sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bucket's bound, and the number of observations up to it; the last bound is infinity."""
        total, found = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found

    def copy(self) -> Distribution:
        """Return a copy, which later observations do not change."""
        return Distribution(self.bounds, list(self.counts), self.sum)


class Board:
    """Sums updates up. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Metric, dict[tuple[str, ...], float]] = {metric: {} for metric in METRICS}
        self._distributions: dict[Metric, dict[tuple[str, ...], Distribution]] = {
            metric: {} for metric in METRICS if metric.kind is Kind.HISTOGRAM
        }

    def apply(self, update: Update) -> None:
        """Add an update; atomic for concurrent readers."""
        with self._lock:
            for series in update.gone:
                self._numbers[series.metric].pop(series.values, None)
            for point in update.points:
                metric, values = point.series.metric, point.series.values
                if metric.kind is Kind.GAUGE:
                    self._numbers[metric][values] = point.value
                elif metric.kind is Kind.COUNTER:
                    self._numbers[metric][values] = self._numbers[metric].get(values, 0.0) + point.value
                else:
                    seen = self._distributions[metric]
                    seen.setdefault(values, Distribution(metric.buckets)).observe(point.value)

    def numbers(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Return the figures of a gauge or counter, by the values of its labels."""
        with self._lock:
            return MappingProxyType(dict(self._numbers[metric]))

    def everything(
        self,
    ) -> tuple[
        Mapping[Metric, Mapping[tuple[str, ...], float]], Mapping[Metric, Mapping[tuple[str, ...], Distribution]]
    ]:
        """Return all gauges and counters, and all histograms, as they are after the same update."""
        with self._lock:
            return (
                {metric: dict(found) for metric, found in self._numbers.items() if found},
                {
                    metric: {values: one.copy() for values, one in found.items()}
                    for metric, found in self._distributions.items()
                    if found
                },
            )
