"""A driver that is suspended for longer than its session: others take over, and it commits nothing when it goes on."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter

import pytest

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from tests.apps.confluent_consumer import ConfluentConsumer
from tests.apps.process import streaming_app
from tests.support.records import produce, written_records
from tests.support.waiting import wait_until

PARTITIONS = 4
SETTINGS = {"kafka.session.timeout.ms": 6_000, "kafka.heartbeat.interval.ms": 300, "startingOffsets": "earliest"}


class Tap:
    """Writes the next numbers to a topic all the time, from `open` to `close`."""

    def __init__(self, servers, topic):
        self.count = 0
        self._servers, self._topic = servers, topic
        self._closing = threading.Event()
        self._open = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._closing.wait(0.1):
            with self._open:
                produce(self._servers, self._topic, 20, first=self.count)
                self.count += 20

    def pause(self):
        self._open.acquire()

    def go_on(self):
        self._open.release()

    def close(self):
        self._closing.set()
        self._thread.join(60)


@pytest.fixture
def name(topic):
    return topic("unplugged", partitions=PARTITIONS)


@pytest.fixture
def tap(kafka, name):
    made = Tap(kafka.bootstrap_servers, name)
    yield made
    made.close()


@pytest.fixture
def other(kafka, name):
    made = []

    def start():
        made.append(ConfluentConsumer(kafka.bootstrap_servers, f"{name}-group", name))
        return made[0]

    yield start
    for consumer in made:
        consumer.close()


def options(kafka, name, **more):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": name,
        "kafka.group.id": f"{name}-group",
        "group.members": 2,
        **SETTINGS,
        **more,
    }


def ends_of_batches(checkpoint, topic):
    """For each generation of the group, how far batches were planned in it: {generation: {partition: end}}."""
    ends: dict[int, Counter[int]] = {}
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        offset = json.loads(path.read_text().splitlines()[-1])
        of_generation = ends.setdefault(offset["generation"], Counter())
        for partition, (_, end, _) in offset["partitions"].get(topic, {}).items():
            of_generation[int(partition)] = max(of_generation[int(partition)], end)
    return ends


def lags(kafka, name):
    groups = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    return groups.lag(f"{name}-group", tuple(TopicPartition(name, n) for n in range(PARTITIONS)))


def committed(kafka, name):
    return Counter({row.partition: row.committed or 0 for row in lags(kafka, name)})


def ends_of(kafka, name):
    return {row.partition: row.end for row in lags(kafka, name)}


@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_rejoins_and_every_record_is_there(kafka, name, tap, other, tmp_path):
    with streaming_app(tmp_path, options(kafka, name)) as app:
        wait_until(lambda: len(written_records(tmp_path / "out")) > 300, "the stream to read", 200)
        app.suspend()
        tap.pause()
        before, ends = committed(kafka, name), ends_of(kafka, name)
        tap.go_on()
        generations = set(ends_of_batches(tmp_path / "checkpoint", name))
        consumer = other()
        wait_until(lambda: len(set(consumer.assigned)) == PARTITIONS, "the other consumer to have all partitions")
        wait_until(lambda: {p for p, _, _ in consumer.records} == set(range(PARTITIONS)), "it to read them all")
        app.resume()
        wait_until(lambda: 0 < len(consumer.assigned) < PARTITIONS, "the stream to have joined again")
        tap.close()

        def read():
            return Counter((p, o) for p, o, _ in itertools.chain(written_records(tmp_path / "out"), consumer.records))

        wait_until(lambda: sum(committed(kafka, name).values()) == tap.count, "all records to be read by both")
        app.stop()
    assert len(read()) == tap.count
    planned: Counter[int] = Counter()
    for generation in generations:
        planned |= ends_of_batches(tmp_path / "checkpoint", name)[generation]
    # What was planned before it was suspended, and not yet committed: the unfinished batch, and nothing else.
    unfinished = {(p, o) for p in range(PARTITIONS) for o in range(before[p], planned[p])}
    assert {place for place, times in read().items() if times > 1} <= unfinished
    assert max(read().values()) <= 2
    assert all(planned[p] <= ends[p] for p in range(PARTITIONS)), "it planned what came while it was suspended"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_it_stops_if_it_is_told_to(kafka, name, tap, other, tmp_path):
    with streaming_app(tmp_path, options(kafka, name, **{"group.on.lost": "stop"})) as app:
        wait_until(lambda: len(written_records(tmp_path / "out")) > 100, "the stream to read", 200)
        app.suspend()
        consumer = other()
        wait_until(lambda: len(set(consumer.assigned)) == PARTITIONS, "the other consumer to have all partitions")
        app.resume()
        app.wait_for("failed")
        app.wait_for("stopped")
        told = " ".join(app.lines())
    assert "no longer" in told
    assert "group" in told
    tap.close()
    wait_until(lambda: sum(committed(kafka, name).values()) == tap.count, "the other consumer to read the rest")
    read = {(p, o) for p, o, _ in itertools.chain(written_records(tmp_path / "out"), consumer.records)}
    assert len(read) == tap.count
