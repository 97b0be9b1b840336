"""Changes of topics that need a rebalance: new, deleted and recreated topics, and new partitions.

Pure; `subscribed_topics` fetches the metadata.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_source.group.model import TopicFilter
from kafka_source.kafka_client import Snapshot
from kafka_source.model.partition_runs import first_names
from kafka_source.model.topic_pattern import matching

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class TopicState:
    """The properties of a topic on which an assignment depends."""

    partitions: int
    topic_id: uuid.UUID | None


def topics_of(subscription: TopicFilter, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the topics of a subscription, sorted.

    Args:
        subscription: Names, which are returned as they are, or a pattern, see `matching`.
        snapshot: The metadata of all topics if the subscription is a pattern; else it is not used.
    """
    if subscription.pattern is None:
        return tuple(sorted(set(subscription.topics)))
    return tuple(matching(subscription.pattern, snapshot.topics))


def states_of(snapshot: Snapshot, topics: Collection[str]) -> dict[str, TopicState]:
    """Return the state of the topics that exist."""
    return {
        name: TopicState(max(topic.partitions, default=-1) + 1, topic.topic_id)
        for name in topics
        if (topic := snapshot.topics.get(name)) is not None
    }


def changes(before: Mapping[str, TopicState], now: Mapping[str, TopicState]) -> list[str]:
    """Return a description of each change that needs a rebalance, sorted by topic."""
    found = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None and new is not None:
            found.append(f"topic {name} appeared with {new.partitions} partitions")
        elif old is not None and new is None:
            found.append(f"topic {name} is gone")
        elif old is not None and new is not None:
            if None not in (old.topic_id, new.topic_id) and old.topic_id != new.topic_id:
                found.append(f"topic {name} was deleted and recreated")
            elif old.partitions != new.partitions:
                found.append(f"topic {name} has {new.partitions} partitions, {old.partitions} before")
    return found


def reason_of(found: list[str]) -> str:
    """Return the changes as one reason for a rebalance."""
    return first_names(found, _MOST_NAMED, "; ")
