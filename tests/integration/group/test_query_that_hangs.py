"""Liveness is tied to progress (KIP-62): a query that hangs gives its partitions up, and comes back."""

import functools
import logging
import threading
import time

import pytest

from assignors import TopicPartition
from kafka_source.group.model import BatchInFlight
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.support.memberships import everything, held, members_of
from tests.support.records import produce, stream
from tests.support.waiting import wait_until

PARTITIONS = 4
SECONDS = 60


class Sink:
    """Collects a stream's values, and hangs in the first batch that comes when it has been told to."""

    def __init__(self):
        self.values = []
        self.hangs, self.hanging, self.released = threading.Event(), threading.Event(), threading.Event()
        self.late = []

    def __call__(self, frame, _):
        found = [int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect()]
        self.values += found
        if found and self.hangs.is_set() and not self.hanging.is_set():
            self.late = found
            self.hanging.set()
            self.released.wait(120)


@pytest.mark.parametrize("joins", [pytest.param("before it hangs", marks=pytest.mark.long), "while it hangs"])
def test_a_consumer_beside_a_hung_query_gets_all_partitions(spark, kafka, topic, group, tmp_path, joins):
    servers, name = kafka.bootstrap_servers, topic("hung", partitions=PARTITIONS)
    frame = stream(
        spark,
        kafka,
        name,
        kafka_group_id=group,
        group_members=2,
        startingOffsets="earliest",
        kafka_max_poll_interval_ms=8_000,
        kafka_heartbeat_interval_ms=300,
    )
    sink = Sink()
    other: ConfluentConsumer | None = None
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        produce(servers, name, 100)
        wait_until(lambda: len(sink.values) == 100, "the first records")
        if joins == "before it hangs":
            early = other = ConfluentConsumer(servers, group, name)
            wait_until(lambda: bool(early.assigned), "a share for the consumer", SECONDS)
        sink.hangs.set()
        written = 100

        def hangs():
            # Again: on a slow machine the query is late before it hangs, and the consumer has the records.
            nonlocal written
            produce(servers, name, 100, first=written)
            written += 100
            return sink.hanging.wait(10)

        wait_until(hangs, "a batch that hangs", SECONDS)
        beside = other = other or ConfluentConsumer(servers, group, name)
        wait_until(lambda: len(beside.assigned) == PARTITIONS, "all partitions for the consumer", SECONDS)

        def theirs():
            return {value for _, _, value in beside.records}

        # Nothing of the late batch was committed.
        wait_until(lambda: theirs() >= set(sink.late), "the records of the late batch", SECONDS)
        assert all(member is None for member in members_of(kafka, group))
        sink.released.set()
        wait_until(lambda: 0 < len(beside.assigned) < PARTITIONS, "the query to come back", SECONDS)
        produce(servers, name, 100, first=written)
        wait_until(lambda: theirs() | set(sink.values) == set(range(written + 100)), "all records", SECONDS)
        assert query.isActive
    finally:
        sink.released.set()
        query.stop()
        if other is not None:
            other.close()


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, "kafka_source.group")
    return lambda: [line for line in caplog.messages if line.startswith("leave ") and "max.poll.interval.ms=" in line]


def test_only_a_query_with_a_batch_and_others_beside_it_leaves(members, kafka, topic, group, told):
    name = topic("late", partitions=PARTITIONS)
    late = members.make(name, slots=2, app="late", rebalance_timeout_ms=2_000)
    late.join(30)
    with late.rebalance_paused():
        late.set_batch_in_flight(BatchInFlight({TopicPartition(name, 0): 7}))
    other = members.make(name, slots=1, app="other", rebalance_timeout_ms=60_000)
    # Alone it stays, however late it is; somebody who joins need not wait for it any longer.
    wait_until(functools.partial(_is_late, late, 3.0), "time to pass")
    assert told() == []
    other.join(30)
    assert held(other) == everything(name, PARTITIONS)
    assert members_of(kafka, group) == [f"{group}-other-0"]
    [line] = told()
    assert "max.poll.interval.ms=2000" in line
    reason = late.lost()
    assert reason is not None
    assert "no batch was requested" in reason


def _is_late(membership, seconds):
    called_at = membership._background._called_at
    return called_at is not None and time.monotonic() - called_at > seconds
