"""A group of the consumer protocol (KIP-848): the brokers assign its partitions, and no member leads.

A live group of classic members becomes such a group when a consumer of the new protocol joins it ("converted"), and a
classic group again when the last one leaves. A broker accepts classic members in it (`classicGroupJoinToConsumerGroup`)
and answers their JoinGroup without a leader and with the member's own first strategy. Nobody runs that strategy. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_source.errors import InvalidConfigurationError

ASSIGNOR = "brokers"
"""What stands for the assignor's name in logs; the brokers do not tell classic members which assignor they run."""

_KAFKAS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})


def refusal(group: str, strategies: Sequence[str], *, whatever: bool = False) -> InvalidConfigurationError | None:
    """Return the error to raise if the query relies on its strategy; None if the brokers' assignment will do.

    Kafka's own strategies promise only that each partition has one owner and that members have about equally many. The
    brokers promise the same. They know nothing of co-partitioned topics, copies or weights.

    Args:
        group: The group id.
        strategies: `kafka.partition.assignment.strategy`.
        whatever: Whether the query relies on them whatever they are: `range` keeps topics together, for example.
    """
    if not whatever and not _KAFKAS.isdisjoint(strategies):
        return None
    return InvalidConfigurationError(
        f"Group {group} has members of the consumer protocol (KIP-848), so the brokers assign its partitions and "
        f"kafka.partition.assignment.strategy={','.join(strategies)} has no effect. Let all members of the group use "
        "the classic protocol (group.protocol=classic), or give this query a group of its own. If the query does not "
        "rely on the strategy, set group.on.converted=continue."
    )


def warning(group: str, strategies: Sequence[str]) -> str:
    """Return what follows from the brokers' assignment for a query that goes on with it."""
    kept = not _KAFKAS.isdisjoint(strategies)
    promise = (
        "Each partition still has one owner"
        if kept
        else "What the strategy promises (co-partitioning, copies, weights, racks) is not kept: each partition has one "
        "owner, wherever the brokers place it"
    )
    return (
        f"Group {group} has members of the consumer protocol (KIP-848): the brokers assign its partitions, and "
        f"kafka.partition.assignment.strategy={','.join(strategies)} has no effect. {promise}. The brokers notice new "
        "partitions and topics, no member does, and rebalance.batch.ms has no effect. The group cannot be rewound "
        "while it runs. The group is a classic one again when its last member of the consumer protocol has left."
    )


def classic_again(group: str, strategy: str) -> str:
    """Return what to log when the last member of the consumer protocol has left."""
    return f"Group {group} is a classic group again: its leader assigns the partitions by {strategy}."
