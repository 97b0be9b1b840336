"""Comparisons of topic ids (KIP-516): offsets of a deleted topic mean nothing in a new topic of the same name.

Brokers before Kafka 2.8 have no topic ids. Where one of two ids is not known, the topics count as the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_source.errors import DataLossError
from kafka_source.model.stream_offset import Range, StreamOffset
from kafka_source.model.topic_selection import Topic


def differ(before: str | None, now: str | None) -> bool:
    """Return whether both ids are known and belong to different topics."""
    return before is not None and now is not None and before != now


def recreated(now: str | None) -> str:
    """Describe, for an error, a topic that was deleted and created again and has the id `now`."""
    return f"The topic was deleted and created again: its id is now {now}"


def lost_topic(offset: StreamOffset, name: str, now: Topic | None) -> DataLossError:
    """Return the error for a topic of `offset` that was deleted (`now` is None) or created again."""
    tp, span = next((tp, span) for tp, span in sorted(offset.partitions.items()) if tp.topic == name)
    reason = "The topic was deleted" if now is None else recreated(now.id)
    return DataLossError.of_deleted(tp, planned=span.end, reason=reason)


def only_of(ranges: Iterable[Range], ids: Mapping[str, str]) -> dict[str, str]:
    """Return the known topic ids of the topics in `ranges`."""
    return {name: ids[name] for name in {r.topic for r in ranges} & ids.keys()}
