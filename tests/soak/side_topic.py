"""A topic that is deleted, grows and loses records, beside the input that must come out whole."""

from __future__ import annotations

import contextlib
from concurrent.futures import TimeoutError as FutureTimeoutError

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions

from kafkagroup.embedded import EmbeddedKafka
from tests.support.waiting import wait_until

SIDE = "soak-side"


class SideTopic:
    """A topic of one partition at first, with two replicas, one of which may lead alone with fewer records.

    Attributes:
        written: All values that were ever written to it.
    """

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self._kafka = kafka
        self._partitions = 1
        self.written: set[int] = set()
        self._create()

    def _create(self) -> None:
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": 1}
        self._kafka.create_topic(SIDE, self._partitions, 2, config)

    def write(self, count: int = 20) -> set[int]:
        """Write new numbers; return them."""
        first = len(self.written)
        values = set(range(first, first + count))
        # Written here means in the leader's log alone.
        producer = Producer({"bootstrap.servers": self._kafka.internal_bootstrap_servers, "acks": "1"})
        for value in values:
            producer.produce(SIDE, str(value).encode(), partition=value % self._partitions)
        assert producer.flush(60) == 0
        self.written |= values
        return values

    def grow(self) -> None:
        """Add a partition."""
        self._partitions += 1
        # The future of a client that is garbage fails.
        admin = self._kafka.admin()
        admin.create_partitions([NewPartitions(SIDE, self._partitions)])[SIDE].result(60)
        wait_until(lambda: len(self._replicas()) == self._partitions, "the new partition", 60)
        self.write()

    def create_again(self) -> None:
        """Delete it and create it with as many partitions."""
        admin = self._kafka.admin()
        admin.delete_topics([SIDE])[SIDE].result(60)

        def created() -> bool:
            with contextlib.suppress(KafkaException):
                self._create()
                return True
            return False

        wait_until(created, f"{SIDE} to be created again", 60)
        self.write()

    def lose_records(self) -> None:
        """Have the follower of partition 0, which has not the last records, lead (an unclean election)."""
        self.write()
        leader, follower = self._leader_and_follower()
        self._kafka.kill(follower)
        try:
            self.write()
            self._kafka.kill(leader)
        finally:
            self._kafka.restart(follower)
        try:
            wait_until(lambda: self._leads(follower), f"node {follower} to lead", 60)
            self.write()
        finally:
            self._kafka.restart(leader)
            self._kafka.wait_ready()

    def _leader_and_follower(self) -> tuple[int, int]:
        leader, replicas = self._replicas()[0]
        return leader, next(node for node in replicas if node != leader)

    def _leads(self, node: int) -> bool:
        with contextlib.suppress(KafkaException, FutureTimeoutError, KeyError):
            return self._replicas()[0][0] == node
        return False

    def _replicas(self) -> dict[int, tuple[int, list[int]]]:
        """The leader and the replicas of each partition."""
        found = self._kafka.admin().list_topics(SIDE, timeout=10).topics[SIDE].partitions
        return {number: (one.leader, list(one.replicas)) for number, one in found.items()}
