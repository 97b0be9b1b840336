"""Where to start and where to end: committed offsets, earliest, latest, JSON, timestamps; and what data loss means."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST, LATEST
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import DataLossError, InvalidConfigurationError, OptionError
from kafka_source.options import Options

log = logging.getLogger(__name__)


def starting(
    cluster: Cluster,
    options: Options,
    partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int | None],
    *,
    subscribed: Iterable[TopicPartition],
    default: str,
) -> dict[TopicPartition, int]:
    """Where each partition starts: at its committed offset, or where the starting options say.

    Args:
        cluster: To ask for offsets.
        options: startingTimestamp goes before startingOffsetsByTimestamp, that before startingOffsets.
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
    times = _times(options, "startingTimestamp", "startingOffsetsByTimestamp", subscribed)
    if times is not None:
        found = cluster.at_times({tp: times[tp] for tp in rest})
        unmatched = [tp for tp, offset in found.items() if offset is None]
        if unmatched and options["startingOffsetsByTimestampStrategy"] == "error":
            tp = unmatched[0]
            raise InvalidConfigurationError(
                f"No record of {tp.topic}-{tp.partition} is of time {times[tp]} (ms since 1970) or later. "
                "Choose an earlier time, or set startingOffsetsByTimestampStrategy to latest."
            )
        latest = _latest(cluster, options, unmatched)
        return known | {tp: latest[tp] if offset is None else offset for tp, offset in found.items()}
    wanted = options["startingOffsets"] or default
    if isinstance(wanted, dict):
        named = _named("startingOffsets", wanted, subscribed)
        return known | _resolve(cluster, options, {tp: named[tp] for tp in rest})
    return known | _resolve(cluster, options, dict.fromkeys(rest, LATEST if wanted == "latest" else EARLIEST))


def ending(
    cluster: Cluster, options: Options, partitions: Iterable[TopicPartition], *, subscribed: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where each partition of a batch read ends; precedence as in `starting`, latest where no record matches a time.

    Raises:
        OptionError: The ending JSON does not name exactly these partitions.
    """
    partitions = sorted(partitions)
    times = _times(options, "endingTimestamp", "endingOffsetsByTimestamp", subscribed)
    if times is not None:
        found = cluster.at_times({tp: times[tp] for tp in partitions})
        latest = _latest(cluster, options, [tp for tp, offset in found.items() if offset is None])
        return {tp: latest[tp] if offset is None else offset for tp, offset in found.items()}
    wanted = options["endingOffsets"]
    if isinstance(wanted, dict):
        named = _named("endingOffsets", wanted, subscribed)
        return _resolve(cluster, options, {tp: named[tp] for tp in partitions})
    return _latest(cluster, options, partitions)


def check_data_loss(
    cluster: Cluster, options: Options, starts: Mapping[TopicPartition, int]
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
        if options["failOnDataLoss"]:
            raise error
        moved[tp] = available[0] if start < available[0] else available[1]
        log.warning("%s (failOnDataLoss is false: reading goes on at %d)", error, moved[tp])
    return moved


def _latest(cluster: Cluster, options: Options, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return cluster.latest(partitions, read_committed=options["kafka.isolation.level"] == "read_committed")


def _resolve(cluster: Cluster, options: Options, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    found = cluster.earliest([tp for tp, offset in wanted.items() if offset == EARLIEST])
    found |= _latest(cluster, options, [tp for tp, offset in wanted.items() if offset == LATEST])
    return {tp: found.get(tp, offset) for tp, offset in wanted.items()}


def _times(
    options: Options, for_all: str, by_partition: str, subscribed: Iterable[TopicPartition]
) -> dict[TopicPartition, int] | None:
    if options[for_all] is not None:
        return dict.fromkeys(subscribed, options[for_all])
    if options[by_partition] is not None:
        return _named(by_partition, options[by_partition], subscribed)
    return None


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
