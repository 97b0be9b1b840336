"""Continue a checkpoint of Spark's own Kafka source: plan again the batch that it has planned and not finished.

Spark's offsets say where a batch ends, and the offset before says where it starts. The start of a query's first batch
is in the file `sources/0/0` of the checkpoint. Spark does not tell a Python source where the checkpoint is, so this
start is resolved from the options, or, where they cannot give the same offsets again, imported by a command.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import LATEST
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import DataLossError, InvalidConfigurationError
from kafka_source.model.stream_offset import Span, StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import StartingValues
from kafka_source.source.start_and_end import earliest_of_added, raise_or_warn, starting_offsets


def planned_batch(
    start: StreamOffset,
    end: StreamOffset,
    *,
    cluster: Cluster,
    options: ReadOptions,
    subscribed: Collection[TopicPartition],
    existing: Collection[TopicPartition],
) -> StreamOffset:
    """Return the end offset of a batch of Spark's source with the starts that Spark's source would read from.

    Args:
        start: The batch's start offset; without partitions for a query's first batch.
        end: The batch's end offset, in Spark's form.
        cluster: Where to look up offsets.
        options: The query's options.
        subscribed: The partitions of the query's subscription.
        existing: The partitions of `end` that exist.

    Raises:
        DataLossError: `failOnDataLoss` is set, and a partition of the batch is gone, is new and does not begin at
            offset 0, or ends before its start.
        InvalidConfigurationError: Only the checkpoint's directory `sources` knows where the first batch starts.
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
    """Return where a query's first batch starts, if the options give the same offsets whenever they are resolved."""
    by_time = options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None
    wanted = "latest" if options.starting_offsets is None else options.starting_offsets
    if by_time:
        is_stable = options.starting_offsets_by_timestamp_strategy == "error"
    elif isinstance(wanted, dict):
        is_stable = all(_is_stable(wanted, topic) for topic in wanted.keys() | {tp.topic for tp in partitions})
    else:
        is_stable = wanted == "earliest"
    if not is_stable:
        raise InvalidConfigurationError(
            "Spark's own Kafka source has planned the first batch of this query and not finished it. Where the batch "
            "starts is only in the directory sources of the checkpoint, which Spark does not show to this source. Run "
            "`kafkagroup import-checkpoint CHECKPOINT --yes`, then start the query again."
        )
    known = [tp for tp in partitions if tp in subscribed]
    return starting_offsets(cluster, options, known, {}, subscribed=subscribed, default="latest")


def _is_stable(wanted: StartingValues, topic: str) -> bool:
    """Return whether no partition of a topic starts at latest, which is another offset at each look."""
    of_topic = wanted.get(topic, "latest")
    return LATEST not in of_topic.values() if isinstance(of_topic, dict) else of_topic == "earliest"
