"""The stream readers for the versions of Spark, with read limits, AvailableNow and the progress.

From Spark 4.2 on, the reader gets the last batch's end and the limits. `StreamReader` fits the installed Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kafka_source.boundary import short_errors
from kafka_source.errors import NEW_OUTPUT, InvalidConfigurationError
from kafka_source.group.siblings import Siblings
from kafka_source.model import driver_figures
from kafka_source.model.stream_offset import RecentOffsets, StreamOffset
from kafka_source.options import Where
from kafka_source.quota.bounds import QuotaSettings
from kafka_source.runtime import spark_processes
from kafka_source.runtime.spark_processes import driver_pid, leave_on_exit
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query, TaskBundle

if TYPE_CHECKING:
    from kafka_source.source.decoded_columns import Readers

log = logging.getLogger(__name__)

HAS_READ_LIMITS = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
"""Whether this is Spark 4.2 or later."""

_ANY_BYTES = (1 << 63) - 1


@short_errors
class _StreamReader(DataSourceStreamReader):
    """The part of the stream reader that all versions of Spark share.

    Args:
        given: The options as the user wrote them.
        schema: The columns to read.
        readers: The schemas of decoded columns, fixed in `load()`; None: not fixed yet, or no column is decoded.

    Raises:
        OptionError: An option is wrong.
        KafkaGroupError: The schema registry does not have the values' schema, or does not answer.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, readers: Readers | None = None) -> None:
        self._query = Query.of(given, schema, Where.STREAM, readers)
        self._planner: MicroBatches | None = None
        self._offsets = RecentOffsets()
        self._leave: Callable[[], None] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return an offset without partitions, because the first batch resolves the positions."""
        return StreamOffset().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the input partitions of the batch from `start` to `end`."""
        self._check_group(end)
        return list(self._batches().tasks(self._offsets.parse(start), self._offsets.parse(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of one input partition, in an executor."""
        if not isinstance(partition, TaskBundle):
            raise TypeError(f"an input partition of another source: {type(partition).__name__}")
        spark_processes.prepare_worker(self._query.options.log_level, self._query.options.log_format)
        return read_task.read_bundle(partition, self._query)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: `latestOffset` has committed `end` before it planned the next batch."""

    def stop(self) -> None:
        """Leave the group."""
        if self._leave is not None:
            self._leave()
            self._planner = self._leave = None

    def _next(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """Return the end offset of the next micro-batch, with the driver's figures; `start` if there is nothing new."""
        self._check_group(start)
        batches, before = self._batches(), self._offsets.parse(start)
        end = batches.next(before, limited=limited)
        if end is before:
            if batches.has_stopped:
                # A source cannot end a query. Spark continues to request offsets, and a resumed group reads again.
                self.stop()
            return start
        # Spark shows the offset in the query's progress. `StreamOffset.from_json` ignores the figures.
        shown = {**end.to_json(), driver_figures.KEY: batches.figures(with_latest=not HAS_READ_LIMITS).to_json()}
        quota = batches.quota()
        if quota is not None:
            log.info("quota %s", quota)
            shown["quota"] = quota
        self._offsets.add(shown, end)
        return shown

    def _check_group(self, offset: Mapping[str, Any]) -> None:
        """Refuse another group's checkpoint, because its positions would replace this group's positions.

        Raises:
            InvalidConfigurationError: The offset is of another group.
        """
        options, before = self._query.options, driver_figures.group_of(offset)
        if options.strict and options.in_group and before not in (None, options.group_id):
            raise InvalidConfigurationError(
                f"The checkpoint is of a query in group {before}, and kafka.group.id is {options.group_id}: the query "
                f"would continue at positions of group {before}. Give the query a new checkpointLocation, or set "
                f"kafka.group.id to {before}. To continue at these positions, set strict to false for one start. "
                f"{NEW_OUTPUT}."
            )

    def _is_limited_otherwise(self) -> bool:
        """Whether `Admission` applies a limit that Spark does not know."""
        options = self._query.options
        bounds = (options.max_bytes_per_trigger, options.target_trigger_duration, QuotaSettings.of(options))
        return any(bound is not None for bound in bounds)

    def _batches(self) -> MicroBatches:
        if self._planner is None:
            options = self._query.options
            group = options.group_id
            siblings = Siblings.find(group, driver_pid()) if options.is_member and group is not None else None
            self._planner = MicroBatches(self._query, siblings)
            self._leave = leave_on_exit(self._planner.close)
            # With many partitions a plan makes so many objects that Python would collect garbage in every second plan.
            spark_processes.freeze_gc()
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a pickled reader; connections stay in the driver.
        return {**self.__dict__, "_planner": None, "_offsets": RecentOffsets(), "_leave": None}


@short_errors
class StreamReaderSpark40(_StreamReader):
    """The stream reader for Spark 4.0 and 4.1, which pass no start and no limits: the options' limits apply."""

    _last_end: dict[str, Any] | None = None

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark's name and signature
        """Return the end offset of the next micro-batch; the last end if there are no new records."""
        if self._last_end is None and self._has_limits():
            log.warning(
                "Spark %s does not tell a Python source its trigger: with Trigger.AvailableNow this query ends after "
                "one micro-batch within maxOffsetsPerTrigger, maxBytesPerTrigger, targetTriggerDuration or the quota. "
                "Run it again for the rest, or use Spark 4.2",
                pyspark.__version__,
            )
        self._last_end = self._next(self._last_end or self.initialOffset(), limited=True)
        return self._last_end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the input partitions of the batch, and keep `end` as the start of the next batch.

        After a restart Spark first requests an empty batch, which ends where the query stopped.
        """
        self._last_end = end
        return super().partitions(start, end)

    def _has_limits(self) -> bool:
        return self._query.options.max_offsets_per_trigger is not None or self._is_limited_otherwise()


if HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    @short_errors
    class StreamReaderSpark42(_StreamReader, SupportsTriggerAvailableNow):
        """The stream reader for Spark 4.2 and later."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
            """Return the options' limit; Spark replaces it by ReadAllAvailable for Trigger.Once."""
            options = self._query.options
            if self._query.new_policy().right is not None:
                # Spark calls this for every source before the first batch. A replayed batch is committed with the
                # credentials of its slots, so no source may cause a rebalance after another source has made its tasks.
                self._batches().join()
            limit = options.max_offsets_per_trigger
            limit = options.min_offsets_per_trigger if limit is None else limit
            if limit is None and self._is_limited_otherwise():
                # Spark only has to know that there is a limit.
                return ReadMaxBytes(options.max_bytes_per_trigger or _ANY_BYTES)
            return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
            """Return the end offset of the next micro-batch; `start` if there is nothing new."""
            return self._next(start, limited=not isinstance(limit, ReadAllAvailable))

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
            """Let this run end at the current latest offsets."""
            self._batches().stop_at_latest()

        def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
            """Return the latest offsets of the last lookup; None before the first trigger."""
            return self._batches().latest() or None


StreamReader: type[_StreamReader] = StreamReaderSpark42 if HAS_READ_LIMITS else StreamReaderSpark40
