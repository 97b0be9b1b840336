"""Where to start and where to end: committed offsets, earliest, latest, JSON, timestamps; and what data loss means."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST, LATEST
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import DataLossError, InvalidConfigurationError, OptionError
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import PartitionValues

log = logging.getLogger(__name__)


def starting(
    cluster: Cluster,
    options: ReadOptions,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int | None],
    *,
    subscribed: Iterable[TopicPartition],
    default: str,
) -> dict[TopicPartition, int]:
    """Where each partition starts: at its committed offset, or where the starting options say.

    Args:
        cluster: To ask for offsets.
        options: startingTimestamp takes precedence over startingOffsetsByTimestamp, that over startingOffsets.
        partitions: Those whose start is asked for.
        committed: Of the group; empty without one.
        subscribed: All partitions of the query's subscription; JSON options must name exactly these.
        default: startingOffsets where it is not given: earliest or latest.

    Raises:
        OptionError: The starting JSON does not name exactly these partitions, or no record matches a timestamp.
    """
    partitions = sorted(partitions)
    known = {tp: offset for tp in partitions if (offset := committed.get(tp)) is not None}
    rest = [tp for tp in partitions if tp not in known]
    if not rest:
        return known
    by_partition = options.starting_offsets_by_timestamp
    times = _times("startingOffsetsByTimestamp", options.starting_timestamp, by_partition, subscribed)
    if times is not None:
        found = cluster.at_times({tp: times[tp] for tp in rest})
        unmatched = [tp for tp, offset in found.items() if offset is None]
        if unmatched and options.starting_offsets_by_timestamp_strategy == "error":
            tp = unmatched[0]
            raise InvalidConfigurationError(
                f"No record of {tp.topic}-{tp.partition} is of time {times[tp]} (ms since 1970) or later. "
                "Choose an earlier time, or set startingOffsetsByTimestampStrategy to latest."
            )
        latest = _latest(cluster, options, unmatched)
        return known | {tp: latest[tp] if offset is None else offset for tp, offset in found.items()}
    wanted = options.starting_offsets or default
    if isinstance(wanted, dict):
        named = _named("startingOffsets", wanted, subscribed)
        return known | _resolve(cluster, options, {tp: named[tp] for tp in rest})
    return known | _resolve(cluster, options, dict.fromkeys(rest, LATEST if wanted == "latest" else EARLIEST))


def ending(
    cluster: Cluster,
    options: ReadOptions,
    partitions: Iterable[TopicPartition],
    *,
    subscribed: Iterable[TopicPartition],
) -> dict[TopicPartition, int]:
    """Where each partition of a batch read ends; precedence as in `starting`, latest where no record matches a time.

    Raises:
        OptionError: The ending JSON does not name exactly these partitions.
    """
    partitions = sorted(partitions)
    by_partition = options.ending_offsets_by_timestamp
    times = _times("endingOffsetsByTimestamp", options.ending_timestamp, by_partition, subscribed)
    if times is not None:
        found = cluster.at_times({tp: times[tp] for tp in partitions})
        latest = _latest(cluster, options, [tp for tp, offset in found.items() if offset is None])
        return {tp: latest[tp] if offset is None else offset for tp, offset in found.items()}
    wanted = options.ending_offsets
    if isinstance(wanted, dict):
        named = _named("endingOffsets", wanted, subscribed)
        return _resolve(cluster, options, {tp: named[tp] for tp in partitions})
    return _latest(cluster, options, partitions)


def check_data_loss(
    cluster: Cluster, options: ReadOptions, starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The starts, with those moved that are no longer in the log, or an error.

    Args:
        cluster: The cluster.
        options: Of the query.
        starts: Where reading is to go on.

    Raises:
        DataLossError: failOnDataLoss is set and a start lies outside the log.
    """
    earliest = cluster.earliest(starts)
    # Behind the last stable offset there are records too: those of transactions that are open.
    latest = cluster.latest(starts, read_committed=False)
    moved = dict(starts)
    for tp, start in starts.items():
        available = (earliest[tp], latest[tp])
        if available[0] <= start <= available[1]:
            continue
        error = DataLossError(topic=tp.topic, partition=tp.partition, planned=start, available=available)
        if options.fail_on_data_loss:
            raise error
        moved[tp] = available[0] if start < available[0] else available[1]
        log.warning("%s (failOnDataLoss is false: reading goes on at %d)", error, moved[tp])
    return moved


def _latest(cluster: Cluster, options: ReadOptions, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return cluster.latest(partitions, read_committed=options.read_committed)


def _resolve(cluster: Cluster, options: ReadOptions, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    found = cluster.earliest([tp for tp, offset in wanted.items() if offset == EARLIEST])
    found |= _latest(cluster, options, [tp for tp, offset in wanted.items() if offset == LATEST])
    return {tp: found.get(tp, offset) for tp, offset in wanted.items()}


def _times(
    option: str, for_all: int | None, by_partition: PartitionValues | None, subscribed: Iterable[TopicPartition]
) -> dict[TopicPartition, int] | None:
    """Return the time (ms since 1970) for each partition; None if the options give none.

    Args:
        option: The name of the option that gives `by_partition`, for the error.
        for_all: One time for all partitions; takes precedence.
        by_partition: A time for each partition.
        subscribed: The partitions of the query's subscription.

    Raises:
        OptionError: `by_partition` does not name exactly these partitions.
    """
    if for_all is not None:
        return dict.fromkeys(subscribed, for_all)
    return None if by_partition is None else _named(option, by_partition, subscribed)


def _named(
    option: str, values: Mapping[str, Mapping[int, int]], subscribed: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    expected = set(subscribed)
    given = {TopicPartition(topic, p): value for topic, parts in values.items() for p, value in parts.items()}
    if set(given) != expected:
        missing = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(expected - set(given)))
        unknown = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(set(given) - expected))
        difference = "; ".join(
            part for part in (missing and f"not named: {missing}", unknown and f"not of this query: {unknown}") if part
        )
        raise OptionError(option, values, f"a value for exactly the partitions that are read ({difference})")
    return given
