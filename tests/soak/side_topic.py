"""A topic that is deleted, grows and loses records, beside the input that must come out whole."""

import contextlib

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions

from kafkagroup.embedded import EmbeddedKafka
from tests.support.unclean_election import LOSES_RECORDS, lose_records, replicas_of
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
        self._kafka.create_topic(SIDE, self._partitions, 2, LOSES_RECORDS)

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
        wait_until(lambda: len(replicas_of(self._kafka, SIDE)) == self._partitions, "the new partition", 60)
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
        lose_records(self._kafka, SIDE, self.write, self.write)
