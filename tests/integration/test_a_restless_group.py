"""Two Spark applications and a Java consumer join, leave, crash and restart in a random order for ten minutes.

KAFKAGROUP_RESTLESS_SECONDS and KAFKAGROUP_RESTLESS_SEED set how long, and which order; the seed is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from assignors import TopicPartition
from kafka_source.admin import Groups
from kafka_source.client_config import Settings
from kafka_source.errors import RetriableError
from tests.apps.process import java_consumer, streaming_app
from tests.groups import wait_for
from tests.support import produce, written_records

PARTITIONS = 6
SECONDS = int(os.environ.get("KAFKAGROUP_RESTLESS_SECONDS", "600"))
SEED = int(os.environ.get("KAFKAGROUP_RESTLESS_SEED", str(random.randrange(1_000_000))))
PAUSE = (5.0, 20.0)


class Flow:
    """Writes the next numbers to a topic, about 200 a second, from its start to `close`; `still` holds it up."""

    def __init__(self, servers, topic):
        self.count = 0
        self._servers, self._topic = servers, topic
        self._closing, self._writing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._closing.wait(0.25):
            with self._writing:
                produce(self._servers, self._topic, 50, first=self.count, config={"enable.idempotence": True})
                self.count += 50

    @contextlib.contextmanager
    def still(self):
        with self._writing:
            yield self.count

    def close(self):
        self._closing.set()
        self._thread.join(60)


class Reader:
    """An application that is started and ended again and again.

    Attributes:
        crashes: For each crash what it had begun and not committed, as {partition: range of offsets}.
    """

    def __init__(self, name, start):
        self.name, self.crashes = name, []
        self._start, self._starts = start, 0
        self.app: Any = None

    def start(self):
        self._starts += 1
        self.app = self._start(f"{self.name}-{self._starts}")

    def check(self):
        """It ends only when it is told to."""
        if self.app is not None and self.app.process.poll() is not None:
            raise AssertionError(f"{self.name} ended: {self.app.lines()[-5:]}\n{self.app.log.read_text()[-5000:]}")

    def leave(self):
        self.app.stop(180)
        self._ended()

    def crash(self, committed):
        self.app.kill()
        offsets = committed()
        self._ended()
        self.crashes.append({p: range(offsets.get(p, 0), end) for p, end in self.begun().items()})

    def _ended(self):
        self.app = None

    def begun(self) -> dict[int, int]:
        """The end of what it has begun to read, by partition."""
        raise NotImplementedError

    def places(self) -> list[tuple[int, int]]:
        """Where it has read from, a place for each time."""
        raise NotImplementedError


class Spark(Reader):
    def __init__(self, name, folder, options):
        super().__init__(name, lambda run: streaming_app(folder, options, name=run))
        self.folder = folder

    def places(self):
        """Where it has read from, a place for each time."""
        return [(p, o) for p, o, _ in written_records(self.folder / "out")]

    def begun(self):
        """Where its last micro-batch ends: Spark finishes what is planned, also after a restart."""
        logs = list((self.folder / "checkpoint" / "offsets").glob("[0-9]*"))
        if not logs:
            return {}
        # The last file may have been cut short by the crash; then that batch was not planned.
        for path in sorted(logs, key=lambda path: int(path.name), reverse=True):
            with contextlib.suppress(json.JSONDecodeError, IndexError):
                spans = json.loads(path.read_text().splitlines()[-1])["partitions"]
                return {int(p): span[1] for of_topic in spans.values() for p, span in of_topic.items()}
        return {}


class Java(Reader):
    def __init__(self, name, folder, servers, group, topic):
        super().__init__(name, lambda run: self._run(folder, servers, group, topic, run))
        self._said = []

    def _run(self, folder, servers, group, topic, run):
        (folder / run).mkdir(parents=True)
        return java_consumer(folder / run, servers, group, topic)

    def _ended(self):
        self._said += self._records(self.app)
        self._last = self._records(self.app)
        super()._ended()

    def _records(self, app):
        lines = [line.split() for line in app.lines() if line.startswith("record ")]
        return [(int(words[1]), int(words[2])) for words in lines if len(words) == 4]

    def places(self):
        return self._said

    def begun(self):
        ends = {}
        for partition, offset in self._last:
            ends[partition] = offset + 1
        return ends


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 900)
def test_no_record_is_lost_and_every_one_that_is_read_twice_is_explained(kafka, topic, tmp_path, capsys):
    name = topic("restless", partitions=PARTITIONS)
    group, servers = f"{name}-group", kafka.bootstrap_servers
    groups = Groups(Settings({"bootstrap.servers": servers}))
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": name,
        "kafka.group.id": group,
        "group.members": 2,
        "startingOffsets": "earliest",
        "kafka.session.timeout.ms": 10_000,
        "kafka.heartbeat.interval.ms": 500,
    }
    readers = [
        Spark("static", tmp_path / "static", {**options, "kafka.group.instance.id": f"{name}-static"}),
        Spark("dynamic", tmp_path / "dynamic", options),
        Java("java", tmp_path / "java", servers, group, name),
    ]

    def committed():
        while True:
            with contextlib.suppress(RetriableError):
                return {tp.partition: offset for tp, offset in groups.committed(group).items()}

    def say(text):
        with capsys.disabled():
            print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    began, rng, flow = time.monotonic(), random.Random(SEED), Flow(servers, name)
    say(f"seed {SEED}")
    try:
        while time.monotonic() - began < SECONDS:
            for reader in readers:
                reader.check()
            reader = rng.choice(readers)
            if reader.app is None:
                say(f"{reader.name} starts")
                reader.start()
            elif rng.random() < 0.5:
                say(f"{reader.name} crashes")
                reader.crash(committed)
            else:
                # A clean leave is one with nothing under way: Spark is stopped in the middle of a batch otherwise.
                with flow.still() as count:
                    wait_for(
                        partial(lambda c: sum(committed().values()) == c, count), "all to be read and committed", 180
                    )
                    say(f"{reader.name} leaves")
                    reader.leave()
            time.sleep(rng.uniform(*PAUSE))
        for reader in readers:
            if reader.app is None:
                reader.start()
        flow.close()
        say("all records are written")
        wait_for(lambda: sum(committed().values()) == flow.count, "all records to be read and committed", 300)
        for reader in readers:
            reader.leave()
    finally:
        flow.close()
        for reader in readers:
            if reader.app is not None:
                reader.app.kill()

    tps = tuple(TopicPartition(name, p) for p in range(PARTITIONS))
    there = {(row.partition, offset) for row in groups.lag(group, tps) for offset in range(row.end)}
    assert len(there) == flow.count
    times = Counter(place for reader in readers for place in reader.places())
    by_cause: Counter[str] = Counter()
    unexplained = []
    for place in (place for place, count in times.items() if count > 1):
        partition, offset = place
        causes = [r.name for r in readers if any(offset in crash.get(partition, ()) for crash in r.crashes)]
        by_cause[causes[0] if causes else "nothing"] += 1
        unexplained += [] if causes else [place]
    crashes = {reader.name: len(reader.crashes) for reader in readers}
    say(
        f"{flow.count} records, {sum(count > 1 for count in times.values())} read more than once, "
        f"by crashes of {dict(by_cause)}; crashes {crashes}"
    )
    assert there - set(times) == set()
    assert set(times) - there == set()
    assert unexplained == []
