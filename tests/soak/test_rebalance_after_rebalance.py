"""A group of the consumer protocol (KIP-848) has a rebalance every 5 seconds for 45 minutes: no partition waits long.

    ./run test -m long tests/soak/test_rebalance_after_rebalance.py -s

KAFKAGROUP_SOAK_MINUTES=… chooses another duration, KAFKAGROUP_SEED=… the same lengths of micro-batches again, and
KAFKAGROUP_KAFKA_VERSION=4.0.1 brokers that refuse a commit with an older epoch: from 4.3 on they take it (KIP-1251).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kafka_source.client_config import Settings
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.options import Where
from kafka_source.schema import source_schema
from kafka_source.source import read_task
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.read_task import Query
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.support.mixed_group import Worker
from tests.support.restless import Place, committed_positions, say_to
from tests.support.waiting import wait_until

MINUTES = float(os.environ.get("KAFKAGROUP_SOAK_MINUTES", "45"))
SEED = int(os.environ.get("KAFKAGROUP_SEED", str(random.randrange(1 << 30))))
PARTITIONS = 24
EVERY_SECONDS = 5.0
# Each partition gets a record so often that one always waits.
PAUSE_SECONDS = 0.1
MAX_INTERVALS = 3


@dataclass(frozen=True)
class Read:
    """What a member read between two moments: a micro-batch, or what a poll of librdkafka's consumer has brought."""

    reader: str
    start: float
    end: float
    partitions: frozenset[int]


class Stream(Worker):
    """A query as Spark drives it, whose micro-batches take up to so many seconds.

    Attributes:
        name: Its name.
        reads: Its micro-batches.
        places: The records that it has read.
        offset: Its checkpoint.
    """

    def __init__(self, name: str, options: dict[str, str], longest: float, before: Stream | None = None) -> None:
        self.name, self._longest = name, longest
        self.reads: list[Read] = []
        self.places: list[Place] = []
        self.offset: StreamOffset = StreamOffset() if before is None else before.offset
        self._query = Query.of(options, source_schema(headers=False), Where.STREAM)
        self._chance = random.Random(f"{SEED} {name}")
        super().__init__()

    def _run(self) -> None:
        with contextlib.closing(MicroBatches(self._query)) as batches:
            while not self._closing.wait(0.02):
                end = batches.next(self.offset, limited=True)
                if end is not self.offset:
                    self._read(batches, end)
            batches.finished(self.offset)

    def _read(self, batches: MicroBatches, end: StreamOffset) -> None:
        began = time.monotonic()
        places: list[Place] = []
        for bundle in batches.tasks(self.offset, end):
            for records in read_task.read_bundle(bundle, self._query):
                places += zip(records["partition"].to_pylist(), records["offset"].to_pylist(), strict=True)
        time.sleep(self._chance.uniform(0, self._longest))
        self.offset = end
        self.places += places
        self.reads.append(Read(self.name, began, time.monotonic(), frozenset(partition for partition, _ in places)))


class Librdkafka(Worker):
    """A consumer of librdkafka, which commits what each poll brings.

    Attributes:
        reads: The polls.
        places: The records that it has read.
    """

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"}
        self._topic = topic
        self.reads: list[Read] = []
        self.places: list[Place] = []
        super().__init__()

    def _run(self) -> None:
        consumer = Consumer({**self._settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([self._topic])
        while not self._closing.is_set():
            found = [
                (one.partition() or 0, one.offset() or 0) for one in consumer.consume(1000, 0.1) if not one.error()
            ]
            if found:
                at = time.monotonic()
                self.places += found
                self.reads.append(Read("librdkafka", at, at, frozenset(partition for partition, _ in found)))
                # Refused where the brokers have moved a partition meanwhile; its next owner reads the records again.
                with contextlib.suppress(KafkaException):
                    consumer.commit(asynchronous=False)
        consumer.close()


class Flow(Worker):
    """Writes a record to each partition again and again.

    Attributes:
        count: The number of records in each partition.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic, self.count = servers, topic, 0
        super().__init__()

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        while not self._closing.wait(PAUSE_SECONDS):
            for partition in range(PARTITIONS):
                producer.produce(self._topic, str(self.count), partition=partition)
            producer.poll(0)
            self.count += 1
        assert producer.flush(60) == 0


class Restless:
    """Members that come and go: a query of ours and a consumer of librdkafka, each for two turns."""

    def __init__(self, servers: str, group: str, topic: str, options: dict[str, str]) -> None:
        self._servers, self._group, self._topic, self._options = servers, group, topic, options
        self._stream: Stream | None = None
        self._other: Librdkafka | None = None
        self._steps = itertools.cycle([self._stream_comes, self._other_comes, self._stream_goes, self._other_goes])
        self.streams: list[Stream] = []
        self.others: list[Librdkafka] = []
        self._leaving: list[threading.Thread] = []

    def step(self) -> None:
        """Let one join or leave; a rebalance follows."""
        next(self._steps)()

    def close(self) -> None:
        self._stream_goes()
        self._other_goes()
        for thread in self._leaving:
            thread.join()
        for stream in self.streams:
            stream.check()

    def _stream_comes(self) -> None:
        before = self.streams[-1] if self.streams else None
        self._stream = Stream(f"restless-{len(self.streams)}", self._options, 1.0, before)
        self.streams.append(self._stream)

    def _other_comes(self) -> None:
        self._other = Librdkafka(self._servers, self._group, self._topic)
        self.others.append(self._other)

    def _stream_goes(self) -> None:
        self._leave(self._stream)
        self._stream = None

    def _other_goes(self) -> None:
        self._leave(self._other)
        self._other = None

    def _leave(self, member: Stream | Librdkafka | None) -> None:
        # It may wait for its micro-batch; the next rebalance does not.
        if member is not None:
            self._leaving.append(threading.Thread(target=member.close))
            self._leaving[-1].start()


@dataclass(frozen=True)
class Gap:
    """The time between two reads of a partition.

    Attributes:
        seconds: How long nobody read, without the micro-batch in which the next reader was.
        moved: Whether the next reader is another one.
    """

    partition: int
    before: Read
    after: Read
    seconds: float

    @property
    def moved(self) -> bool:
        return self.before.reader != self.after.reader


def gaps(reads: Iterable[Read]) -> list[Gap]:
    """Return the gaps between the reads of each partition.

    The next reader may have been in a micro-batch, without this partition, when it got the partition. The part of the
    gap in which that one ran is its micro-batch in flight, and no more than that one.
    """
    ordered = sorted(reads, key=lambda read: read.start)
    previous: dict[str, Read] = {}
    last: dict[int, Read] = {}
    found = []
    for read in ordered:
        in_flight = previous.get(read.reader)
        for partition in read.partitions:
            before = last.get(partition)
            if before is not None and read.start > before.end:
                busy = 0.0 if in_flight is None else max(0.0, in_flight.end - max(in_flight.start, before.end))
                found.append(Gap(partition, before, read, read.start - before.end - busy))
            if before is None or read.end > before.end:
                last[partition] = read
        previous[read.reader] = read
    return found


def describe(found: Collection[Gap], interval: float, began: float) -> str:
    """Return how long partitions waited, in seconds and in intervals of heartbeats."""
    moved = sorted((gap for gap in found if gap.moved), key=lambda gap: gap.seconds)
    seconds = [gap.seconds for gap in moved]
    lines = [
        f"{len(moved)} moves of partitions; without a reader for a median of {statistics.median(seconds):.2f} s, "
        f"99 % {statistics.quantiles(seconds, n=100)[98]:.2f} s, at most {seconds[-1]:.2f} s "
        f"({seconds[-1] / interval:.2f} heartbeats); between reads of one reader at most "
        f"{max(gap.seconds for gap in found if not gap.moved):.2f} s"
    ]
    lines += [
        f"  partition {gap.partition}: {gap.seconds:.2f} s from {gap.before.reader} to {gap.after.reader}, "
        f"of {gap.after.start - gap.before.end:.2f} s, {gap.after.start - began:.0f} s after the beginning"
        for gap in moved[-5:]
    ]
    return "\n".join(lines)


class Told(logging.Handler):
    """What users are told of stale epochs and of members that the group has removed."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "STALE_MEMBER_EPOCH" in text or "nothing is committed" in text or "removed" in text:
            self.lines.append(text)


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 600)
@pytest.mark.parametrize("interval_ms", [5_000, 1_000])
def test_no_epoch_is_told_to_be_stale_and_no_partition_waits_for_more_than_three_heartbeats(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, interval_ms: int
) -> None:
    config = {
        "group.consumer.heartbeat.interval.ms": interval_ms,
        "group.consumer.min.heartbeat.interval.ms": min(interval_ms, 5_000),
    }
    say, told, again = partial(say_to, capsys, time.monotonic()), Told(), Counter[str]()
    newer = ConsumerMembership.ask_for_newer_credentials

    def count_refused(membership: ConsumerMembership, *used: object) -> bool:
        again["commits refused"] += 1
        found = newer(membership, *used)  # type: ignore[arg-type]
        again["of them made again"] += found
        return found

    monkeypatch.setattr(ConsumerMembership, "ask_for_newer_credentials", count_refused)
    logging.getLogger("kafka_source").addHandler(told)
    say(f"seed {SEED}, {MINUTES:g} minutes, heartbeats every {interval_ms} ms")
    with EmbeddedKafka(config=config) as kafka:
        name, group, servers = kafka.create_topic("restless", PARTITIONS), "restless", kafka.bootstrap_servers
        options = {
            "kafka.bootstrap.servers": servers,
            "subscribe": name,
            "kafka.group.id": group,
            "kafka.group.protocol": "consumer",
            "group.members": "2",
            "startingOffsets": "earliest",
            "min.records.per.task": "1",
        }
        groups = Groups(Settings({"bootstrap.servers": servers}))
        flow = Flow(servers, name)
        streams = [
            Stream("long", options, 4.0),
            # Without transactions a commit goes another way.
            Stream("short", {**options, "commit.transactional": "false"}, 0.5),
        ]
        restless = Restless(servers, group, name, {**options, "group.members": "1"})
        try:
            wait_until(lambda: all(stream.reads for stream in streams), "both queries to read")
            first = groups.describe(group).epoch or 0
            began, steps = time.monotonic(), 0
            while time.monotonic() - began < MINUTES * 60:
                restless.step()
                steps += 1
                time.sleep(max(0.0, began + steps * EVERY_SECONDS - time.monotonic()))
                for worker in (*streams, *restless.streams, flow):
                    worker.check()
            rebalances = (groups.describe(group).epoch or 0) - first
            restless.close()
            flow.close()
            committed = partial(committed_positions, groups, group)
            wait_until(lambda: committed() == dict.fromkeys(range(PARTITIONS), flow.count), "the last commit")
        finally:
            restless.close()
            flow.close()
            for stream in streams:
                stream.close()
            logging.getLogger("kafka_source").removeHandler(told)
        ours = [*streams, *restless.streams]
        theirs = [place for other in restless.others for place in other.places]
        reads = [read for stream in ours for read in stream.reads]
        reads += [read for other in restless.others for read in other.reads]
        found = [gap for gap in gaps(reads) if gap.before.end > began]
        say(describe(found, interval_ms / 1000, began))
        times = Counter(place for stream in ours for place in stream.places)
        both = {*times, *theirs}
        twice = [place for place, count in times.items() if count > 1]
        say(
            f"{steps} members came or went, {rebalances} epochs of the group; {len(both)} records, {len(theirs)} of "
            f"them read by librdkafka, {len(twice)} twice by queries; {dict(again)}; told: {told.lines}"
        )
        assert both == {(partition, offset) for partition in range(PARTITIONS) for offset in range(flow.count)}
        assert twice == []
        assert told.lines == []
        # Two that come and go at once may be one.
        assert rebalances > steps * 0.9
        assert max(gap.seconds for gap in found) <= MAX_INTERVALS * interval_ms / 1000
