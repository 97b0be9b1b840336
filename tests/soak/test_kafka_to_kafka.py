"""100,000 records through Kafka, Spark and Kafka on three brokers, while everything is killed at random.

    ./run test -m long tests/soak -s

It prints its seed; KAFKAGROUP_SEED=… runs with it again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter, defaultdict
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from kafka_source.admin import Groups
from kafka_source.client_config import Settings
from kafka_source.embedded import EmbeddedKafka
from kafka_source.errors import KafkaGroupError
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.sink.two_phase.committer import TwoPhaseCommit
from kafka_source.sink.two_phase.open_transactions import open_of
from tests.apps.process import App, copying_app
from tests.committed_reader import CommittedReader
from tests.support import produce, until

COUNT = 100_000
PARTITIONS = 4
FAULTS = 30
PREFIX = "soak"
GROUP = "soak-group"


class Soak:
    """The query under test, started again whenever it has ended, and what is done to it."""

    def __init__(self, kafka: EmbeddedKafka, copy: CommittedReader, folder: Path, rng: random.Random) -> None:
        self.kafka, self.copy, self.folder, self.rng = kafka, copy, folder, rng
        self.stops_compared = 0
        self.faults: Counter[str] = Counter()
        self.starts = 0
        self.app: App | None = None
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        self.source = {
            **servers,
            "subscribe": "soak-in",
            "startingOffsets": "earliest",
            "kafka.group.id": GROUP,
            "kafka.group.instance.id": "soak-app",
            "group.members": 2,
            "commit": "sink",
            "maxOffsetsPerTrigger": 1_200,
        }
        self.sink = {
            **servers,
            "topic": "soak-out",
            "transactional": "true",
            "transactional.id.prefix": PREFIX,
            "commit.group": GROUP,
        }

    def start(self) -> None:
        """Have it run, after an end of its own too."""
        if self.app is not None and self.app.process.poll() is None:
            return
        self.app = copying_app(self.folder, self.source, self.sink, master="local[2,4]")
        self.starts += 1
        with contextlib.suppress(AssertionError):  # it may fail at its start, as anything may here
            self.app.wait_for("started", 120)

    def close(self) -> None:
        """Its end."""
        if self.app is not None and self.app.process.poll() is None:
            self.app.kill()

    def fault(self) -> None:
        """Do one thing to it."""
        doing = self.rng.choice([self._driver, self._driver, self._worker, self._worker, self._broker, self._freeze])
        name = doing()
        self.faults[name] += 1
        print(f"  {sum(self.faults.values())}: {name}", flush=True)

    def _driver(self) -> str:
        assert self.app is not None
        self.app.kill()
        if self.rng.random() < 0.5:
            # The query's next start would do the same.
            finish(self.kafka)
            check_offsets_are_what_is_in_the_output(self.kafka, self.copy)
            self.stops_compared += 1
        self.start()
        return "driver killed"

    def _worker(self) -> str:
        assert self.app is not None
        workers = [pid for pid in self.app.family() if b"pyspark.daemon" in command_of(pid)]
        if not workers:
            return self._driver()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.rng.choice(workers), signal.SIGKILL)
        return "worker killed"

    def _broker(self) -> str:
        node = self.rng.choice(self.kafka.node_ids)
        self.kafka.kill(node)
        time.sleep(self.rng.uniform(0, 3))
        self.kafka.restart(node)
        return "broker killed"

    def _freeze(self) -> str:
        node = self.rng.choice(self.kafka.node_ids)
        self.kafka.pause(node)
        time.sleep(self.rng.uniform(1, 8))
        self.kafka.resume(node)
        self.kafka.wait_ready()
        return "broker suspended"


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def committed(kafka: EmbeddedKafka) -> dict[int, int]:
    found = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers})).committed(GROUP)
    return {tp.partition: offset for tp, offset in found.items()}


def copied(reader: CommittedReader) -> Counter[int]:
    return Counter(partition for partition, *_ in list(reader.records))


def finish(kafka: EmbeddedKafka) -> None:
    """What `kafkagroup transactions commit` and `abort` do."""
    client = cached_client(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    phases = TwoPhaseCommit(client, PREFIX)
    client.run(phases.begin(Deadline(60)))
    client.run(phases.abort_undecided(Deadline(60)))
    assert client.run(open_of(client, PREFIX, Deadline(60))) == []


def check_offsets_are_what_is_in_the_output(kafka: EmbeddedKafka, reader: CommittedReader) -> None:
    """I5, partition by partition, when the query has stopped and what it had decided is finished."""
    seen: dict[str, object] = {}

    def same() -> bool:
        with contextlib.suppress(KafkaGroupError):
            seen["committed"], seen["copied"] = committed(kafka), copied(reader)
            return seen["committed"] == seen["copied"]
        return False

    until(same, f"the group's offsets to be what is in the output: {seen}", 120)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_what_comes_in_comes_out_once_and_in_order(tmp_path: Path) -> None:
    seed = int(os.environ.get("KAFKAGROUP_SEED", random.randrange(1 << 30)))
    print(f"\nseed {seed}", flush=True)
    rng = random.Random(seed)
    config = {"default.replication.factor": 3, "min.insync.replicas": 2}
    with EmbeddedKafka(nodes=3, config=config) as kafka:
        for topic in ("soak-in", "soak-out"):
            kafka.create_topic(topic, PARTITIONS, 3)
        produce(kafka.bootstrap_servers, "soak-in", COUNT)
        with (
            CommittedReader(kafka.bootstrap_servers, "soak-in", PARTITIONS) as source,
            CommittedReader(kafka.bootstrap_servers, "soak-out", PARTITIONS) as during,
            ExitStack() as stack,
        ):
            source.wait_for(COUNT, 120)
            soak = stack.enter_context(closing(Soak(kafka, during, tmp_path, rng)))
            soak.start()
            began = time.monotonic()
            while len(during.records) < COUNT:
                assert time.monotonic() - began < 3000, f"{len(during.records)} of {COUNT} records, {soak.faults}"
                soak.start()
                if sum(soak.faults.values()) < FAULTS + 5:
                    wait_for_progress(during, 15)
                    time.sleep(rng.uniform(0, 3))
                    soak.fault()
                else:
                    time.sleep(0.5)
            took = time.monotonic() - began
            print(f"{soak.faults}, {soak.starts} starts, {soak.stops_compared} compared, {took:.0f} s", flush=True)
            assert sum(soak.faults.values()) >= FAULTS
            soak.close()
            finish(kafka)
            check_offsets_are_what_is_in_the_output(kafka, during)
            with CommittedReader(kafka.bootstrap_servers, "soak-out", PARTITIONS) as after:
                after.wait_for(COUNT)
                check_same(source, after)
                assert sorted(after.records) == sorted(during.records)
            for reader in (during, source):
                reader.check_order()


def wait_for_progress(reader: CommittedReader, seconds: float) -> None:
    """Until the reader sees something new, or so long: most faults shall meet a query at work."""
    before, end = len(reader.records), time.monotonic() + seconds
    while len(reader.records) == before and time.monotonic() < end:
        time.sleep(0.1)


def check_same(source: CommittedReader, copy: CommittedReader) -> None:
    """Every record once, in its partition and in its order."""
    sides = []
    for reader in (source, copy):
        values = defaultdict(list)
        for partition, _, key, value in reader.records:
            values[partition].append((key, value))
        sides.append(values)
    assert sides[0] == sides[1]
