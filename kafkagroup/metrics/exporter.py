"""Exporters: their interface, and how they get the updates."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kafkagroup.metrics.point import Point, Series
from kafkagroup.metrics.sample import Sample

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Update:
    """What is new since the last update.

    Attributes:
        points: New figures.
        gone: Gauges that no longer exist, such as the lag of a partition that the query has no more.
        samples: The same for people and pictures: one sample for each source of a micro-batch.
    """

    points: tuple[Point, ...] = ()
    gone: tuple[Series, ...] = ()
    samples: tuple[Sample, ...] = ()


class Exporter(Protocol):
    """Exports updates. Calls come from one thread at a time; an error is logged and does not reach the query."""

    def export(self, update: Update) -> None:
        """Take an update."""
        ...

    def close(self) -> None:
        """Export what is left, and stop."""
        ...


class Exports:
    """Gives updates to all exporters, one after another. An exporter that fails does not keep the others from theirs.

    Args:
        exporters: The exporters.
    """

    def __init__(self, exporters: Sequence[Exporter]) -> None:
        self._exporters: tuple[Exporter, ...] = tuple(exporters)
        self._lock = threading.Lock()
        # Each exporter's last error, so that the log has it once and not after each micro-batch.
        self._failing: dict[int, str] = {}

    def export(self, update: Update) -> None:
        """Export an update."""
        with self._lock:
            for number, exporter in enumerate(self._exporters):
                try:
                    exporter.export(update)
                    self._failing.pop(number, None)
                except Exception as error:
                    if self._failing.get(number) != repr(error):
                        log.warning("metrics exporter=%s failed: %r", type(exporter).__name__, error)
                    self._failing[number] = repr(error)

    def close(self) -> None:
        """Close all exporters. Updates after that are left out: Spark may be calling a listener that is removed."""
        with self._lock:
            exporters, self._exporters = self._exporters, ()
            for exporter in exporters:
                try:
                    exporter.close()
                except Exception as error:
                    log.warning("metrics exporter=%s failed to close: %r", type(exporter).__name__, error)
