"""Listeners to a query's progress: the lag of its sources (`LagListener`), the stop of its group (`StopListener`).

Spark leaves `sources[].metrics` of a Python source empty. A listener computes the lag from the offsets in the
progress:

    from kafkagroup.progress import LagListener

    spark.streams.addListener(LagListener(print))
"""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError
from kafka_source.model import driver_figures
from kafka_source.model.driver_figures import DriverFigures, TimeAlignment
from kafka_source.model.halt import HaltKind
from kafka_source.model.stream_offset import StreamOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LagListener", "SourceLag", "lag_of"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of one source of a query.

    Attributes:
        query: The query's name, or its id if it has no name.
        batch: The number of the micro-batch after which the lag was measured.
        source: The number of the source in the query, from 0.
        behind: The number of offsets between the query's offset and the latest offset, by partition.
        bytes_per_offset: The approximate number of bytes per offset in a fetch response; None: unknown.
        bad_records: How many records of the previous micro-batch could not be decoded; None: unknown, values
            are not decoded, or a bad value ends the query.
        cores_needed: Cores that the previous micro-batch needed for the target duration; None: no target, or unknown.
        alignment: How `maxTimestampSkew` has held partitions back; None: it has held back no partition, or is not set.
    """

    query: str
    batch: int
    source: int
    behind: Mapping[TopicPartition, int]
    bytes_per_offset: float | None = None
    bad_records: int | None = None
    cores_needed: float | None = None
    alignment: TimeAlignment | None = None

    @property
    def total(self) -> int:
        """Return the sum of `behind` over all partitions."""
        return sum(self.behind.values())

    @property
    def metrics(self) -> dict[str, str]:
        """Return the figures under Spark's names: `minOffsetsBehindLatest`, `max…`, `avg…`; empty without partitions.

        If the size of an offset is known, `estimatedTotalBytesBehindLatest` is added. kafkagroup adds `badRecords`
        if a query continues after bad values, `coresNeeded` with `targetTriggerDuration`, and `leastTimestamp`,
        `heldBackBy`, `timestampSkewBeforeMs` and `timestampSkewAfterMs` with `maxTimestampSkew`.
        """
        if not self.behind:
            return {}
        found = {
            "minOffsetsBehindLatest": str(min(self.behind.values())),
            "maxOffsetsBehindLatest": str(max(self.behind.values())),
            "avgOffsetsBehindLatest": str(self.total / len(self.behind)),
        }
        if self.bytes_per_offset is not None:
            found["estimatedTotalBytesBehindLatest"] = str(self.total * self.bytes_per_offset)
        if self.bad_records is not None:
            found["badRecords"] = str(self.bad_records)
        if self.cores_needed is not None:
            found["coresNeeded"] = str(self.cores_needed)
        if (step := self.alignment) is not None:
            named = {
                "leastTimestamp": step.time_ms,
                "heldBackBy": f"{step.held_by.topic}-{step.held_by.partition}",
                "timestampSkewBeforeMs": step.skew_before_ms,
                "timestampSkewAfterMs": step.skew_after_ms,
            }
            found |= {name: str(value) for name, value in named.items() if value is not None}
        return found


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """The offsets of one Kafka source (of kafkagroup or of Spark) in the progress of a query.

    Attributes:
        number: The number of the source in the query, from 0.
        end: The offset at which the micro-batch ended.
        latest: The latest offsets when the micro-batch was planned.
        has_read: Whether this micro-batch moved the source's offset. Without a move, `end` and `driver` are of an
            earlier micro-batch, because stateful queries also run micro-batches without new records.
        driver: The figures of the driver's process; None: Spark's own source.
        new: The same figures if the driver made them in this trigger; None: `driver` is of an earlier micro-batch. If a
            restart repeats a micro-batch, its end offset is from the checkpoint, with figures of the previous run.
        quota: The figures of the query's quota, as `Account.figures` makes them; None: no quota.
    """

    number: int
    end: StreamOffset
    latest: Mapping[TopicPartition, int]
    has_read: bool
    driver: DriverFigures | None = None
    new: DriverFigures | None = None
    quota: Mapping[str, Any] | None = None

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """Return the number of offsets between the micro-batch's end and the latest offset, by partition."""
        read = self.end.ends
        return {tp: max(0, offset - read[tp]) for tp, offset in self.latest.items() if tp in read}


def sources_of(progress: StreamingQueryProgress) -> list[SourceOffsets]:
    """Return the offsets of each Kafka source in the progress of a query."""
    found, began = [], seconds_of(progress.timestamp)
    for number, source in enumerate(progress.sources):
        start, shown = _json(source.startOffset), _json(source.endOffset)
        end = _offset(shown)
        if end is None:
            continue
        driver = _figures(shown)
        # Both times are of the driver's machine, in milliseconds.
        new = driver if driver is not None and driver.at_ms / 1000 >= began else None
        latest = _offset(_json(source.latestOffset))
        # Spark 4.0 shows the end of the micro-batch as the latest offset of a Python source.
        latest_ends = {} if driver is None else driver.latest
        available = latest_ends or ({} if latest is None else latest.ends)
        if latest is not None or available:
            found.append(SourceOffsets(number, end, available, start != shown, driver, new, shown.get("quota")))
    return found


def lag_of(progress: StreamingQueryProgress, *, bytes_per_offset: float | None = None) -> list[SourceLag]:
    """Return the lag of each Kafka source (of kafkagroup or of Spark) in a query.

    Args:
        progress: The progress of a query, from a listener or `query.lastProgress`.
        bytes_per_offset: The approximate number of bytes per offset. Sources with a quota use the quota's measurement.
    """
    found = []
    for source in sources_of(progress):
        size = _measured_size(source.quota or {})
        per_offset = bytes_per_offset if size is None else size
        new = source.new
        figures = () if new is None else (new.bad_records, new.cores_needed, new.alignment)
        named = name_of(progress), progress.batchId, source.number
        found.append(SourceLag(*named, source.behind, per_offset, *figures))
    return found


def seconds_of(timestamp: str) -> float:
    """Return a timestamp of Spark's events in seconds since 1970."""
    # Python 3.10 does not parse the Z of Spark's "2026-11-23T02:20:00.123Z".
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).astimezone(timezone.utc).timestamp()


def name_of(progress: StreamingQueryProgress) -> str:
    """Return the name of the query, or its id if it has no name."""
    return progress.name or str(progress.id)


class ProgressListener(StreamingQueryListener):
    """A listener that handles only progress events; Spark requires the other methods too."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""


class LagListener(ProgressListener):
    """Reports the lag of each Kafka source after each micro-batch: `spark.streams.addListener(LagListener())`.

    Args:
        report: Called with each source's lag, in a thread of Spark; None: log a line at INFO.
        bytes_per_offset: See `lag_of`.
    """

    def __init__(
        self, report: Callable[[SourceLag], object] | None = None, *, bytes_per_offset: float | None = None
    ) -> None:
        self._report = report or _log
        self._bytes_per_offset = bytes_per_offset

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report the lag of each source."""
        for one in lag_of(event.progress, bytes_per_offset=self._bytes_per_offset):
            self._report(one)


class StopListener(ProgressListener):
    """Ends the queries whose groups `kafkagroup stop` has stopped: `spark.streams.addListener(StopListener(spark))`.

    A source cannot end its query, so without the listener a query whose group is stopped stays alive and idle. A query
    that is a member of several groups ends when all of them are stopped. A query that starts in a stopped group stays
    idle until the group is resumed.

    Args:
        spark: The session of the queries, classic or of Spark Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """End the query if this micro-batch reports that all groups of the query are stopped."""
        sources = [one for one in sources_of(event.progress) if one.driver is not None and one.driver.group is not None]
        halts = [one.driver.halt for one in sources if one.driver is not None]
        if all(one.new is None for one in sources) or any(
            halt is None or halt.kind is not HaltKind.STOP for halt in halts
        ):
            return
        log.warning("query=%s ends: its group was %s", name_of(event.progress), halts[0])
        # In a thread: `stop` waits for the query's end, and the query may wait for its listeners.
        threading.Thread(target=self._stop, args=(str(event.progress.id),), daemon=True).start()

    def _stop(self, query_id: str) -> None:
        query = self._spark.streams.get(query_id)
        if query is not None:
            query.stop()


def _log(lag: SourceLag) -> None:
    figures = " ".join(f"{name}={value}" for name, value in lag.metrics.items())
    log.info("query=%s batch=%d source=%d %s", lag.query, lag.batch, lag.source, figures)


def _json(text: str | None) -> Any:
    """Parse an offset of a progress; through Spark Connect, pyspark before 4.2 returns the repr of a dict."""
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError):
            return parse(text or "null")
    return None


def _offset(value: Any) -> StreamOffset | None:
    """Return the offset in kafkagroup's or Spark's form; None: another form."""
    try:
        return StreamOffset.from_json(value) if isinstance(value, dict) and value else None
    except InvalidConfigurationError:
        return None


def _figures(end: Mapping[str, Any]) -> DriverFigures | None:
    try:
        return DriverFigures.from_json(end[driver_figures.KEY])
    except (KeyError, TypeError, ValueError):
        # An offset of Spark's own source, or of a version of kafkagroup with other figures or no figures.
        return None


def _measured_size(quota: Mapping[str, Any]) -> float | None:
    """Return the number of bytes per offset that the query's quota has measured; None without a quota."""
    slots = quota.get("slots", {}).values()
    size, records = sum(slot["bytes"] for slot in slots), sum(slot["records"] for slot in slots)
    return size / records if records else None
