"""A group of the consumer protocol (KIP-848): the brokers assign its partitions, and no member leads.

A broker accepts a classic member in such a group (`classicGroupJoinToConsumerGroup`), and answers its JoinGroup without
a leader and with the member's own first strategy. The strategy is not run by anybody. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_source.errors import InvalidConfigurationError

_KAFKAS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


def refusal(group: str, strategies: Sequence[str]) -> InvalidConfigurationError | None:
    """Return the error to raise if the query relies on its strategy; None if the brokers' assignment will do.

    Kafka's own strategies promise only that each partition has one owner and that members have about equally many. The
    brokers promise the same. They know nothing of co-partitioned topics, copies or weights.

    Args:
        group: The group id.
        strategies: `kafka.partition.assignment.strategy`.
    """
    if not _KAFKAS.isdisjoint(strategies):
        return None
    return InvalidConfigurationError(
        f"Group {group} has members of the consumer protocol (KIP-848), so the brokers assign its partitions and "
        f"kafka.partition.assignment.strategy={','.join(strategies)} has no effect. Let all members of the group use "
        "the classic protocol (group.protocol=classic), or give this query a group of its own; if it does not rely on "
        "the strategy, set kafka.partition.assignment.strategy=range."
    )


def warning(group: str, strategies: Sequence[str]) -> str:
    """Return what follows from the brokers' assignment for a query that can do with it."""
    return (
        f"Group {group} has members of the consumer protocol (KIP-848): the brokers assign its partitions, and "
        f"kafka.partition.assignment.strategy={','.join(strategies)} has no effect. The brokers notice new partitions "
        "and topics, no member does. rebalance.batch.ms has no effect."
    )
