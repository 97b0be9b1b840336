"""The interface of exporters, the handling of failed exporters, and the exporter that writes a file of samples."""

import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from kafka_source.errors import InvalidConfigurationError
from kafkagroup.metrics.catalog import Kind, Point, Series
from kafkagroup.metrics.sample import Sample

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Update:
    """The changes since the last update.

    Attributes:
        points: New values of series.
        gone: Removed gauges, such as the lag of a partition that the query has lost.
        samples: The values of `points` for files and pictures: one sample for each source of a micro-batch.
    """

    points: tuple[Point, ...] = ()
    gone: tuple[Series, ...] = ()
    samples: tuple[Sample, ...] = ()


class Gauges:
    """The existing gauges. A gauge without a new value is removed, because its old value would look current."""

    def __init__(self) -> None:
        self._existing: frozenset[Series] = frozenset()

    def add(self, points: Iterable[Point]) -> None:
        """Add the gauges among these points; the other gauges stay."""
        self._existing |= {p.series for p in points if p.series.metric.kind is Kind.GAUGE}

    def replace(self, points: Iterable[Point]) -> tuple[Series, ...]:
        """Keep only the gauges among these points, and return the removed gauges."""
        before, self._existing = self._existing, frozenset()
        self.add(points)
        return tuple(before - self._existing)


class Exporter(Protocol):
    """Exports updates. Calls come from one thread at a time; an error is logged and does not reach the query."""

    def export(self, update: Update) -> None:
        """Export an update."""
        ...

    def close(self) -> None:
        """Export the remaining metrics, and stop."""
        ...


class Exports:
    """Gives updates to all exporters, one after another. A failed exporter does not affect the other exporters."""

    def __init__(self, exporters: Sequence[Exporter]) -> None:
        self._exporters: tuple[Exporter, ...] = tuple(exporters)
        self._lock = threading.Lock()
        # Each exporter's last error, which is logged once and not after each micro-batch.
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
        """Close all exporters, and ignore later updates, because Spark may still call a removed listener."""
        with self._lock:
            exporters, self._exporters = self._exporters, ()
            for exporter in exporters:
                try:
                    exporter.close()
                except Exception as error:
                    log.warning("metrics exporter=%s failed to close: %r", type(exporter).__name__, error)


class SampleFile:
    """Appends the samples to a file. A new file has mode 600, because it has names of topics and groups.

    Args:
        path: The file.

    Raises:
        InvalidConfigurationError: The file cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidConfigurationError(f"The samples cannot be written to {path}: {error}.") from None
        self._file: TextIO = os.fdopen(handle, "a", encoding="utf-8")

    def export(self, update: Update) -> None:
        """Append the samples of an update, and flush the file."""
        for sample in update.samples:
            self._file.write(json.dumps(sample.to_json(), separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_samples(path: str | Path) -> list[Sample]:
    """Return the samples of a file in the order of its lines, without an incomplete last line.

    Raises:
        InvalidConfigurationError: The file cannot be read, or a line is not a sample; the error names the line.
    """
    try:
        return list(_samples(Path(path)))
    except OSError as error:
        raise InvalidConfigurationError(f"The samples cannot be read: {error}.") from None


def _samples(path: Path) -> Iterator[Sample]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                yield Sample.from_json(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidConfigurationError(f"{path}, line {number} is not a sample: {error!r}.") from None
