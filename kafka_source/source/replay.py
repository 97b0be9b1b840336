"""Batches that Spark has marked as finished without a read, and batches that Spark's own Kafka source has planned.

The commit policy (`commits`) decides which ranges a replay of kafkagroup's own batches reads.

A batch of Spark's own Kafka source is planned again. Spark's offset has the end of a batch, and the previous offset has
the batch's start. The first batch's start is in the checkpoint's file `sources/0/0`, but Spark does not give a Python
source the location of the checkpoint. So the options or a command have to give the first batch's start.
"""

import logging
from collections.abc import Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import LATEST
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import NEW_OUTPUT, DataLossError, InvalidConfigurationError
from kafka_source.group.classic.strategies import new_id
from kafka_source.model.partition_runs import format_moves
from kafka_source.model.stream_offset import Span, StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.source.option_bounds import AtTime, starting_bounds
from kafka_source.source.start_and_end import earliest_of_added, look_up, raise_or_warn

log = logging.getLogger(__name__)

# ---- a batch that Spark has finished without reading it

_UNWRITTEN = "unwritten-"


def new_unwritten_mark() -> str:
    """Return the id of a rewind to the start of a batch that the sink never wrote."""
    return _UNWRITTEN + new_id()


class UnreadBatches:
    """The batches of a checkpoint that Spark finishes without reading them."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        # The last planned batch with records, until Spark requests the batch's tasks.
        self._unread: StreamOffset | None = None
        # Whether it is possible that Spark has read no batch of this checkpoint.
        self._is_unproven = False
        self._is_told = False

    def planned(self, start: StreamOffset, end: StreamOffset) -> None:
        """Note a planned batch."""
        self._unread = end if records_of(end) else None
        self._is_unproven |= _begins_unwritten(start, end)

    def read(self) -> None:
        """Record that Spark requests the tasks of the planned batch."""
        if self._unread is not None:
            self._unread, self._is_unproven = None, False

    def check(self, start: StreamOffset) -> InvalidConfigurationError | None:
        """Check whether Spark skipped the batch that ends at `start`: the sink had a batch of this number already.

        Return an error if the checkpoint's first batch was skipped; log a warning, and return None, for a later batch.
        """
        if start != self._unread:
            return None
        self._unread = None
        refused = self._is_unproven and self._options.strict
        message = _describe_skipped(self._options, start, refused=refused)
        if refused:
            return InvalidConfigurationError(message)
        if not self._is_told:
            log.warning("%s", message)
        self._is_told = True
        return None


def records_of(batch: StreamOffset) -> dict[TopicPartition, Span]:
    """Return, by partition, the spans of a batch that have records."""
    return {tp: span for tp, span in batch.partitions.items() if span.end > span.start}


def _begins_unwritten(start: StreamOffset, end: StreamOffset) -> bool:
    """Return whether no batch was written before, because the checkpoint is new or all its batches were skipped."""
    followed = (tp for tp, mark in end.rewinds.items() if mark.startswith(_UNWRITTEN))
    return not start.partitions or any(start.rewinds.get(tp) != end.rewinds[tp] for tp in followed)


def _describe_skipped(options: ReadOptions, batch: StreamOffset, *, refused: bool) -> str:
    """Return the error, or the warning, for a batch that Spark has finished without reading it."""
    read = format_moves({tp: (span.start, span.end) for tp, span in records_of(batch).items()})
    text = f"Spark has finished a micro-batch without reading it, so these records are in no output: {read}."
    if not refused:
        return f"{text} This is no loss if no part of the query needs these records, or if the sink has them already."
    group = f" Group {options.group_id} keeps the micro-batch's starting offsets." if options.in_group else ""
    return (
        f"{text}{group} It is the first micro-batch of this checkpoint, and the sink has a micro-batch of the same "
        f"number from another checkpoint. {NEW_OUTPUT}. If no part of the query needs these records, set the option "
        "strict to false."
    )


# ---- a checkpoint of Spark's own source


def planned_batch(
    start: StreamOffset,
    end: StreamOffset,
    *,
    cluster: Cluster,
    options: ReadOptions,
    subscribed: Collection[TopicPartition],
    existing: Collection[TopicPartition],
) -> StreamOffset:
    """Return the end offset of a batch that Spark's source has planned, with the batch's starts added.

    Args:
        start: The batch's start offset, which has no partitions for a query's first batch.
        end: The batch's end offset, in Spark's form.
        cluster: The lookups of offsets.
        options: The query's options.
        subscribed: The partitions of the query's subscription.
        existing: The partitions of `end` that exist.

    Raises:
        DataLossError: With `failOnDataLoss`: a partition of the batch is deleted, begins above 0 although it is new, or
            ends before its start.
        InvalidConfigurationError: The start of the first batch is only in the checkpoint's directory `sources`.
    """
    starts = start.ends if start.partitions else _first_starts(cluster, options, existing, subscribed)
    for tp in sorted(set(starts) - set(end.partitions)):
        raise_or_warn(options, DataLossError.of_deleted(tp, planned=starts[tp]))
    added = [tp for tp in existing if tp not in starts]
    starts = {**starts, **earliest_of_added(cluster, options, added)}
    spans, ends = {}, end.ends
    for tp in existing:
        first, last = starts[tp], ends[tp]
        if first > last:
            raise_or_warn(options, DataLossError.of_lower_end(tp, planned=first, end=last))
        spans[tp] = Span(min(first, last), last, -1)
    return StreamOffset(
        spans, min_partitions=options.min_partitions, max_records=options.max_records_per_partition, stream=end.stream
    )


def _first_starts(
    cluster: Cluster,
    options: ReadOptions,
    partitions: Collection[TopicPartition],
    subscribed: Collection[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """Return the start of a query's first batch, if the options always resolve to the same offsets."""
    known = [tp for tp in partitions if tp in subscribed]
    bounds = starting_bounds(options, known, subscribed=subscribed, default="latest")
    has_time = options.starting_offsets_by_timestamp_strategy == "error"
    if any(bound == LATEST or (isinstance(bound, AtTime) and not has_time) for bound in bounds.values()):
        raise InvalidConfigurationError(
            "Spark's own Kafka source has planned the first batch of this query and not finished it. The batch's start "
            "is only in the directory sources of the checkpoint, which Spark does not show to this source. Run "
            "`kafkagroup import-checkpoint CHECKPOINT --yes`, then start the query again."
        )
    return {tp: one.offset for tp, one in look_up(cluster, options, bounds, matches=True).items()}
