"""Applications of a group that are started, stopped and killed again and again, with what each has read.

Each application accounts for what it has read and not committed whenever it stops to own partitions: a `Cut`. Only what
is in a cut may be read again.
"""

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_source.errors import RetriableError
from kafkagroup.admin import Groups
from tests.apps.process import App, java_consumer, librdkafka_consumer, streaming_app, verifiable
from tests.support.records import produce, written_records

Place = tuple[int, int]
"""The partition and the offset of a record."""

Positions = Callable[[], Mapping[int, int]]
"""Asks for the group's committed offsets, by partition."""


def committed_positions(groups: Groups, group: str) -> dict[int, int]:
    """The committed offsets of a group that reads one topic, by partition, also while its coordinator moves."""
    while True:
        with contextlib.suppress(RetriableError):
            return {tp.partition: offset for tp, offset in groups.committed(group).items()}


def say_to(capsys: pytest.CaptureFixture[str], began: float, text: str) -> None:
    """Print a line with the seconds since `began`, also while pytest captures the output."""
    with capsys.disabled():
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)


class Flow:
    """Writes the next numbers to a topic, from its start to `close`; `still` holds it up.

    Args:
        servers: The brokers.
        topic: The topic.
        step: The number of records that it writes at most four times a second.
    """

    def __init__(self, servers: str, topic: str, step: int = 50) -> None:
        self.count, self._step = 0, step
        self._servers, self._topic = servers, topic
        self._closing, self._writing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(0.25):
            with self._writing:
                produce(self._servers, self._topic, self._step, first=self.count, config={"enable.idempotence": True})
                self.count += self._step

    @contextlib.contextmanager
    def still(self) -> Iterator[int]:
        with self._writing:
            yield self.count

    def close(self) -> None:
        self._closing.set()
        self._thread.join(60)


class VerifiableFlow:
    """Kafka's VerifiableProducer, which writes the next numbers to a topic until it is closed.

    Attributes:
        count: How many records the brokers have confirmed; known when it is closed.
    """

    def __init__(self, servers: str, topic: str, log: Path, per_second: int) -> None:
        self.count = 0
        more = ("--throughput", per_second, "--repeating-keys", 1000)
        self._app: App | None = verifiable("VerifiableProducer", log, servers, topic, *more)

    def close(self) -> None:
        """May be called twice."""
        app, self._app = self._app, None
        if app is None:
            return
        app.process.terminate()
        app.stop()
        said = Counter(json.loads(line)["name"] for line in app.lines())
        assert said["shutdown_complete"], app.log.read_text()[-3000:]
        assert not said["producer_send_error"]
        self.count = said["producer_send_success"]


@dataclass(frozen=True)
class Cut:
    """What an application had read, or begun to read, and not committed when it stopped to own partitions.

    Attributes:
        reader: The application.
        cause: `kill`, `leave`, `moved`: the group gave the partitions away before they were committed, or `removed`:
            the group has removed a query of ours.
        places: The records.
    """

    reader: str
    cause: str
    places: frozenset[Place]


class Reader(ABC):
    """An application that is started and ended again and again.

    Attributes:
        name: Its name.
        app: The program while it runs.
        kills: How often it was killed.
        freezes: How often it stood still.
        cuts: One for each time that it ended with something that was not committed, or lost partitions so.
    """

    def __init__(self, name: str, start: Callable[[str], App]) -> None:
        self.name, self.kills, self.freezes, self.cuts = name, 0, 0, list[Cut]()
        self._start, self._starts = start, 0
        self.app: App | None = None

    def start(self) -> None:
        self._starts += 1
        self.app = self._start(f"{self.name}-{self._starts}")

    def check(self) -> None:
        """It ends only when it is told to."""
        if self.app is not None and self.app.process.poll() is not None:
            raise AssertionError(f"{self.name} ended: {self.app.lines()[-5:]}\n{self.app.log.read_text()[-5000:]}")

    def leave(self, committed: Positions) -> None:
        """Stop it as its user would."""
        app, before = self._running(), committed()
        self._stop(app)
        self._ended(app, "leave", before)

    def _stop(self, app: App) -> None:
        app.stop(180)

    def crash(self, committed: Positions) -> None:
        """Kill it. Its session goes on, so that nobody else can have committed in its partitions right after it."""
        app = self._running()
        app.kill()
        self.kills += 1
        self._ended(app, "kill", committed())

    def has_read(self) -> bool:
        """Whether the program that runs has read records."""
        return any(line.startswith(("batch", "record")) or '"record_data"' in line for line in self._running().lines())

    def freeze(self, seconds: float) -> None:
        """Let it stand still for a time, as if its machine were unplugged."""
        app = self._running()
        app.suspend()
        time.sleep(seconds)
        app.resume()
        self.freezes += 1

    def _running(self) -> App:
        assert self.app is not None, f"{self.name} does not run"
        return self.app

    def _ended(self, app: App, cause: str, committed: Mapping[int, int]) -> None:
        self.app = None
        self._cut(cause, self.uncommitted(app, committed))

    def _cut(self, cause: str, places: Iterable[Place]) -> None:
        found = frozenset(places)
        if found:
            self.cuts.append(Cut(self.name, cause, found))

    @abstractmethod
    def uncommitted(self, app: App, committed: Mapping[int, int]) -> Iterable[Place]:
        """What it may have read and not committed when it ended."""

    @abstractmethod
    def places(self) -> list[Place]:
        """Where it has read from, a place for each time."""


class Spark(Reader):
    """A query of ours. It commits a micro-batch when it plans the next one, so all but the last one are committed.

    The last one is in the checkpoint before a task reads, and its query reads it to the end, also after a restart.

    Attributes:
        removals: How often the group has removed its members: the machine was too busy for their heartbeats, or the
            group became a classic one again while they were an epoch behind.
    """

    def __init__(self, name: str, folder: Path, options: Mapping[str, object]) -> None:
        super().__init__(name, lambda run: streaming_app(folder, options, name=run))
        self.folder, self.removals = folder, 0
        self._told, self._checked = 0, 0

    def start(self) -> None:
        super().start()
        self._told = 0

    def check(self) -> None:
        super().check()
        if self.app is not None:
            self._account_for_removals(self.app)

    def _account_for_removals(self, app: App) -> None:
        """A removal is like a kill of the members: what the micro-batch of that moment has read is read again.

        Which one it was is not known, so it is every one since the last look.
        """
        plans = self._plans()
        lines = app.log.read_text(errors="replace").splitlines()
        told = sum("nothing is committed until the rejoin" in line for line in lines)
        if told > self._told:
            self.removals += told - self._told
            batches = [ranges for number, ranges in plans.items() if number >= self._checked]
            self._cut(
                "removed",
                {(p, o) for ranges in batches for p, (start, end) in ranges.items() for o in range(start, end)},
            )
        self._told, self._checked = told, max(plans, default=0)

    def places(self) -> list[Place]:
        return [(p, o) for p, o, _ in written_records(self.folder / "out")]

    def uncommitted(self, app: App, committed: Mapping[int, int]) -> Iterable[Place]:
        self._account_for_removals(app)
        plans = self._plans()
        last = plans[max(plans)] if plans else {}
        return {(p, o) for p, (_, end) in last.items() for o in range(committed.get(p, 0), end)}

    def _plans(self) -> dict[int, dict[int, tuple[int, int]]]:
        """The starts and ends of its micro-batches by partition, as far as Spark keeps them, by their numbers."""
        found: dict[int, dict[int, tuple[int, int]]] = {}
        for path in (self.folder / "checkpoint" / "offsets").glob("[0-9]*"):
            # The last file may have been cut short by the crash; then that batch was not planned.
            with contextlib.suppress(json.JSONDecodeError, IndexError, FileNotFoundError):
                spans = json.loads(path.read_text().splitlines()[-1])["partitions"]
                found[int(path.name)] = {
                    int(p): (span[0], span[1]) for of_topic in spans.values() for p, span in of_topic.items()
                }
        return found


def spark_queries(servers: str, topic: str, group: str, folder: Path, **more: object) -> list[Reader]:
    """Two queries of a group with two slots each; the first has an instance id and stays a member between its runs.

    Args:
        servers: The brokers.
        topic: The topic that the group reads.
        group: The group.
        folder: Where the queries' files are.
        more: Further options of both, with `_` for `.` in their names.
    """
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "kafka.group.id": group,
        "group.members": 2,
        "startingOffsets": "earliest",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    if more.get("kafka_group_protocol") != "consumer":
        options |= {"kafka.session.timeout.ms": 10_000, "kafka.heartbeat.interval.ms": 500}
    return [
        Spark("static", folder / "static", {**options, "kafka.group.instance.id": f"{topic}-static"}),
        Spark("dynamic", folder / "dynamic", options),
    ]


class Telling(Reader):
    """A program that says each record that it reads, and when all that it has read is committed.

    Its lines: `record P O V`; `committed`, after all records so far of the partitions that it has are committed;
    `revoked T-P,…` and `lost T-P,…`, when it has them no more.
    """

    def __init__(self, name: str, start: Callable[[str], App]) -> None:
        super().__init__(name, start)
        self._read: list[Place] = []

    def places(self) -> list[Place]:
        return self._read

    def uncommitted(self, app: App, committed: Mapping[int, int]) -> Iterable[Place]:
        """What it has read since it last said that all is committed. It may have committed without saying so."""
        # The program may have been killed in the middle of its last line.
        lines = [line.split() for line in app.lines()]
        pending: list[Place] = []
        for word, *rest in filter(None, lines):
            if word == "record" and len(rest) == 3:
                pending.append((int(rest[0]), int(rest[1])))
                self._read.append(pending[-1])
            elif word == "committed":
                pending = []
            elif word in ("revoked", "lost"):
                numbers = [name.rpartition("-")[2] for names in rest for name in names.split(",")]
                gone = {int(number) for number in numbers if number.isdigit()}
                self._cut("moved", (place for place in pending if place[0] in gone))
                pending = [place for place in pending if place[0] not in gone]
        return pending


class Java(Telling):
    """A consumer of the Java client; with the strategy `consumer` the brokers assign (KIP-848)."""

    def __init__(
        self, name: str, folder: Path, servers: str, group: str, topic: str, strategy: str = "range", commit_ms: int = 0
    ) -> None:
        def run(name: str) -> App:
            (folder / name).mkdir(parents=True)
            return java_consumer(folder / name, servers, group, topic, strategy=self.strategy, commit_ms=commit_ms)

        super().__init__(name, run)
        self.strategy = strategy


class Verifiable(Telling):
    """Kafka's VerifiableConsumer as a member of the consumer protocol; it commits what each poll has brought."""

    def __init__(self, name: str, folder: Path, servers: str, group: str, topic: str) -> None:
        def run(name: str) -> App:
            folder.mkdir(exist_ok=True)
            more = ("--group-id", group, "--group-protocol", "consumer", "--verbose")
            return verifiable("VerifiableConsumer", folder / f"{name}.log", servers, topic, *more)

        super().__init__(name, run)

    def _stop(self, app: App) -> None:
        app.process.terminate()
        super()._stop(app)

    def uncommitted(self, app: App, committed: Mapping[int, int]) -> Iterable[Place]:
        pending: list[Place] = []
        for line in app.lines():
            # The program may have been killed in the middle of its last line.
            with contextlib.suppress(json.JSONDecodeError):
                said = json.loads(line)
                if said["name"] == "record_data":
                    pending.append((said["partition"], said["offset"]))
                    self._read.append(pending[-1])
                elif said["name"] == "offsets_committed" and said["success"]:
                    ends = {one["partition"]: one["offset"] for one in said["offsets"]}
                    pending = [(p, o) for p, o in pending if o >= ends.get(p, 0)]
                elif said["name"] == "partitions_revoked":
                    gone = {one["partition"] for one in said["partitions"]}
                    self._cut("moved", (place for place in pending if place[0] in gone))
                    pending = [place for place in pending if place[0] not in gone]
        return pending


class Librdkafka(Telling):
    """A consumer of librdkafka, in a process of its own."""

    def __init__(
        self, name: str, folder: Path, servers: str, group: str, topic: str, protocol: str, commit_ms: int = 0
    ) -> None:
        def run(name: str) -> App:
            return librdkafka_consumer(folder, servers, group, topic, protocol, name=name, commit_ms=commit_ms)

        super().__init__(name, run)


@dataclass(frozen=True)
class Account:
    """What came of a run.

    Attributes:
        missing: Records that nobody has read.
        invented: What was read and is not in the topic.
        repeated: How often each record was read too often.
        unexplained: Records that were read more often than once and once more for each cut that they are in.
        by_cause: The number of repeated records for the causes of their cuts, such as `kill java`.
        bound: The most that could have been repeated: the sizes of all cuts.
    """

    missing: frozenset[Place]
    invented: frozenset[Place]
    repeated: Mapping[Place, int]
    unexplained: Mapping[Place, int]
    by_cause: Mapping[str, int]
    bound: int


def account(readers: Iterable[Reader], there: Iterable[Place]) -> Account:
    """Compare what the applications have read with what there is, and explain what was read more often than once."""
    every = list(readers)
    written = frozenset(there)
    times = Counter(place for reader in every for place in reader.places())
    cuts = [cut for reader in every for cut in reader.cuts]
    allowed = Counter(place for cut in cuts for place in cut.places)
    repeated = {place: count - 1 for place, count in times.items() if count > 1}
    causes: Counter[str] = Counter()
    for place in repeated:
        causes.update({f"{cut.cause} {cut.reader}" for cut in cuts if place in cut.places} or {"nothing"})
    return Account(
        written - times.keys(),
        frozenset(times.keys() - written),
        repeated,
        {place: count for place, count in repeated.items() if count > allowed[place]},
        causes,
        sum(allowed.values()),
    )
