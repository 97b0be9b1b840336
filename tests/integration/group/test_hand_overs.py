"""A query that copies exactly once is replaced by its next version, again and again, and either side is killed.

KAFKAGROUP_HAND_OVERS and KAFKAGROUP_HAND_OVER_RATE set how often, and how many records come in a second. The steps are
those of docs/guides/replace-a-query.md, and of docs/guides/replace-a-query-with-state.md for a query that counts.
"""

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_source.client_config import Settings
from kafkagroup.admin import Groups, halt_of_group
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import App, spark_app
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

    def __init__(self, kafka: EmbeddedKafka, folder: Path, name: str, out: str, group: str = "copy") -> None:
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        self._source = {
            **servers,
            "subscribe": name,
            "kafka.group.id": group,
            "startingOffsets": "earliest",
            "commit": "sink",
            # With more members than partitions one version may get none.
            "group.members": 2,
            "kafka.session.timeout.ms": 10_000,
            "kafka.heartbeat.interval.ms": 500,
        }
        self._sink = {**servers, "topic": out, "transactional": "true", "commit.group": group}
        self._folder, self._command = folder, Command(kafka.bootstrap_servers)
        self._numbers = itertools.count(1)
        self._apps: list[App] = []

    def start(self) -> tuple[int, App]:
        number = next(self._numbers)
        return number, self.start_again(number)

    def start_again(self, number: int) -> App:
        sink = {**self._sink, "transactional.id.prefix": f"{self._source['kafka.group.id']}-{number}"}
        folder, environment = self._folder / f"v{number}", {"WARM_UP": "yes"}
        self._apps.append(spark_app("copying_app", folder, "local[2]", self._source, sink, environment=environment))
        return self._apps[-1]

    def close(self) -> None:
        for app in self._apps:
            app.kill()

    def end_transactions(self, number: int) -> None:
        """Finish what a version has left that does not come back."""
        for verb in ("commit", "abort"):
            self._command.run("transactions", verb, "--prefix", f"copy-{number}", "--yes")


class Gaps:
    """The longest time in which nothing new of a partition was visible in the output."""

    def __init__(self, reader: CommittedReader) -> None:
        self._reader, self._seen = reader, 0
        self._at, self._longest = [time.monotonic()] * PARTITIONS, 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            now, new = time.monotonic(), self._reader.records[self._seen :]
            self._seen += len(new)
            self._longest = max(self._longest, now - min(self._at))
            for partition in {record[0] for record in new}:
                self._at[partition] = now

    def take(self) -> float:
        """Return the longest gap since the last call, in seconds, when each partition has something new."""
        now = time.monotonic()
        wait_until(lambda: min(self._at) > now, "something new of each partition", 300)
        longest, self._longest = self._longest, 0.0
        return longest

    def close(self) -> None:
        self._ended.set()
        self._thread.join(10)


@pytest.mark.long
@pytest.mark.timeout(300 + 600 * HAND_OVERS)
def test_the_output_equals_the_input(tmp_path, capsys):
    say = partial(say_to, capsys, time.monotonic())
    with EmbeddedKafka() as kafka:
        name, out = (kafka.create_topic(topic, PARTITIONS) for topic in ("in", "out"))
        versions = Versions(kafka, tmp_path, name, out)
        beside = Versions(kafka, tmp_path / "beside", name, kafka.create_topic("beside", PARTITIONS), "beside")
        flow = Flow(kafka.bootstrap_servers, name, RATE // 4)
        with CommittedReader(kafka.bootstrap_servers, out, PARTITIONS) as reader:
            gaps = Gaps(reader)

            def progress(app: App, count: int) -> None:
                def batches() -> int:
                    return sum("batch" in line for line in app.lines())

                before = batches()
                wait_until(lambda: batches() >= before + count, f"{count} batches", 300)

            number, old = versions.start()
            try:
                progress(old, 3)
                gaps.take()
                progress(old, 10)
                say(f"no hand-over: nothing new of a partition for {gaps.take():.1f} s at most")
                # Both need the same cores: this is the part of a start in the gaps below.
                _, other = beside.start()
                progress(other, 3)
                other.stop()
                progress(old, 3)
                say(f"while a query of another group starts: for {gaps.take():.1f} s at most")
                for turn in range(HAND_OVERS):
                    killed = KILLS[turn % len(KILLS)]
                    later, new = versions.start()
                    if killed == "new while it starts":
                        time.sleep(2 + turn % 7)
                        new.kill()
                        new = versions.start_again(later)
                    progress(new, 2)
                    joined = gaps.take()
                    if killed in ("new when it reads", "both"):
                        new.kill()
                        if killed == "both":
                            old.kill()
                            versions.end_transactions(number)
                        new = versions.start_again(later)
                        progress(new, 2)
                    if killed == "old":
                        old.kill()
                    elif killed != "both":
                        old.stop()
                    versions.end_transactions(number)
                    number, old = later, new
                    progress(old, 3)
                    longest = gaps.take()
                    progress(old, 5)
                    say(
                        f"hand-over {turn + 1}, killed: {killed}; nothing new of a partition for {joined:.1f} s at "
                        f"most until the new version reads, then for {longest:.1f} s, for {gaps.take():.1f} s without "
                        f"a hand-over, load {os.getloadavg()[0]:.0f}"
                    )
                flow.close()
                reader.wait_for(flow.count, 300)
                old.stop()
            finally:
                gaps.close()
                flow.close()
                versions.close()
                beside.close()
            reader.check_order()
            assert reader.values == sorted(str(number).encode() for number in range(flow.count))


# The steps of the page, and which version is killed there.
KILLS_WITH_STATE = (
    ("none", "neither"),
    *itertools.product(("pause", "stop", "catch up", "switch", "count"), ("old", "new")),
)


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

    def replace(self, old: int, at: str, killed: str) -> None:
        """Let the next version count on; kill one of them at a step, and start it again."""
        new = old + 1

        def kill_at(step: str) -> None:
            if step == at:
                version = old if killed == "old" else new
                self._apps[version].kill()
                self.start(version)

        def halt(version: int, step: str, verb: str, *options: str) -> None:
            group = f"counts-{version}"
            before = halt_of_group(settings, group)
            done = thread.submit(self._command.run, verb, group, *options, "--timeout", "300", "--yes")
            wait_until(lambda: halt_of_group(settings, group) != before, "the halt to be written", 120)
            kill_at(step)
            done.result(400)

        settings = Settings({"bootstrap.servers": self._servers})
        with ThreadPoolExecutor(1) as thread:
            halt(new, "pause", "pause")
            halt(old, "stop", "stop", "--at", "end")
            halt(new, "catch up", "pause", "--at-group", f"counts-{old}")
        stopped = self._groups.committed(f"counts-{old}")
        assert self._groups.committed(f"counts-{new}") == stopped
        self.switch(new)
        kill_at("switch")
        self._command.run("resume", f"counts-{new}", "--yes")
        kill_at("count")
        before = self.counts(old)
        assert self.total(old) == sum(stopped.values())
        wait_until(lambda: self.counts(new).keys() == before.keys(), "each key to be counted", 300)
        assert all(counts[0] > before[key][-1] for key, counts in self.counts(new).items())
        # One that was started again in its stopped group is idle.
        self._apps[old].kill()


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_the_next_version_counts_on_where_the_previous_one_has_stopped(tmp_path, capsys):
    say = partial(say_to, capsys, time.monotonic())
    with EmbeddedKafka() as kafka:
        name = kafka.create_topic("in", PARTITIONS)
        versions, flow = CountingVersions(kafka, tmp_path, name), Flow(kafka.bootstrap_servers, name, 100)
        with closing(versions), closing(flow):
            versions.switch(0)
            versions.start(0)
            versions.reads(0)
            for old, (step, killed) in enumerate(KILLS_WITH_STATE):
                versions.start(old + 1)
                versions.reads(old + 1)
                versions.replace(old, step, killed)
                say(f"version {old + 1} counts, killed at {step}: {killed}")
            flow.close()
            wait_until(lambda: versions.total(len(KILLS_WITH_STATE)) == flow.count, "all to be counted", 300)
