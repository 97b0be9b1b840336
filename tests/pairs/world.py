"""The broker's side of a draw: its topics, its records, its group."""

import itertools
import os
from collections import Counter
from collections.abc import Mapping

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.schema import source_schema
from kafka_source.source.batch import BatchReader
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.pairs.draws import Draw
from tests.pairs.model import BEYOND, COMMITTED, FIRST_TIMESTAMP, T2, TARGETS, TIMESTAMP, TRUNCATED, Record, written
from tests.pairs.queries import Names
from tests.support.records import create_again
from tests.support.waiting import wait_until

_numbers = itertools.count(1)
_T, _U = 2, 1


class World:
    """Topics and a group of their own for one draw.

    Args:
        kafka: The broker of all draws.
        admin: Its admin client.
        draw: The draw.
    """

    def __init__(self, kafka: EmbeddedKafka, admin: AdminClient, draw: Draw) -> None:
        self._kafka, self._admin, self._draw = kafka, admin, draw
        self.names = Names(kafka.bootstrap_servers, f"pair-{os.getpid()}-{next(_numbers)}")
        self.settings = Settings({"bootstrap.servers": kafka.bootstrap_servers})
        self.groups = Groups(self.settings)
        self.records = written(draw)
        self._codes = {code_of(r): r for r in self.records}
        self._producer: Producer | None = None
        kafka.create_topic(self.names.topic("t"), _T)
        kafka.create_topic(self.names.topic("u"), _U)
        if draw.commit == "sink":
            kafka.create_topic(self.names.sink, 1)
        self.write("first")
        if draw.membership != "none" and draw.start == "committed":
            self.groups.create(self.names.group, dict.fromkeys(self.partitions(), COMMITTED))

    def partitions(self) -> list[TopicPartition]:
        """Those that the query starts with."""
        t, u = self.names.topic("t"), self.names.topic("u")
        return [*(TopicPartition(t, n) for n in range(_T)), TopicPartition(u, 0)]

    def write(self, phase: str) -> None:
        """Write the records of a phase."""
        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.names.servers, "linger.ms": 1, "log_level": 2})
        failures: list[object] = []
        for r in self.records:
            if r.phase == phase:
                self._producer.produce(
                    self.names.topic(r.topic),
                    str(code_of(r)).encode(),
                    partition=r.partition,
                    timestamp=FIRST_TIMESTAMP + r.offset + (TIMESTAMP if r.place == T2 or r.life > 1 else 0),
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
        assert self._producer.flush(30) == 0
        assert not failures, failures

    def records_of(self, counts: Mapping[int, int]) -> Counter[Record]:
        """Counts by record; a value that nobody has written is an error."""
        return Counter({self._codes[code]: count for code, count in counts.items()})

    # ---- events

    def add_partition(self) -> None:
        topic = self.names.topic("t")
        self._admin.create_partitions([NewPartitions(topic, _T + 1)])[topic].result(10)
        admin = self._admin
        wait_until(
            lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == _T + 1, "the partition"
        )
        self._producer = None
        self.write("event")

    def delete_topic(self) -> None:
        self._kafka.delete_topic(self.names.topic("t"))

    def create_again(self) -> None:
        self.delete_topic()
        create_again(self._kafka, self.names.topic("t"), _T)
        # Brokers delete the offsets of a deleted topic a moment later.
        topic = self.names.topic("t")
        if self._draw.membership != "none":
            wait_until(lambda: all(tp.topic != topic for tp in self.committed()), "the topic's offsets to be deleted")
        self._producer = None
        self.write("event")

    def truncate(self) -> None:
        place = Place(self.names.topic("t"), 0, TRUNCATED)
        self._admin.delete_records([place])[place].result(10)

    def set_beyond(self) -> None:
        """Set the group's offset beyond the end; the query is stopped."""
        self._rewind({TopicPartition(self.names.topic("t"), 0): BEYOND}, checkpoints_follow=False)

    def rewind(self) -> None:
        """Rewind the stopped group."""
        self._rewind(self.rewound, checkpoints_follow=True)

    @property
    def rewound(self) -> dict[TopicPartition, int]:
        return {TopicPartition(self.names.topic("t"), n): TARGETS[self._draw.target] for n in range(_T)}

    def _rewind(self, offsets: Mapping[TopicPartition, int], *, checkpoints_follow: bool) -> None:
        self.wait_until_empty()
        self.groups.rewind(self.names.group, offsets, checkpoints_follow=checkpoints_follow)

    def wait_until_empty(self) -> None:
        """Wait until the group has no members, also no static ones of a query that has stopped."""
        gone = (None, "Empty", "Dead")
        wait_until(lambda: self.groups.states().get(self.names.group) in gone, "the group's members to leave")

    # ---- what came of it

    def sink_counts(self) -> Counter[int]:
        return counts_in_topic(self.names.servers, self.names.sink)

    def committed(self) -> dict[TopicPartition, int]:
        return self.groups.committed(self.names.group) if self._draw.membership != "none" else {}

    def ends(self) -> dict[TopicPartition, int]:
        """The end of each partition that exists and has records of the story."""
        last_life = 2 if self._draw.event == "topic created again" else 1
        found: dict[TopicPartition, int] = {}
        for r in self.records:
            if r.topic == "t" and (r.life != last_life or self._draw.event == "topic deleted"):
                continue
            tp = TopicPartition(self.names.topic(r.topic), r.partition)
            found[tp] = max(found.get(tp, 0), r.offset + 1)
        return found

    def close(self) -> None:
        """Delete the topics, so that the broker stays quick."""
        names = [self.names.topic(name) for name in ("t", "u", *(("sink",) if self._draw.commit == "sink" else ()))]
        self._admin.delete_topics(names)


def counts_in_topic(servers: str, topic: str) -> Counter[int]:
    """How often each record is in the topic that `commit=sink` writes, for a reader of committed records."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    reader = BatchReader(options, source_schema(headers=False))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return Counter(int(value.as_py()) for batch in batches for value in batch["value"])


def code_of(r: Record) -> int:
    """The record's value."""
    return ((("tu".index(r.topic) * 10 + r.life) * 10 + r.partition) * 1000) + r.offset
