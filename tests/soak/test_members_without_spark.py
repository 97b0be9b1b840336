"""Three processes of `arrow.consume`, a Spark stream and Java's VerifiableConsumer share a group and are killed.

None is lost, and none is twice in the output of transactions.

    ./run test -m long tests/soak/test_members_without_spark.py -s

KAFKAGROUP_SOAK_MINUTES=… chooses the duration, KAFKAGROUP_SEED=… who is killed, and when.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pytest

from kafka_source.client_config import Settings
from kafkagroup import arrow
from kafkagroup.admin import Groups
from kafkagroup.embedded import EmbeddedKafka
from testbed.load import Load
from tests.apps.process import App, copying_app, verifiable
from tests.support.records import Topic
from tests.support.restless import committed_positions
from tests.support.waiting import wait_until

MINUTES = float(os.environ.get("KAFKAGROUP_SOAK_MINUTES", "45"))
PARTITIONS = 12
RECORDS_PER_SECOND = 200
# The same for all, so that the dead are missed after a few seconds.
SESSION = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}

# How Spark ends if its Python process has not begun within ten seconds, as on a busy machine.
_SLOW_PYTHON = "Python worker failed to connect back"

# With `yes`, what it reads is written and committed by one transaction; else it is written, and then committed.
MEMBER = """
import json, sys
from kafkagroup import KafkaGroupError, arrow
topic, out, transactional, settings = sys.argv[1:]
settings = {**json.loads(settings), "transaction.timeout.ms": 10_000}
to = {"bootstrap.servers": settings["bootstrap.servers"]}
with arrow.consume(topic, settings, columns="value") as stream:
    while True:
        try:
            for batch in stream:
                if transactional == "yes":
                    with stream.transaction() as transaction:
                        transaction.write(out, batch)
                else:
                    arrow.write(out, batch, to)
                    stream.commit()
        except KafkaGroupError as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
"""


class Reader:
    """A program of the group, which is killed and started again.

    Args:
        name: Its name.
        start: Starts the program.
    """

    def __init__(self, name: str, start: Callable[[], App]) -> None:
        self.name, self.kills = name, 0
        self._start = start
        self.app = start()

    def is_at_work(self) -> bool:
        """Whether a kill would end more than a start."""
        return True

    def check(self) -> None:
        """It ends only when it is killed."""
        assert self.app.process.poll() is None, f"{self.name}: {self.app.lines()[-3:]}\n{self._log()[-4000:]}"

    def kill(self) -> None:
        self.app.kill()
        self.kills += 1

    def start(self) -> None:
        self.app = self._start()

    def errors(self) -> int:
        """Return how many errors of Kafka's it has told of, which it went on after."""
        return sum("Error" in line.partition(" ")[0] for line in self._log().splitlines())

    def _log(self) -> str:
        return self.app.log.read_text(errors="replace")


class Spark(Reader):
    """A stream of ours.

    Attributes:
        failed_starts: How often Spark did not start it.
    """

    failed_starts = 0

    def is_at_work(self) -> bool:
        # A start takes a minute on a busy machine.
        return any(line.startswith("batch") for line in self.app.lines())

    def check(self) -> None:
        if self.app.process.poll() is not None and _SLOW_PYTHON in " ".join(self.app.lines()):
            self.failed_starts += 1
            self.app.kill()
            self.start()
        super().check()


class Verifiable(Reader):
    """Java's VerifiableConsumer, which says each record that it reads, and then commits.

    Attributes:
        numbers: The values of the records.
        times: How many records it has read; more than there are numbers if some came again.
    """

    def __init__(self, servers: str, group: str, topic: str, folder: Path) -> None:
        config = folder / "verifiable.properties"
        config.write_text(f"heartbeat.interval.ms={SESSION['heartbeat.interval.ms']}\n")
        self.numbers, self.times = set[int](), 0
        session = ("--session-timeout", SESSION["session.timeout.ms"], "--command-config", config)
        more = ("--group-id", group, *session, "--verbose")
        log = folder / "verifiable.log"
        super().__init__("VerifiableConsumer", partial(verifiable, "VerifiableConsumer", log, servers, topic, *more))

    def kill(self) -> None:
        super().kill()
        self.gather(ended=True)

    def gather(self, *, ended: bool = False) -> None:
        """Note what it has said; the last line of one that has ended may be half of one."""
        lines = self.app.lines()
        for at, line in enumerate(lines):
            try:
                said = json.loads(line)
            except json.JSONDecodeError:
                assert ended, line
                assert at == len(lines) - 1, line
                continue
            if said["name"] == "record_data":
                self.numbers.add(int(said["value"]))
                self.times += 1
        lines.clear()


@contextmanager
def everybody(
    servers: str, topic: str, outputs: Mapping[str, str], folder: Path
) -> Iterator[tuple[list[Reader], Verifiable]]:
    """Run the group, which has the name of its topic; at the end nothing of it runs."""
    settings = {"bootstrap.servers": servers, "group.id": topic, **SESSION}
    source = {
        **{f"kafka.{name}": value for name, value in settings.items()},
        "subscribe": topic,
        "startingOffsets": "earliest",
        "group.members": 2,
    }
    readers: list[Reader] = []
    try:
        for name, out in {"arrow-1": "once", "arrow-2": "once", "arrow-3": "least"}.items():
            transactional = "yes" if out == "once" else "no"
            command = [sys.executable, "-c", MEMBER, topic, outputs[out], transactional, json.dumps(settings)]
            readers.append(Reader(name, partial(App, command, folder / f"{name}.log")))
        sink = {"kafka.bootstrap.servers": servers, "topic": outputs["spark"]}
        readers.append(Spark("Spark", partial(copying_app, folder / "spark", source, sink)))
        java = Verifiable(servers, topic, topic, folder)
        readers.append(java)
        yield readers, java
    finally:
        for reader in readers:
            reader.app.kill()


@pytest.mark.requires_native
@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 1200)
def test_members_that_are_killed_lose_nothing_and_transactions_write_nothing_twice(
    kafka: EmbeddedKafka, topic: Topic, tmp_path: Path
) -> None:
    seed = int(os.environ.get("KAFKAGROUP_SEED", random.randrange(1 << 30)))
    print(f"\nseed {seed}, {MINUTES:g} minutes", flush=True)
    chance, servers = random.Random(seed), kafka.bootstrap_servers
    name = topic("soak-members", partitions=PARTITIONS)
    outputs = {kind: f"{name}-{kind}" for kind in ("once", "least", "spark")}
    for out in outputs.values():
        kafka.create_topic(out, PARTITIONS)
    load = Load(servers, name, RECORDS_PER_SECOND)
    with everybody(servers, name, outputs, tmp_path) as (readers, java):
        began = time.monotonic()
        next_kill = began + 20
        while (elapsed := time.monotonic() - began) < MINUTES * 60:
            time.sleep(0.2)
            java.gather()
            for reader in readers:
                reader.check()
            if time.monotonic() > next_kill:
                victim = chance.choice([reader for reader in readers if reader.is_at_work()])
                away = chance.uniform(0, 15)
                print(f"  {elapsed:5.0f} s: {victim.name} is killed, and back after {away:.0f} s", flush=True)
                victim.kill()
                time.sleep(away)
                victim.start()
                next_kill = time.monotonic() + chance.uniform(2, 20)
        load.close()

        def all_numbers() -> dict[str, list[int]] | None:
            for reader in readers:
                reader.check()
            java.gather()
            found = {out: numbers_of(out, servers) for out in outputs.values()}
            seen = java.numbers.union(*found.values())
            return found if seen == set(range(load.count)) else None

        found = wait_until(all_numbers, f"{load.count} records in the output", 300)
        committed = partial(committed_positions, Groups(Settings({"bootstrap.servers": servers})), name)
        wait_until(lambda: sum(committed().values()) == load.count, f"{load.count} records to be committed", 120)
        kills = {reader.name: reader.kills for reader in readers}
        told = {reader.name: reader.errors() for reader in readers}
    once, *others = ((len(numbers), len(set(numbers))) for numbers in found.values())
    assert once[0] == once[1], "a record is twice in the output of transactions"
    # Each of them has read something.
    assert all((once[0], *(records for records, _ in others), java.times))
    repeated = [(records, records - distinct) for records, distinct in (*others, (java.times, len(java.numbers)))]
    print(f"  {load.count} records, kills {kills}, errors that a member went on after {told}")
    print(f"  starts of Spark that failed {sum(one.failed_starts for one in readers if isinstance(one, Spark))}")
    print(f"  in transactions {once[0]}, of them twice 0; by arrow, Spark, Java (of them again) {repeated}")


def numbers_of(out: str, servers: str) -> list[int]:
    """Return the numbers in a topic, as a reader of committed records sees them."""
    settings = {"bootstrap.servers": servers, "isolation.level": "read_committed"}
    with arrow.read(out, settings, columns="value string") as stream:
        table = stream.to_reader().read_all()
    numbers: list[int] = pc.cast(table["value"], "int64").to_pylist()
    return numbers
