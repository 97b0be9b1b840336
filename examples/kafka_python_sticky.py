"""Two kafka-python consumers use the `sticky` strategy; when one leaves, the other one keeps its partitions.

./run python -m examples.kafka_python_sticky [SERVERS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from kafka import KafkaConsumer

from assignors.kafka_python import for_kafka_python
from examples.setting import ORDERS, PARTITIONS, kafka

GROUP = "sticky-consumers"
PATIENCE = 120.0


def consumer(servers: str) -> KafkaConsumer:
    """Create a member of the group; every consumer needs its own strategy object."""
    return KafkaConsumer(
        ORDERS,
        bootstrap_servers=servers,
        group_id=GROUP,
        partition_assignment_strategy=[for_kafka_python("sticky")],
        heartbeat_interval_ms=500,
        # This example commits no offsets: a commit before each rebalance would block the thread that polls all members.
        enable_auto_commit=False,
    )


def held(member: KafkaConsumer) -> list[int]:
    return sorted(partition.partition for partition in member.assignment())


def poll_until(members: Sequence[KafkaConsumer], done: Callable[[], bool]) -> None:
    """Poll all members in turn until `done()` is true. (Real consumers would run in threads of their own.)"""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"group not stable after {PATIENCE:.0f} s: {[held(member) for member in members]}")
        for member in members:
            member.poll(timeout_ms=100)


def main(servers: str | None = None) -> tuple[list[int], list[int], list[int]]:
    """Return the first member's partitions: alone, with a second member, and after the second member has left."""
    with kafka(servers) as bootstrap:
        first = consumer(bootstrap)
        poll_until([first], lambda: len(held(first)) == PARTITIONS)
        alone = held(first)
        second = consumer(bootstrap)
        poll_until([first, second], lambda: len(held(first)) == len(held(second)) == PARTITIONS // 2)
        shared = held(first)
        print(f"two members: the first has {shared}, the second {held(second)}")
        second.close()
        poll_until([first], lambda: len(held(first)) == PARTITIONS)
        after = held(first)
        print(f"one left: the first has {after}")
        first.close()
        return alone, shared, after


if __name__ == "__main__":
    main(*sys.argv[1:2])
