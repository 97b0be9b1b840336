"""Options in JSON as one number a partition: offsets or timestamps by partition, and topics that start at a word.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import EARLIEST, LATEST
from kafka_source.errors import OptionError
from kafka_source.options.kinds import StartingValues, TopicWord

_SENTINELS: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST}


def exactly(
    option: str, values: Mapping[str, Mapping[int, int]], subscribed: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the value of each partition of an option that must name exactly the partitions of the subscription.

    Raises:
        OptionError: It names others.
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


def starts(
    wanted: StartingValues,
    partitions: Collection[TopicPartition],
    subscribed: Collection[TopicPartition],
    *,
    default: TopicWord,
    may_come: bool,
) -> dict[TopicPartition, int]:
    """Return the offset at which each partition starts; -2 is earliest and -1 is latest.

    JSON of offsets only must name exactly the partitions of the subscription, as in Spark. With a word for a topic,
    topics that are not named start at the default, and a topic that is named by its partitions must name all of its
    own.

    Args:
        wanted: The value of `startingOffsets`.
        partitions: The partitions to resolve.
        subscribed: All partitions of the query's subscription.
        default: Where topics start that are not named.
        may_come: Whether a named topic need not exist yet, as with `subscribePattern`.

    Raises:
        OptionError: The JSON names partitions or topics that are not those of the subscription.
    """
    offsets = {topic: of_it for topic, of_it in wanted.items() if isinstance(of_it, dict)}
    words = {topic: of_it for topic, of_it in wanted.items() if isinstance(of_it, str)}
    if not words:
        flat = exactly("startingOffsets", offsets, subscribed)
        return {tp: flat[tp] for tp in partitions}
    known = {tp.topic for tp in subscribed}
    if not may_come and (unknown := sorted(wanted.keys() - known)):
        raise OptionError("startingOffsets", wanted, f"only topics that this query reads, which {unknown[0]} is not")
    named = {tp.topic for tp in partitions} & offsets.keys()
    flat = exactly(
        "startingOffsets",
        {topic: offsets[topic] for topic in named},
        [tp for tp in subscribed if tp.topic in named],
    )
    return {tp: flat.get(tp, _SENTINELS[words.get(tp.topic, default)]) for tp in partitions}
