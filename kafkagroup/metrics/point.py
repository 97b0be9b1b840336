"""A figure of one metric and its labels."""

from __future__ import annotations

from dataclasses import dataclass

from kafkagroup.metrics.catalog import Metric


@dataclass(frozen=True, slots=True)
class Series:
    """A metric with the values of its labels, in the order of `Metric.labels`."""

    metric: Metric
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A new figure of a series: a gauge's value, what a counter grew by, or one observation of a histogram."""

    series: Series
    value: float


def point(metric: Metric, value: float, *labels: object) -> Point:
    """Return a point of a metric with these values of its labels.

    Raises:
        ValueError: The metric has another number of labels.
    """
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has {len(metric.labels)} labels, not {len(labels)}")
    return Point(Series(metric, tuple(map(str, labels))), float(value))
