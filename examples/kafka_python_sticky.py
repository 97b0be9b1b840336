"""Two kafka-python consumers use the `sticky` strategy; when one leaves, the other one keeps its partitions.

./run python -m examples.kafka_python_sticky [SERVERS]
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka import KafkaConsumer

from assignors.kafka_python import for_kafka_python
from examples.setting import ORDERS, PARTITIONS, kafka

GROUP = "sticky-consumers"
PATIENCE = 120.0


@contextmanager
def member(servers: str) -> Iterator[KafkaConsumer]:
    """Yield a member of the group; it leaves at the end of the block. Every consumer needs its own strategy object.

    A thread of its own polls the consumer. kafka-python 3.0 joins in the background, and throws the result away if no
    `poll` waits for it at that moment: the next `poll` joins again. One thread that polls two consumers in turn always
    misses the result of the one, because only the poll of the other one completes the rebalance.
    """
    consumer = KafkaConsumer(
        ORDERS,
        bootstrap_servers=servers,
        group_id=GROUP,
        partition_assignment_strategy=[for_kafka_python("sticky")],
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
    )
    leaving = threading.Event()

    def poll() -> None:
        while not leaving.is_set():
            consumer.poll(timeout_ms=500)

    polling = threading.Thread(target=poll, name="poll")
    polling.start()
    try:
        yield consumer
    finally:
        leaving.set()
        polling.join()
        consumer.close()


def held(consumer: KafkaConsumer) -> list[int]:
    return sorted(partition.partition for partition in consumer.assignment())


def wait_until(done: Callable[[], bool], *consumers: KafkaConsumer) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"group not stable after {PATIENCE:.0f} s: {[held(consumer) for consumer in consumers]}")
        time.sleep(0.05)


def main(servers: str | None = None) -> tuple[list[int], list[int], list[int]]:
    """Return the first member's partitions: alone, with a second member, and after the second member has left."""
    with kafka(servers) as bootstrap, member(bootstrap) as first:
        wait_until(lambda: len(held(first)) == PARTITIONS, first)
        alone = held(first)
        with member(bootstrap) as second:
            wait_until(lambda: len(held(first)) == len(held(second)) == PARTITIONS // 2, first, second)
            shared = held(first)
            print(f"two members: the first has {shared}, the second {held(second)}")
        wait_until(lambda: len(held(first)) == PARTITIONS, first)
        after = held(first)
        print(f"one left: the first has {after}")
        return alone, shared, after


if __name__ == "__main__":
    main(*sys.argv[1:2])
