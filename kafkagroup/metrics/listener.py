"""The listener: from Spark's events to the exporters."""

from __future__ import annotations

import time

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kafkagroup.metrics.exporter import Exports
from kafkagroup.metrics.meter import QueryMeter
from kafkagroup.metrics.sampler import seconds_of


class MetricsListener(StreamingQueryListener):
    """Exports the figures of every streaming query of a session.

    Args:
        exports: Where the figures go.
    """

    def __init__(self, exports: Exports) -> None:
        self._exports = exports
        # By run id. Spark calls on one thread.
        self._meters: dict[str, QueryMeter] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Begin with a query."""
        meter = self._meters[str(event.runId)] = QueryMeter(event.name or str(event.id), seconds_of(event.timestamp))
        self._exports.export(meter.started(time.time()))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Export the figures of a micro-batch."""
        progress = event.progress
        # A query that was started before this listener has had no event of its start.
        meter = self._meters.setdefault(str(progress.runId), QueryMeter(progress.name or str(progress.id)))
        self._exports.export(meter.progress(progress, time.time()))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Export that the query is alive."""
        meter = self._meters.get(str(event.runId))
        if meter is not None:
            self._exports.export(meter.idle(time.time()))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Export the end of a query, and forget it."""
        meter = self._meters.pop(str(event.runId), None)
        if meter is not None:
            self._exports.export(meter.terminated(failed=event.exception is not None))
