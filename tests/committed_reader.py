"""A `read_committed` reader that runs while faults happen: what it saw is compared with what is there at the end."""

from __future__ import annotations

import threading
from types import TracebackType

from confluent_kafka import Consumer, TopicPartition

from tests.support import until


class CommittedReader:
    """Reads a topic from its start on; `records` are (partition, offset, key, value) in the order it saw them."""

    def __init__(self, servers: str, topic: str, partitions: int = 1) -> None:
        self.records: list[tuple[int, int, bytes | None, bytes]] = []
        self._partitions = partitions
        self._closing = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "committed-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    place = message.partition() or 0, message.offset() or 0
                    self.records.append((*place, message.key(), message.value() or b""))
        self._consumer.close()

    @property
    def values(self) -> list[bytes]:
        """What it saw so far, sorted."""
        return sorted(record[3] for record in list(self.records))

    def wait_for(self, count: int, seconds: float = 60) -> None:
        """Until it has seen so many records."""
        until(lambda: len(self.records) >= count, f"{count} records, of which it saw {len(self.records)}", seconds)

    def check_order(self) -> None:
        """No place was read twice, and none out of its order."""
        for partition in range(self._partitions):
            offsets = [record[1] for record in self.records if record[0] == partition]
            assert offsets == sorted(set(offsets))

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join(30)
