"""Two kafka-python consumers use the `sticky` strategy. If one consumer leaves, the other keeps its partitions.

./run python -m examples.kafka_python_sticky [SERVERS]
"""

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
    """Yield a consumer that is a member of the group until the end of the block.

    Each consumer needs its own strategy object and its own thread that polls. kafka-python 3.0 joins in the background.
    If the join ends while no `poll` of the consumer runs, kafka-python discards the result, and the next `poll` joins
    again. With one thread for two consumers, each rebalance would end during the poll of the second consumer, and the
    first consumer would always discard its result.
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
        print(f"one member: the first has {after}")
        return alone, shared, after


if __name__ == "__main__":
    main(*sys.argv[1:2])
