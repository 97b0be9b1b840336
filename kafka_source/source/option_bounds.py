"""The starts and ends that the options give for partitions, before any offset is looked up. Pure.

`startingTimestamp` takes precedence over `startingOffsetsByTimestamp`, and both over `startingOffsets`. The ending
options have the same precedence.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST, LATEST
from kafka_source.errors import OptionError
from kafka_source.options import ReadOptions
from kafka_source.options.kinds import PartitionValues, StartingValues, TopicWord


class AtTime(NamedTuple):
    """The first record with this timestamp or a later one.

    Attributes:
        ms: The timestamp in ms since 1970.
    """

    ms: int


Bound = int | AtTime
"""An offset, `EARLIEST`, `LATEST`, or a time."""

_SENTINELS: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}


def starting_bounds(
    options: ReadOptions,
    partitions: Iterable[TopicPartition],
    *,
    subscribed: Collection[TopicPartition],
    default: TopicWord,
) -> dict[TopicPartition, Bound]:
    """Return the starts of partitions that have no committed offset.

    Args:
        options: The query's options.
        partitions: The partitions.
        subscribed: All partitions of the query's subscription; JSON options must name exactly these.
        default: The value of `startingOffsets` if the user has not set it.

    Raises:
        OptionError: The starting JSON does not name exactly the partitions of the subscription.
    """
    partitions = sorted(partitions)
    if not partitions:
        return {}
    by_time = options.starting_offsets_by_timestamp
    times = _times("startingOffsetsByTimestamp", options.starting_timestamp, by_time, subscribed)
    if times is not None:
        return {tp: times[tp] for tp in partitions}
    wanted = default if options.starting_offsets is None else options.starting_offsets
    if isinstance(wanted, dict):
        may_come = options.subscribe_pattern is not None
        return {**_starts_of_json(wanted, partitions, subscribed, default=default, may_come=may_come)}
    return dict.fromkeys(partitions, LATEST if wanted == "latest" else EARLIEST)


def ending_bounds(
    options: ReadOptions, partitions: Iterable[TopicPartition], *, subscribed: Collection[TopicPartition]
) -> dict[TopicPartition, Bound]:
    """Return the ends of a batch's partitions, by default the latest offsets; see `starting_bounds`."""
    times = _times(
        "endingOffsetsByTimestamp", options.ending_timestamp, options.ending_offsets_by_timestamp, subscribed
    )
    if times is not None:
        return {tp: times[tp] for tp in partitions}
    if isinstance(options.ending_offsets, dict):
        by_partition = _exactly("endingOffsets", options.ending_offsets, subscribed)
        return {tp: by_partition[tp] for tp in partitions}
    return dict.fromkeys(partitions, LATEST)


def starting_words(options: ReadOptions) -> dict[str, TopicWord]:
    """Return the topics for which `startingOffsets` has a word (`earliest` or `latest`)."""
    wanted = options.starting_offsets
    if starts_by_time(options) or not isinstance(wanted, dict):
        return {}
    return {topic: word for topic, word in wanted.items() if isinstance(word, str)}


def starts_by_time(options: ReadOptions) -> bool:
    """Return whether reading starts at a time."""
    return options.starting_timestamp is not None or options.starting_offsets_by_timestamp is not None


def _times(
    option: str, for_all: int | None, by_partition: PartitionValues | None, subscribed: Collection[TopicPartition]
) -> dict[TopicPartition, AtTime] | None:
    """Return the time of each partition; None if the options give no times.

    Args:
        option: The name of the option whose value is the argument `by_partition`, for the error.
        for_all: One time for all partitions; takes precedence.
        by_partition: A time for each partition.
        subscribed: The partitions of the query's subscription.

    Raises:
        OptionError: `by_partition` does not name exactly these partitions.
    """
    if for_all is not None:
        return dict.fromkeys(subscribed, AtTime(for_all))
    if by_partition is None:
        return None
    return {tp: AtTime(ms) for tp, ms in _exactly(option, by_partition, subscribed).items()}


def _exactly(
    option: str, values: Mapping[str, Mapping[int, int]], subscribed: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the value of each partition; the option must name exactly the partitions of the subscription.

    Raises:
        OptionError: The option names other partitions.
    """
    expected = set(subscribed)
    flat = {TopicPartition(topic, p): value for topic, parts in values.items() for p, value in parts.items()}
    if set(flat) != expected:
        missing = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(expected - set(flat)))
        unknown = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(set(flat) - expected))
        difference = "; ".join(
            part for part in (missing and f"not named: {missing}", unknown and f"not of this query: {unknown}") if part
        )
        raise OptionError(
            option,
            values,
            f"a value for exactly the partitions that are read ({difference})",
            condition="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            if "ByTimestamp" in option
            else "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
        )
    return flat


def _starts_of_json(
    wanted: StartingValues,
    partitions: Collection[TopicPartition],
    subscribed: Collection[TopicPartition],
    *,
    default: TopicWord,
    may_come: bool,
) -> dict[TopicPartition, int]:
    """Return the offset at which each partition starts; -2 is earliest and -1 is latest.

    JSON that has only offsets must name exactly the partitions of the subscription, as in Spark. JSON with a word for a
    topic may leave out other topics, which start at the default. A topic without a word must name all its partitions.

    Args:
        wanted: The value of `startingOffsets`.
        partitions: The partitions to resolve.
        subscribed: All partitions of the query's subscription.
        default: The start of topics that are not named.
        may_come: Whether named topics may be missing, as with `subscribePattern`.

    Raises:
        OptionError: The JSON names partitions or topics that the subscription lacks.
    """
    offsets = {topic: of_it for topic, of_it in wanted.items() if isinstance(of_it, dict)}
    words = {topic: of_it for topic, of_it in wanted.items() if isinstance(of_it, str)}
    if not words:
        flat = _exactly("startingOffsets", offsets, subscribed)
        return {tp: flat[tp] for tp in partitions}
    known = {tp.topic for tp in subscribed}
    if not may_come and (unknown := sorted(wanted.keys() - known)):
        raise OptionError("startingOffsets", wanted, f"only topics that this query reads, and not {unknown[0]}")
    named = {tp.topic for tp in partitions} & offsets.keys()
    flat = _exactly(
        "startingOffsets", {topic: offsets[topic] for topic in named}, [tp for tp in subscribed if tp.topic in named]
    )
    return {tp: flat.get(tp, _SENTINELS[words.get(tp.topic, default)]) for tp in partitions}
