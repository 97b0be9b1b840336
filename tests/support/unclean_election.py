"""Unclean elections: a broker that does not have a partition's last records is elected its leader."""

import contextlib
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError

from confluent_kafka import KafkaException

from kafkagroup.embedded import EmbeddedKafka
from tests.support.waiting import wait_until

LOSES_RECORDS = {"unclean.leader.election.enable": "true", "min.insync.replicas": 1}
"""The settings of a topic with two replicas that loses records with its leader."""


def lose_records(
    kafka: EmbeddedKafka, topic: str, write_lost: Callable[[], object], write_instead: Callable[[], object]
) -> None:
    """Have the follower of partition 0 lead without the last records; all nodes run again at the end.

    Args:
        kafka: Three nodes.
        topic: A topic with two replicas and `LOSES_RECORDS`.
        write_lost: Writes the records that are lost (acks=1).
        write_instead: Writes the records that the new leader has at their offsets.
    """
    (leader, replicas) = replicas_of(kafka, topic)[0]
    follower = next(node for node in replicas if node != leader)
    kafka.kill(follower)
    try:
        write_lost()
        kafka.kill(leader)
    finally:
        kafka.restart(follower)
    try:
        wait_until(lambda: leads(kafka, topic, follower), f"node {follower} to lead")
        write_instead()
    finally:
        kafka.restart(leader)
        kafka.wait_ready()


def leads(kafka: EmbeddedKafka, topic: str, node: int) -> bool:
    """Whether a node leads partition 0, as far as a broker answers."""
    with contextlib.suppress(KafkaException, FutureTimeoutError, KeyError):
        return replicas_of(kafka, topic)[0][0] == node
    return False


def replicas_of(kafka: EmbeddedKafka, topic: str) -> dict[int, tuple[int, list[int]]]:
    """The leader and the replicas of each partition."""
    found = kafka.admin().list_topics(topic, timeout=10).topics[topic].partitions
    return {number: (one.leader, list(one.replicas)) for number, one in found.items()}
