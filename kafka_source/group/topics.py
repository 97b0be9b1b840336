"""The topics of the slots' subscription, and the changes that make the slots rejoin.

The changes are new, deleted and recreated topics, and new partitions. Only `SubscribedTopics` does I/O.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kafka_source.errors import OptionError, RetriableError
from kafka_source.group.model import GroupSettings, TopicFilter
from kafka_source.kafka_client import Deadline, KafkaClient, Snapshot
from kafka_source.model.partition_runs import first_names
from kafka_source.model.topic_pattern import matching

_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class TopicState:
    """The properties of a topic on which an assignment depends."""

    partitions: int
    topic_id: uuid.UUID | None


def topics_of(subscription: TopicFilter, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the topics of a subscription, sorted.

    Args:
        subscription: Names, which are returned as they are, or a pattern, see `matching`.
        snapshot: The metadata of all topics, used only if the subscription is a pattern.
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
    return first_names(found, _MAX_NAMED, "; ")


log = logging.getLogger(__name__)

_REQUEST_SECONDS = 30.0


class SubscribedTopics:
    """Describes the topics, on the event loop of the membership.

    A leader watches the topics of all members' subscriptions, with their partitions and topic ids. A follower with a
    pattern watches the names that match it. A follower without a pattern does not watch, because the leader does.

    Args:
        client: The client of the membership.
        settings: The interval between lookups, and the time for which changes are collected.
        subscription: The names or the pattern to which the slots subscribe.
        leads: Returns whether this query watches as the group's leader does.
    """

    def __init__(
        self, client: KafkaClient, settings: GroupSettings, subscription: TopicFilter, leads: Callable[[], bool]
    ) -> None:
        self._client = client
        self._settings = settings
        self._subscription = subscription
        self._leads = leads
        self._watched: dict[str, TopicState] = {}
        self._group_topics: frozenset[str] = frozenset()
        self.changed: str | None = None
        """The changes since the slots joined, as the reason for a rebalance."""

    async def look_up(self, deadline: Deadline) -> tuple[str, ...]:
        """Return the names of the topics to subscribe to, sorted.

        Raises:
            OptionError: The pattern takes too long for one of the cluster's topics.
        """
        if self._subscription.pattern is None:
            return topics_of(self._subscription, Snapshot(None, {}))
        snapshot = await self._client.metadata(None, deadline)
        topics = await self._subscribed(snapshot)
        self._watched = states_of(snapshot, topics)
        return topics

    def record_assignment(self, topics: Collection[str], snapshot: Snapshot) -> None:
        """Note the topics of all members' subscriptions, and the metadata from which a slot has assigned them."""
        self._group_topics = frozenset(topics)
        self._watched = states_of(snapshot, self._group_topics)

    async def watch(self) -> None:
        """Wait for the next lookup, look topics up once, and set `changed` if a rebalance is needed."""
        await asyncio.sleep(self._settings.metadata_max_age_ms / 1000)
        if self.changed is not None or not await self._changes():
            return
        # Topics are often changed in groups, so collect the changes of `rebalance_batch_ms` for one rebalance.
        await asyncio.sleep(self._settings.rebalance_batch_ms / 1000)
        found = await self._changes()
        if found and self.changed is None:
            self.changed = reason_of(found)
            log.info("topics group=%s changed=%r", self._settings.group, self.changed)

    async def _subscribed(self, snapshot: Snapshot) -> tuple[str, ...]:
        # In a thread, because a pattern may take long, and the event loop has to send heartbeats.
        return await asyncio.get_running_loop().run_in_executor(None, topics_of, self._subscription, snapshot)

    async def _changes(self) -> list[str]:
        leading = self._leads()
        by_pattern = self._subscription.pattern is not None
        if not leading and not by_pattern:
            return []
        before = self._watched
        try:
            snapshot = await self._client.metadata(
                None if by_pattern else self._group_topics, Deadline(_REQUEST_SECONDS)
            )
        except RetriableError as error:
            log.warning("metadata group=%s failed: %s", self._settings.group, error)
            return []
        try:
            names = set(await self._subscribed(snapshot))
        except OptionError as error:
            # The query's next call looks the topics up again, and ends with the error.
            return [str(error)]
        if not leading:
            return changes(dict.fromkeys(before, TopicState(0, None)), dict.fromkeys(names, TopicState(0, None)))
        found = changes(before, states_of(snapshot, names | self._group_topics))
        # If the slots have rejoined since the lookup began, they have the current topics already.
        return found if self._watched is before else []
