"""A query that copies exactly once is replaced by its next version, again and again, and either side is killed.

KAFKAGROUP_HAND_OVERS and KAFKAGROUP_HAND_OVER_RATE set how often, and how many records come in a second. The steps are
those of docs/guides/replace-a-query.md.
"""

from __future__ import annotations

import itertools
import os
import time
from functools import partial
from pathlib import Path

import pytest

from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import App, copying_app
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
@pytest.mark.timeout(300 + 180 * HAND_OVERS)
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
                    say(f"hand-over {turn + 1}, killed: {killed}; nothing new for {gaps.longest:.1f} s at most")
                flow.close()
                reader.wait_for(flow.count, 300)
                old.stop()
            finally:
                flow.close()
                versions.close()
            reader.check_order()
            assert reader.values == sorted(str(number).encode() for number in range(flow.count))
