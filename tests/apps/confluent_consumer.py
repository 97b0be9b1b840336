"""A consumer of librdkafka in a group that commits every record as it comes, in a thread of the test's own process."""

import threading

from confluent_kafka import Consumer, KafkaError, KafkaException

# What the brokers refuse a commit with while they move partitions; the record is read again.
_MOVED = (KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH, KafkaError.REBALANCE_IN_PROGRESS)


class ConfluentConsumer:
    """`records` are (partition, offset, value); `rebalances` counts how often it was assigned partitions.

    With the protocol `consumer` the brokers assign the partitions (KIP-848).
    """

    def __init__(self, servers, group, topic, protocol="classic", strategy="range"):
        self.records, self.assigned, self.rebalances = [], [], 0
        self._protocol = protocol
        self._closing = threading.Event()
        classic = {
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 300,
        }
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **(classic if protocol == "classic" else {}),
            }
        )
        self._consumer.subscribe([topic], on_assign=self._count)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _count(self, *_):
        self.rebalances += 1

    def _run(self):
        while not self._closing.is_set():
            message = self._consumer.poll(0.1)
            self.assigned = [p.partition for p in self._consumer.assignment()]
            if message is not None and message.error() is None:
                self.records.append((message.partition(), message.offset(), int(message.value() or b"")))
                try:
                    self._consumer.commit(message=message, asynchronous=False)
                except KafkaException as error:
                    if self._protocol == "classic" or error.args[0].code() not in _MOVED:
                        raise
        self._consumer.close()

    def close(self):
        """Leave the group."""
        self._closing.set()
        self._thread.join(30)
