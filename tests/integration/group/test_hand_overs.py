"""A query that copies exactly once is replaced by its next version, again and again, and either side is killed.

KAFKAGROUP_HAND_OVERS and KAFKAGROUP_HAND_OVER_RATE set how often, and how many records come in a second. The steps are
those of docs/guides/replace-a-query.md, and of docs/guides/replace-a-query-with-state.md for a query that counts.
"""

from __future__ import annotations

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_source.client_config import Settings
from kafkagroup.admin import Groups, halt_of_group
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import App, copying_app, spark_app
from tests.support.commands import Command
from tests.support.records import CommittedReader
from tests.support.restless import Flow, say_to
from tests.support.waiting import wait_until

PARTITIONS = 4
HAND_OVERS = int(os.environ.get("KAFKAGROUP_HAND_OVERS", "20"))
# Records a second.
RATE = int(os.environ.get("KAFKAGROUP_HAND_OVER_RATE", "5000"))
KILLS = ("none", "new while it starts", "old", "new when it reads", "both")


class Versions:
    """The versions of the query, each a process with a checkpoint of its own."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path, name: str, out: str) -> None:
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        self._source = {
            **servers,
            "subscribe": name,
            "kafka.group.id": "copy",
            "startingOffsets": "earliest",
            "commit": "sink",
            # With more members than partitions one version may get none.
            "group.members": 2,
            "kafka.session.timeout.ms": 10_000,
            "kafka.heartbeat.interval.ms": 500,
        }
        self._sink = {**servers, "topic": out, "transactional": "true", "commit.group": "copy"}
        self._folder, self._command = folder, Command(kafka.bootstrap_servers)
        self._numbers = itertools.count(1)
        self._apps: list[App] = []

    def start(self) -> tuple[int, App]:
        number = next(self._numbers)
        return number, self.start_again(number)

    def start_again(self, number: int) -> App:
        sink = {**self._sink, "transactional.id.prefix": f"copy-{number}"}
        self._apps.append(copying_app(self._folder / f"v{number}", self._source, sink))
        return self._apps[-1]

    def close(self) -> None:
        for app in self._apps:
            app.kill()

    def kill(self, number: int, app: App, *, for_good: bool = True) -> None:
        """Kill a version; if it does not come back, finish what it has left."""
        app.kill()
        if for_good:
            for verb in ("commit", "abort"):
                self._command.run("transactions", verb, "--prefix", f"copy-{number}", "--yes")


class Gaps:
    """The longest time in which nothing new was visible in the output."""

    def __init__(self, reader: CommittedReader) -> None:
        self._reader = reader
        self.begin()

    def begin(self) -> None:
        self._seen, self._at, self.longest = len(self._reader.records), time.monotonic(), 0.0

    def look(self) -> None:
        now, seen = time.monotonic(), len(self._reader.records)
        self.longest = max(self.longest, now - self._at)
        if seen > self._seen:
            self._seen, self._at = seen, now


@pytest.mark.long
@pytest.mark.timeout(300 + 600 * HAND_OVERS)
def test_the_output_equals_the_input(tmp_path, capsys):
    say = partial(say_to, capsys, time.monotonic())
    with EmbeddedKafka() as kafka:
        name, out = (kafka.create_topic(topic, PARTITIONS) for topic in ("in", "out"))
        versions = Versions(kafka, tmp_path, name, out)
        flow = Flow(kafka.bootstrap_servers, name, RATE // 4)
        with CommittedReader(kafka.bootstrap_servers, out, PARTITIONS) as reader:
            gaps = Gaps(reader)

            def batches(app: App) -> int:
                gaps.look()
                return sum("batch" in line for line in app.lines())

            def progress(app: App, count: int) -> None:
                before = batches(app)
                wait_until(lambda: batches(app) >= before + count, f"{count} batches", 300)

            number, old = versions.start()
            try:
                progress(old, 3)
                gaps.begin()
                progress(old, 10)
                say(f"no hand-over: nothing new for {gaps.longest:.1f} s at most")
                for turn in range(HAND_OVERS):
                    killed = KILLS[turn % len(KILLS)]
                    gaps.begin()
                    later, new = versions.start()
                    if killed == "new while it starts":
                        time.sleep(2 + turn % 7)
                        versions.kill(later, new, for_good=False)
                        new = versions.start_again(later)
                    progress(new, 2)
                    if killed in ("new when it reads", "both"):
                        versions.kill(later, new, for_good=False)
                        if killed == "both":
                            versions.kill(number, old)
                        new = versions.start_again(later)
                        progress(new, 2)
                    if killed == "old":
                        versions.kill(number, old)
                    elif killed != "both":
                        old.stop()
                    number, old = later, new
                    progress(old, 3)
                    longest = gaps.longest
                    gaps.begin()
                    progress(old, 5)
                    say(
                        f"hand-over {turn + 1}, killed: {killed}; nothing new for {longest:.1f} s at most, for "
                        f"{gaps.longest:.1f} s without a hand-over, load {os.getloadavg()[0]:.0f}"
                    )
                flow.close()
                reader.wait_for(flow.count, 300)
                old.stop()
            finally:
                flow.close()
                versions.close()
            reader.check_order()
            assert reader.values == sorted(str(number).encode() for number in range(flow.count))


KILLS_WITH_STATE = ("none", "new when it pauses", "old when it stops", "new when it catches up", "new when it counts")


class CountingVersions:
    """The versions of a query that counts, each a process with a group of its own."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path, name: str) -> None:
        self._folder, self._out, self._name, self._servers = folder, folder / "out", name, kafka.bootstrap_servers
        self._out.mkdir()
        self._command, self._groups = Command(self._servers), Groups(Settings({"bootstrap.servers": self._servers}))
        self._apps: dict[int, App] = {}

    def start(self, version: int) -> None:
        source = {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": self._name,
            "kafka.group.id": f"counts-{version}",
            "startingOffsets": "earliest",
            "kafka.session.timeout.ms": 10_000,
        }
        target = {"out": self._out, "version": version}
        self._apps[version] = spark_app("counting_app", self._folder / f"v{version}", "local[2]", source, target)

    def reads(self, version: int) -> None:
        """Wait for a micro-batch with rows."""
        self._apps[version].lines()
        self._apps[version].wait_for("batch", 300)

    def close(self) -> None:
        for app in self._apps.values():
            app.kill()

    def switch(self, version: int) -> None:
        (self._out / f"switch-{version}").touch()

    def counts(self, version: int) -> dict[int, list[int]]:
        """The counts that a version has written to the live output, by key, in their order."""
        found: dict[int, list[int]] = {}
        for file in self._out.glob(f"live/{version}-*/*.parquet"):
            for row in pq.read_table(file).to_pylist():
                found.setdefault(row["key"], []).append(row["count"])
        return {key: sorted(counts) for key, counts in found.items()}

    def total(self, version: int) -> int:
        """The number of records that a version has counted."""
        return sum(counts[-1] for counts in self.counts(version).values())

    def replace(self, old: int, killed: str) -> None:
        """Let the next version count on; kill one of them after a step, and start it again."""
        new = old + 1

        def kill(version: int) -> None:
            self._apps[version].kill()
            self.start(version)

        def halt(version: int, when: str, verb: str, *options: str) -> None:
            group = f"counts-{version}"
            before = halt_of_group(settings, group)
            done = thread.submit(self._command.run, verb, group, *options, "--timeout", "300", "--yes")
            wait_until(lambda: halt_of_group(settings, group) != before, "the halt to be written", 120)
            if killed == when:
                kill(version)
            done.result(400)

        settings = Settings({"bootstrap.servers": self._servers})
        with ThreadPoolExecutor(1) as thread:
            halt(new, "new when it pauses", "pause")
            halt(old, "old when it stops", "stop", "--at", "end")
            halt(new, "new when it catches up", "pause", "--at-group", f"counts-{old}")
        stopped = self._groups.committed(f"counts-{old}")
        assert self._groups.committed(f"counts-{new}") == stopped
        self.switch(new)
        self._command.run("resume", f"counts-{new}", "--yes")
        if killed == "new when it counts":
            kill(new)
        before = self.counts(old)
        assert self.total(old) == sum(stopped.values())
        wait_until(lambda: self.counts(new).keys() == before.keys(), "each key to be counted", 300)
        assert all(counts[0] > before[key][-1] for key, counts in self.counts(new).items())


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_the_next_version_counts_on_where_the_previous_one_has_stopped(tmp_path, capsys):
    say = partial(say_to, capsys, time.monotonic())
    with EmbeddedKafka() as kafka:
        name = kafka.create_topic("in", PARTITIONS)
        versions, flow = CountingVersions(kafka, tmp_path, name), Flow(kafka.bootstrap_servers, name, 100)
        try:
            versions.switch(0)
            versions.start(0)
            versions.reads(0)
            for old, killed in enumerate(KILLS_WITH_STATE):
                versions.start(old + 1)
                versions.reads(old + 1)
                versions.replace(old, killed)
                say(f"version {old + 1} counts, killed: {killed}")
            flow.close()
            wait_until(lambda: versions.total(len(KILLS_WITH_STATE)) == flow.count, "all to be counted", 300)
        finally:
            flow.close()
            versions.close()
