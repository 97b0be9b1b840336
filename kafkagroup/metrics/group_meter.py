"""Metrics of the lag of groups at the brokers (`kafkagroup watch --prometheus`), with the names of a query's lag."""

from collections.abc import Iterable, Iterator, Mapping

from assignors.model import TopicPartition
from kafkagroup.admin.rows import PartitionLag
from kafkagroup.metrics import catalog
from kafkagroup.metrics.catalog import Point, point
from kafkagroup.metrics.exporter import Gauges, Update
from kafkagroup.metrics.sample import ProductionCurve


class GroupMeter:
    """Makes updates from descriptions of groups, and keeps end offsets to estimate the age of records."""

    def __init__(self) -> None:
        self._curves: dict[tuple[str, TopicPartition], ProductionCurve] = {}
        self._gauges = Gauges()

    def look(self, lags: Mapping[str, Iterable[PartitionLag]], at: float) -> Update:
        """Return the update after a description of the existing groups.

        Args:
            lags: The lag of each group. A partition without a leader has no metrics.
            at: When the description began, in seconds since 1970.
        """
        points = [p for group, rows in lags.items() for p in self._points(group, rows, at)]
        return Update(tuple(points), self._gauges.replace(points))

    def _points(self, group: str, rows: Iterable[PartitionLag], at: float) -> Iterator[Point]:
        for row in rows:
            if row.end is None or row.behind is None:
                continue
            curve = self._curves.setdefault((group, TopicPartition(row.topic, row.partition)), ProductionCurve())
            curve.observe(at, row.end)
            position = row.end - row.behind
            curve.forget_before(position)
            labels = ("", "", group, "", row.topic, row.partition)
            yield point(catalog.LAG_RECORDS, row.behind, *labels)
            yield point(catalog.LAG_SECONDS, curve.age(position, at), *labels)
            yield point(catalog.POSITION, position, *labels)
            yield point(catalog.END_OFFSET, row.end, *labels)
        yield point(catalog.LAG_TIME, at, "", "", group)
