"""What the soak checks on a cluster, in seconds: two exactly-once queries of one group that end and start again."""

from __future__ import annotations

import queue
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from assignors import TopicPartition
from kafka_source.model.stream_offset import StreamOffset
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.mixed_group import Worker
from tests.support.queries import Pipe
from tests.support.records import CommittedReader, produce
from tests.support.waiting import wait_until

PARTITIONS = 3
SEED = 34
ROUNDS = 2

Start = Callable[[list[StreamOffset] | None], Pipe]


class Driver(Worker):
    """A query that makes batch after batch in a thread, between which its driver ends and starts again.

    Args:
        start: Starts the query with the offsets of its checkpoint.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._ends: queue.SimpleQueue[tuple[Callable[[Pipe], object], threading.Event]] = queue.SimpleQueue()
        super().__init__()

    def end(self, last: Callable[[Pipe], object]) -> None:
        """Have it make a last batch, or a part of one, end there and start again; wait until it has."""
        started = threading.Event()
        self._ends.put((last, started))
        wait_until(lambda: (self.check(), started.is_set())[1], "the query to start again", 60)

    def _run(self) -> None:
        query = self._start(None)
        try:
            while not self._closing.wait(0.02):
                if self._ends.empty():
                    query.whole_batch()
                    continue
                last, started = self._ends.get()
                last(query)
                query.close()
                query = self._start(query.offsets)
                if len(query.offsets) > 1:
                    # Spark runs the last batch of the checkpoint again.
                    query.replay()
                    query.decide()
                started.set()
        finally:
            query.close()


def a_batch_that_fails(query: Pipe) -> None:
    if query.batch() >= 0:
        query.abort()


class Soak:
    """Two queries from one topic to another, and what happens to them."""

    def __init__(self, kafka: EmbeddedKafka, groups: Groups, group: str) -> None:
        self._kafka, self._groups, self._group = kafka, groups, group
        self.source = kafka.create_topic(f"{group}-in", PARTITIONS)
        self.sink = kafka.create_topic(f"{group}-out", 1)
        self.partitions, self.written = PARTITIONS, 0
        self._rng = random.Random(SEED)
        self._drivers = [Driver(partial(self._start, name)) for name in ("a", "b")]

    def _start(self, name: str, checkpoint: list[StreamOffset] | None) -> Pipe:
        return Pipe(
            self._kafka.bootstrap_servers,
            self.source,
            self.sink,
            self._group,
            f"{self._group}-{name}",
            checkpoint,
            maxOffsetsPerTrigger=40,
            kafka_metadata_max_age_ms=300,
            rebalance_batch_ms=100,
        )

    def run(self) -> None:
        book: list[Callable[[], object]] = [
            *(partial(self._end, last) for last in (Pipe.batch, Pipe.whole_batch, a_batch_that_fails)),
            self._transactions,
            self._one_more_partition,
        ]
        for _ in range(ROUNDS):
            for event in self._rng.sample(book, len(book)):
                print(event)
                self._write(50)
                event()
        self._write(100)
        wait_until(self._all_is_committed, "everything to be read and committed", 60)

    def _end(self, last: Callable[[Pipe], object]) -> None:
        self._rng.choice(self._drivers).end(last)

    def _write(self, count: int) -> None:
        produce(self._kafka.bootstrap_servers, self.source, count, first=self.written)
        self.written += count

    def _transactions(self) -> None:
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers, "transactional.id": self.source})
        producer.init_transactions(60)
        for commits in (False, True):
            producer.begin_transaction()
            for number in range(self.written, self.written + 10):
                producer.produce(self.source, str(number).encode())
            assert producer.flush(60) == 0
            producer.commit_transaction(60) if commits else producer.abort_transaction(60)
        self.written += 10

    def _one_more_partition(self) -> None:
        self.partitions += 1
        admin = self._kafka.admin()
        admin.create_partitions([NewPartitions(self.source, self.partitions)])[self.source].result(30)

    def _all_is_committed(self) -> bool:
        for driver in self._drivers:
            driver.check()
        tps = tuple(TopicPartition(self.source, number) for number in range(self.partitions))
        return all(row.committed == row.end and row.end for row in self._groups.lag(self._group, tps))

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()


@pytest.fixture
def soak(kafka: EmbeddedKafka, groups: Groups, group: str) -> Iterator[Soak]:
    with closing(Soak(kafka, groups, group)) as made:
        yield made


def test_every_record_comes_out_once_and_in_order_whatever_becomes_of_the_queries(
    kafka: EmbeddedKafka, soak: Soak
) -> None:
    """I1, I2 and I4; and the group has committed what is written, and no more."""
    with CommittedReader(kafka.bootstrap_servers, soak.sink) as out:
        soak.run()
        out.wait_for(soak.written)
    with CommittedReader(kafka.bootstrap_servers, soak.source, soak.partitions) as source:
        source.wait_for(soak.written)
    places = {value: (partition, offset) for partition, offset, _, value in source.records}
    assert len(places) == soak.written
    assert out.values == sorted(places)
    out.check_order()
    read = defaultdict(list)
    for *_, value in out.records:
        partition, offset = places[value]
        read[partition].append(offset)
    assert len(read) == soak.partitions
    assert all(offsets == sorted(offsets) for offsets in read.values())
