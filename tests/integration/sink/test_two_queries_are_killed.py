"""Two queries of one group copy exactly once (`commit=sink`), and are killed again and again at any moment.

KAFKAGROUP_KILLS and KAFKAGROUP_KILLS_SEED set how often, and when; the seed is printed.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from kafka_source.client_config import Settings
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from tests.apps.process import App, copying_app
from tests.support.mapped import COPIED
from tests.support.records import CommittedReader
from tests.support.restless import Flow, committed_positions, say_to
from tests.support.waiting import wait_until

PARTITIONS = 4
KILLS = int(os.environ.get("KAFKAGROUP_KILLS", "8"))
SEED = int(os.environ.get("KAFKAGROUP_KILLS_SEED", str(random.randrange(1_000_000))))
# From a commit of either query on, so that each kill hits one that works.
PAUSE = (0.0, 10.0)
# Members of the consumer protocol have their session from the brokers.
BROKER = {
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.session.timeout.ms": 10_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
SETTINGS: dict[str, dict[str, object]] = {
    "classic": {"kafka.session.timeout.ms": 10_000, "kafka.heartbeat.interval.ms": 500},
    "consumer": {"kafka.group.protocol": "consumer"},
}


class Query:
    """A query in a process of its own, which is started again when it has ended."""

    def __init__(self, folder: Path, source: dict[str, object], sink: dict[str, object]) -> None:
        folder.mkdir()
        self._start = partial(copying_app, folder, source, sink)
        self.app: App = self._start()
        self.ends: list[str] = []

    def keep(self) -> None:
        """Start it again if it has ended by itself, as a supervisor does."""
        if self.app.process.poll() is not None:
            failed = [line for line in self.app.lines() if line.startswith("failed")]
            self.ends.append((failed or ["ended"])[-1])
            self.app = self._start()

    def kill(self) -> None:
        self.app.kill()
        self.app = self._start()


@pytest.mark.long
@pytest.mark.timeout(600 + 300 * KILLS)
@pytest.mark.parametrize("function", [{}, COPIED], ids=["plain", "mapped"])
@pytest.mark.parametrize("protocol", SETTINGS)
def test_the_output_equals_the_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str, function: Mapping[str, str]
) -> None:
    with EmbeddedKafka(config=BROKER) as kafka:
        copy(kafka, tmp_path, {**SETTINGS[protocol], **function}, partial(say_to, capsys, time.monotonic()))


def copy(kafka: EmbeddedKafka, folder: Path, options: Mapping[str, object], say: Callable[[str], None]) -> None:
    name, out = (kafka.create_topic(topic, PARTITIONS) for topic in ("in", "out"))
    group = "copy"
    servers: dict[str, object] = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    source: dict[str, object] = {
        **servers,
        "subscribe": name,
        "startingOffsets": "earliest",
        "kafka.group.id": group,
        "group.members": 2,
        "maxOffsetsPerTrigger": 500,
        "commit": "sink",
        **options,
    }
    groups = Groups(Settings({"bootstrap.servers": kafka.bootstrap_servers}))
    rng = random.Random(SEED)
    say(f"{options}, seed {SEED}")
    queries: list[Query] = []
    flow = Flow(kafka.bootstrap_servers, name, 100)
    with CommittedReader(kafka.bootstrap_servers, out, PARTITIONS) as reader:
        try:
            for letter in "ab":
                sink: dict[str, object] = {
                    **servers,
                    "topic": out,
                    "transactional": "true",
                    "transactional.id.prefix": f"copy-{letter}",
                    "commit.group": group,
                }
                queries.append(Query(folder / letter, source, sink))

            def has_more(than: int) -> bool:
                for query in queries:
                    query.keep()
                return len(reader.records) > than

            for _ in range(KILLS):
                wait_until(partial(has_more, len(reader.records)), "progress", 300)
                time.sleep(rng.uniform(*PAUSE))
                killed = rng.randrange(len(queries))
                say(f"kill {'ab'[killed]} with {len(reader.records)} records in the output")
                queries[killed].kill()
            flow.close()

            wait_until(partial(has_more, flow.count - 1), "all records to be copied", 300)
            wait_until(lambda: sum(committed_positions(groups, group).values()) == flow.count, "the last commit")
            for query in queries:
                query.app.stop(120)
        finally:
            flow.close()
            for query in queries:
                query.app.kill()
        times = Counter(reader.values)
        twice = sum(count - 1 for count in times.values())
        say(f"{flow.count} records, {len(times)} in the output, {twice} twice; ended by itself:")
        for query in queries:
            for end in query.ends:
                say(f"  {end[:300]}")
        assert times == Counter({str(number).encode(): 1 for number in range(flow.count)})
        reader.check_order()
