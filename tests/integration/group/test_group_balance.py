"""`lag-balanced` in a real group: streams of different speed share a skewed backlog, and the slow one ends with less.

The streams run as Spark runs them, trigger by trigger, but without Spark: what counts is what the group gives them.
"""

import itertools
import json
import logging
import time

import pytest

from kafka_source.model.stream_offset import StreamOffset
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import read_bundle
from tests.support.memberships import together
from tests.support.mixed_group import Worker
from tests.support.queries import query_of
from tests.support.records import send, write_records
from tests.support.waiting import wait_until

PARTITIONS = 16
RECORDS = 80_000
TRIGGER_SECONDS = 0.1
INTERVAL = 2
"""The least seconds between two rebalances for the sake of balance; a user's group has minutes."""


def zipf(total, partitions):
    """How many records each partition gets: the second half as many as the first, the third a third of it, ..."""
    weights = [1 / rank for rank in range(1, partitions + 1)]
    sizes = [int(total * weight / sum(weights)) for weight in weights]
    return [sizes[0] + total - sum(sizes), *sizes[1:]]


def produce_skewed(servers, topic):
    partitions = (partition for partition, size in enumerate(zipf(RECORDS, PARTITIONS)) for _ in range(size))
    records = ({"value": str(number), "partition": partition} for number, partition in enumerate(partitions))
    write_records(servers, topic, records, {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000})


class Stream(Worker):
    """A stream that reads at most so many records in each trigger."""

    def __init__(self, servers, group, topic, per_trigger, **options):
        given = {
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.group.id": group,
            "group.members": "1",
            "kafka.session.timeout.ms": "10000",
            "kafka.heartbeat.interval.ms": "200",
            "kafka.partition.assignment.strategy": "lag-balanced",
            "assignor.options": json.dumps({"lag-balanced": {"interval": INTERVAL}}),
            "maxOffsetsPerTrigger": str(per_trigger),
            **options,
        }
        self.values: list[int] = []
        self.owned: dict[int, set[int]] = {}
        self._query = query_of(given)
        self._batches = MicroBatches(self._query)
        super().__init__()

    def _run(self):
        try:
            start = StreamOffset()
            while not self.closed:
                due = time.monotonic() + TRIGGER_SECONDS
                end = self._batches.next(start, limited=True)
                if end is not start:
                    self.owned[end.generation] = {tp.partition for tp in end.partitions}
                    for bundle in self._batches.tasks(start, end):
                        for rows in read_bundle(bundle, self._query):
                            self.values += [int(value) for value in rows["value"].to_pylist()]
                    start = end
                self._closing.wait(max(0.0, due - time.monotonic()))
        finally:
            self._batches.close()


@pytest.fixture
def streams(kafka, group, request):
    def start(topic, per_trigger, **options):
        made = Stream(kafka.bootstrap_servers, group, topic, per_trigger, **options)
        request.addfinalizer(made.close)
        return made

    return start


def test_the_slow_one_of_two_streams_ends_with_less_of_a_skewed_backlog(kafka, topic, streams, caplog):
    caplog.set_level(logging.INFO, "kafka_source.group")
    name = topic("skewed", partitions=PARTITIONS)
    produce_skewed(kafka.bootstrap_servers, name)
    slow, fast = streams(name, 100), streams(name, 1000)

    def done():
        for stream in (slow, fast):
            stream.check()
        return len(slow.values) + len(fast.values) >= RECORDS

    wait_until(done, "all records to be read", 120)
    for stream in (slow, fast):
        stream.close()
    assert sorted([*slow.values, *fast.values]) == list(range(RECORDS))
    causes = [record.getMessage() for record in caplog.records if record.getMessage().startswith("balance group=")]
    assert causes
    assert all("the work is out of balance" in cause for cause in causes)
    # By number both would read half of the records, or whatever the larger partitions have. By time the slow stream
    # reads a tenth of what the fast one reads, and what it read before its speed was known.
    assert len(slow.values) < RECORDS / 4
    # The slow stream gave up partitions while it had records to read.
    generations = sorted(slow.owned)
    assert len(slow.owned[generations[-1]]) < PARTITIONS
    assert any(slow.owned[before] - slow.owned[after] for before, after in itertools.pairwise(generations))


def test_a_member_that_joins_gets_a_share_by_lag(kafka, topic, members):
    name = topic("known", partitions=4)
    for partition, size in enumerate((400, 10, 10, 10)):
        send(kafka, name, range(size), partition)
    first = members.make(name, strategies=["lag-balanced"], slots=1, app="first")
    first.join(30)
    (alone,) = first.assignment.slots
    assert len(alone.partitions) == 4
    first.commit({0: dict.fromkeys(alone.partitions, 0)})
    second = members.make(name, strategies=["lag-balanced"], slots=1, app="second")
    together(lambda: second.join(30), lambda: (wait_until(first.rebalance_needed, "a rebalance"), first.rejoin(30)))
    shares = [{tp.partition for tp in membership.assignment.slots[0].partitions} for membership in (first, second)]
    # Without lags each would have two of the four.
    assert sorted(map(len, shares)) == [1, 3]
    assert {0} in shares
