"""Refuse offsets of another cluster (`cluster.moved.from`), and detect a topic that was deleted or created again.

A query that reaches another cluster fails. A topic that was deleted and created again has another id (KIP-516). Brokers
before Kafka 2.8 have no topic ids, so if one of two ids is unknown, the topics count as the same.
"""

from collections.abc import Iterable, Mapping

from kafka_source.errors import NEW_OUTPUT, DataLossError, InvalidConfigurationError
from kafka_source.model.stream_offset import Range, StreamOffset
from kafka_source.model.topic_selection import Topic

MOVED_FROM = "cluster.moved.from"
"""The option that allows a move to another cluster; its value is the id of the topics' previous cluster."""


def check_same_cluster(known: str | None, found: str | None, *, servers: str, moved_from: str | None) -> None:
    """Check that the offsets came from this cluster, or that the user has allowed the move.

    Args:
        known: The id of the cluster that the offsets came from; None: unknown.
        found: The id of the current cluster; None: its brokers send no id.
        servers: `bootstrap.servers`, for the message.
        moved_from: The value of the option `cluster.moved.from`; None: not set.

    Raises:
        InvalidConfigurationError: This is another cluster; the message contains both ids.
    """
    if known is None or found is None or known in (found, moved_from):
        return
    raise InvalidConfigurationError(
        f"The offsets of this query came from cluster {known}, but kafka.bootstrap.servers={servers} now leads to the "
        f"cluster {found}, where these offsets are not valid. Correct the servers, or start with a new "
        f"checkpointLocation. If the topics were migrated there with their offsets, set {MOVED_FROM}={known}. "
        f"{NEW_OUTPUT}."
    )


def is_recreated(before: str | None, now: str | None) -> bool:
    """Return whether both ids are known and belong to different topics."""
    return before is not None and now is not None and before != now


def describe_recreated(now: str | None) -> str:
    """Describe, for an error, a topic that was deleted and created again and has the id `now`."""
    return f"The topic was deleted and created again: its id is now {now}"


def lost_topic(offset: StreamOffset, name: str, now: Topic | None) -> DataLossError:
    """Return the error for a topic of `offset` that was deleted (`now` is None) or created again."""
    tp, span = next((tp, span) for tp, span in sorted(offset.partitions.items()) if tp.topic == name)
    reason = "The topic was deleted" if now is None else describe_recreated(now.id)
    return DataLossError.of_deleted(tp, planned=span.end, reason=reason)


def ids_of_ranges(ranges: Iterable[Range], ids: Mapping[str, str]) -> dict[str, str]:
    """Return the known topic ids of the topics in `ranges`."""
    return {name: ids[name] for name in {r.topic for r in ranges} & ids.keys()}
