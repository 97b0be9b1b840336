"""A consumer of librdkafka in a group that commits every record as it comes, in a thread of the test's own process."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer


class ConfluentConsumer:
    """`records` are (partition, offset, value); `rebalances` counts how often it was assigned partitions."""

    def __init__(self, servers, group, topic):
        self.records, self.assigned, self.rebalances = [], [], 0
        self._closing = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "partition.assignment.strategy": "range",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 300,
            }
        )
        self._consumer.subscribe([topic], on_assign=lambda _, partitions: self._set(partitions))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _set(self, partitions):
        self.assigned = [p.partition for p in partitions]
        self.rebalances += 1

    def _run(self):
        while not self._closing.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.records.append((message.partition(), message.offset(), int(message.value() or b"")))
                self._consumer.commit(message=message, asynchronous=False)
        self._consumer.close()

    def close(self):
        """Leave the group."""
        self._closing.set()
        self._thread.join(30)
