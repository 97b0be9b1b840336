"""Group membership by number of slots: joins, heartbeats, rebalances and restarts.

    ./run bench group [--slots 10,50,100,200] [--partitions 1000] [--applications 4] [--rounds 5] [--beats 20]
    ./run bench group --scale --save docs/assets/benchmark-group.json
    ./run bench group --slots 1000 --partitions 10000 --applications 20
    ./run bench group --protocols [--batch 120] [--slots 200,1000] [--partitions 10000] [--interval 5000]

The slots of one query, 10 topics with a tenth of the partitions each, an embedded broker with one node, assignor
`range`. `join`: a new group, from the first request to the last slot's assignment. `rejoin`: a rebalance with all
slots. `restart`: a new membership of the same static members joins within the session timeout. `settle`: several
applications, each with an equal part of the slots, start together; the time ends when all have the same generation.
`rolling`: these applications are restarted one after the other. Heartbeats: the CPU time of the threads that send one
every 3 s for each slot. `--scale` measures 100 to 1,000 slots with 10,000 partitions, and 1,000 to 10,000 partitions
with 1,000 slots; `./run bench plot` draws the saved figures. `--protocols` compares the classic and the consumer
protocol (KIP-848). First a member joins while another is in a micro-batch and a third is idle. Then many slots join and
send heartbeats, at the interval `--interval` in milliseconds (the brokers' default is 5,000).
"""

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from statistics import median

from assignors import load
from benchmarks._command import begin, parser_of
from kafka_source.client_config import Settings
from kafka_source.errors import ApplicationRecoverableError
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.model import BatchInFlight, GroupSettings, Topics
from kafkagroup.embedded import EmbeddedKafka
from testbed.processes import cpu_seconds_of_thread

TOPICS = 10
#: The bar of `join` in seconds, up to this number of slots.
JOIN_BARS = {200: 3.0, 1000: 8.0}
HEARTBEAT_BAR = 0.05
JOIN_SECONDS = 120.0
SCALE = (100, 200, 500, 1000)
PARTITIONS_PER_SLOT = 10


@dataclass
class Case:
    """The figures for one number of slots, with one entry per round.

    Attributes:
        slots: The number of slots.
        partitions: The number of partitions.
        applications: The number of applications of `settle` and `rolling`, which share the slots.
        seconds: The times in seconds, by operation.
        cpu: The CPU seconds of this process, by operation. Other load on the machine affects these less than times.
        core: The share of a core that heartbeats used.
        rebalances: The number of rebalances during the rolling restart; the expected number is 0.
    """

    slots: int
    partitions: int
    applications: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    core: list[float] = field(default_factory=list)
    rebalances: int = 0

    @property
    def bar(self) -> float:
        """The most seconds that `join` may take."""
        return next((seconds for slots, seconds in JOIN_BARS.items() if self.slots <= slots), math.inf)

    def line(self) -> str:
        cells = [f"{_spread(self.seconds[name])}; {median(self.cpu[name]):.2f}" for name in OPERATIONS]
        share = f"{median(self.core):.1%} ({min(self.core):.1%} to {max(self.core):.1%})"
        met = max(self.seconds["join"]) <= self.bar and max(self.core) < HEARTBEAT_BAR and not self.rebalances
        verdict = f"join ≤ {self.bar:g} s: {'met' if met else 'MISSED'}"
        counts = f"{self.slots} | {self.partitions} | {self.applications}"
        return f"| {counts} | {' | '.join(cells)} | {self.rebalances} | {share} | {verdict} |"


OPERATIONS = ("join", "rejoin", "restart", "settle", "rolling")
HEAD = (
    "After the semicolon: CPU seconds of this process.\n\n"
    "| slots | partitions | applications | join, s | rejoin, s | restart, s | settle, s | rolling restart, s | "
    f"rebalances in it | heartbeats, of a core | join, heartbeats < {HEARTBEAT_BAR:.0%}, no rebalance |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def _spread(times: list[float]) -> str:
    return f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


class Bench:
    """Creates memberships of new groups on one broker, and measures them."""

    def __init__(self, servers: str, topics: tuple[str, ...], partitions: int) -> None:
        self._servers = servers
        self._topics = Topics(topics)
        self._partitions = partitions
        self._groups = 0

    def measure(self, slots: int, applications: int, rounds: int, beat_seconds: float) -> Case:
        case = Case(slots, self._partitions, applications)
        for _ in range(rounds):
            self._groups += 1
            self._one_query(case, f"one-{self._groups}", beat_seconds)
            self._rolling(case, f"rolling-{self._groups}")
        return case

    def _one_query(self, case: Case, group: str, beat_seconds: float) -> None:
        query = self._make(group, "app", case.slots)
        _timed(case, "join", lambda: query.join(JOIN_SECONDS))
        self._check(query)
        case.core.append(_core_share(beat_seconds))
        generation = query.assignment.generation
        _timed(case, "rejoin", lambda: query.rejoin(JOIN_SECONDS))
        self._check(query)
        assert query.assignment.generation == generation + 1
        query.close()
        again = self._make(group, "app", case.slots)
        _timed(case, "restart", lambda: again.join(JOIN_SECONDS))
        self._check(again)
        assert again.assignment.generation == generation + 1, "the restart was a rebalance"
        again.leave()
        again.close()

    def _rolling(self, case: Case, group: str) -> None:
        names = [f"app{n}" for n in range(case.applications)]
        slots = -(-case.slots // case.applications)
        running = {name: self._make(group, name, slots) for name in names}
        _timed(case, "settle", lambda: _settle(list(running.values())))
        generation = running[names[0]].assignment.generation

        def roll() -> None:
            for name in names:
                running[name].close()
                running[name] = self._make(group, name, slots)
                running[name].join(JOIN_SECONDS)

        _timed(case, "rolling", roll)
        case.rebalances += running[names[-1]].assignment.generation - generation
        assert not any(application.rebalance_needed() for application in running.values())
        for application in running.values():
            application.leave()
            application.close()

    def _make(self, group: str, name: str, slots: int) -> ClassicMembership:
        settings = GroupSettings(group, f"{group}-{name}", slots=slots, leave_on_close=False)
        return ClassicMembership(
            Settings({"bootstrap.servers": self._servers}), settings, self._topics, [load("range")]
        )

    def _check(self, query: ClassicMembership) -> None:
        held = [tp for slot in query.assignment.slots for tp in slot.partitions]
        assert len(held) == len(set(held)) == self._partitions


def newcomer(servers: str, topic: str, partitions: int, batch: float, *, consumer: bool) -> tuple[float, float]:
    """Let C join while A is in a micro-batch of `batch` seconds, and B is idle; each has one slot.

    Returns:
        The seconds from the start of C's join until C has its first partitions, and until C has its whole share.
    """
    group = "newcomer-consumer" if consumer else "newcomer-classic"

    def make() -> ClassicMembership | ConsumerMembership:
        config, settings = Settings({"bootstrap.servers": servers}), GroupSettings(group)
        subscription = Topics((topic,))
        if consumer:
            return ConsumerMembership(config, settings, subscription)
        return ClassicMembership(config, settings, subscription, [load("cooperative-sticky")])

    def held(one: ClassicMembership | ConsumerMembership) -> int:
        try:
            return sum(len(slot.partitions) for slot in one.assignment.slots)
        except ApplicationRecoverableError:
            return 0

    def idle(one: ClassicMembership | ConsumerMembership) -> None:
        # Do as a query with nothing to read does: Spark calls its source again and again.
        while not ended.wait(0.1):
            with one.rebalance_paused():
                if one.rebalance_needed():
                    one.rejoin(JOIN_SECONDS + batch)

    def join_and_idle(one: ClassicMembership | ConsumerMembership, seconds: float) -> None:
        one.join(seconds)
        idle(one)

    ended = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(ended.set)
        a, b, c = (stack.enter_context(contextlib.closing(make())) for _ in range(3))
        pool = ThreadPoolExecutor(3)
        a.join(JOIN_SECONDS)
        others: list[Future[None]] = [pool.submit(idle, a), pool.submit(join_and_idle, b, JOIN_SECONDS)]
        _wait(lambda: held(a) == held(b) == partitions // 2, others)
        ended.set()
        for one in others:
            one.result()
        ended.clear()
        with a.rebalance_paused():
            reading = {tp: 1 for slot in a.assignment.slots for tp in slot.partitions}
            a.set_batch_in_flight(BatchInFlight(reading))
        began = time.perf_counter()
        others = [pool.submit(idle, b), pool.submit(join_and_idle, c, JOIN_SECONDS + batch)]

        def finish() -> None:
            time.sleep(batch)
            a.set_batch_in_flight(BatchInFlight())
            idle(a)

        others.append(pool.submit(finish))
        _wait(lambda: held(c) > 0, others)
        first = time.perf_counter() - began
        _wait(lambda: held(c) == partitions // 3, others)
        whole = time.perf_counter() - began
        ended.set()
        for one in others:
            one.result()
    return first, whole


def _wait(condition: Callable[[], bool], running: Sequence[Future[None]]) -> None:
    while not condition():
        for one in running:
            if one.done():
                one.result()
        time.sleep(0.02)


def _compare_protocols(slots: Sequence[int], partitions: int, batch: float, beats: float, interval_ms: int) -> None:
    config = {
        "group.consumer.max.size": 10_000,
        "group.consumer.heartbeat.interval.ms": interval_ms,
        "group.consumer.min.heartbeat.interval.ms": min(interval_ms, 5_000),
    }
    with EmbeddedKafka(heap="2g", config=config) as kafka:
        name = kafka.create_topic("newcomer", 12)
        print(
            "| protocol | C has partitions of B, s | C has its share, s |", "| --- | --- | --- |", sep="\n", flush=True
        )
        for consumer in (False, True):
            first, whole = newcomer(kafka.bootstrap_servers, name, 12, batch, consumer=consumer)
            protocol = "consumer" if consumer else "classic"
            print(f"| {protocol} | {first:.1f} | {whole:.1f} |", flush=True)
        topics = tuple(kafka.create_topic(f"bench-{n}", partitions // TOPICS) for n in range(TOPICS))
        print(
            "| slots | partitions | join, s | heartbeats, of a core |",
            "| --- | --- | --- | --- |",
            sep="\n",
            flush=True,
        )
        # The first group is not measured, because the broker may not know all of the new topics yet.
        for count in (1, *slots):
            settings = GroupSettings(f"many-{count}", slots=count)
            client = Settings({"bootstrap.servers": kafka.bootstrap_servers})
            with contextlib.closing(ConsumerMembership(client, settings, Topics(topics))) as query:
                began = time.perf_counter()
                query.join(JOIN_SECONDS)
                while sum(len(slot.partitions) for slot in query.assignment.slots) < partitions:
                    assert time.perf_counter() - began < JOIN_SECONDS
                    time.sleep(0.02)
                seconds = time.perf_counter() - began
                held = [tp for slot in query.assignment.slots for tp in slot.partitions]
                assert len(held) == len(set(held)) == partitions, len(held)
                if count > 1:
                    print(f"| {count} | {partitions} | {seconds:.2f} | {_core_share(beats):.1%} |", flush=True)


def _settle(applications: list[ClassicMembership]) -> None:
    """Let all applications join, and rejoin when the group rebalances, until they have the same generation."""
    settled = threading.Event()

    def run(application: ClassicMembership) -> None:
        application.join(JOIN_SECONDS)
        while not settled.wait(0.05):
            if application.rebalance_needed():
                application.rejoin(JOIN_SECONDS)

    def whole() -> bool:
        # `assignment` raises an ApplicationRecoverableError while an application has not joined; the caller ignores it.
        generations = {application.assignment.generation for application in applications}
        return len(generations) == 1 and not any(application.rebalance_needed() for application in applications)

    with ThreadPoolExecutor(len(applications)) as pool:
        running = [pool.submit(run, application) for application in applications]
        while not settled.is_set():
            time.sleep(0.05)
            with contextlib.suppress(ApplicationRecoverableError):
                if whole():
                    settled.set()
            if any(one.done() for one in running):
                settled.set()
        for one in running:
            one.result()


def _timed(case: Case, name: str, work: Callable[[], object]) -> None:
    started, before = time.perf_counter(), time.process_time()
    work()
    case.seconds.setdefault(name, []).append(time.perf_counter() - started)
    case.cpu.setdefault(name, []).append(time.process_time() - before)


def _core_share(seconds: float) -> float:
    """Return the share of a core that the threads of the only membership use."""
    threads = [t for t in threading.enumerate() if t.name.startswith("kafkagroup")]
    before = _cpu_seconds(threads)
    started = time.perf_counter()
    time.sleep(seconds)
    return (_cpu_seconds(threads) - before) / (time.perf_counter() - started)


def _cpu_seconds(threads: Sequence[threading.Thread]) -> float:
    return sum(cpu_seconds_of_thread(thread.native_id or 0) for thread in threads)


def main() -> None:
    parser = parser_of(__doc__, rounds=5, saves=True)
    parser.add_argument("--slots", default="10,50,100,200")
    parser.add_argument("--partitions", default="1000", help="numbers of partitions; each with every number of slots")
    parser.add_argument("--applications", type=int, default=4)
    parser.add_argument("--scale", action="store_true", help="100 to 1,000 slots, and 1,000 to 10,000 partitions")
    parser.add_argument("--beats", type=float, default=20.0, help="seconds for which heartbeats are measured")
    parser.add_argument("--protocols", action="store_true", help="compare the classic and the consumer protocol")
    parser.add_argument("--batch", type=float, default=120.0, help="seconds of the micro-batch of --protocols")
    parser.add_argument("--interval", type=int, default=5_000, help="ms between the heartbeats of --protocols")
    given = begin(parser)
    if given.protocols:
        slots = [int(one) for one in given.slots.split(",")]
        _compare_protocols(slots, int(given.partitions), given.batch, given.beats, given.interval)
        return
    print(HEAD, flush=True)
    cases = []
    for partitions, slots in _counts(given.slots, given.partitions, scale=given.scale).items():
        cases += _measure(partitions, slots, given.applications, given.rounds, given.beats)
    if given.scale:
        print(*growth(cases), sep="\n")
    if given.save:
        given.save.write_text(
            json.dumps({"machine": given.machine, "group": [asdict(case) for case in cases]}, indent=1)
        )


def growth(cases: Sequence[Case]) -> Iterator[str]:
    """Return how the CPU time grows from the fewest to the most slots, and from the fewest to the most partitions."""
    largest = max(cases, key=lambda case: (case.slots, case.partitions))
    fewest_slots = min((case for case in cases if case.partitions == largest.partitions), key=lambda case: case.slots)
    fewest_partitions = min((case for case in cases if case.slots == largest.slots), key=lambda case: case.partitions)
    for what, first in (("slots", fewest_slots), ("partitions", fewest_partitions)):
        more = getattr(largest, what) / getattr(first, what)
        times = {name: median(largest.cpu[name]) / median(first.cpu[name]) for name in OPERATIONS}
        times["heartbeats"] = median(largest.core) / max(median(first.core), 1e-9)
        verdict = "met" if max(times.values()) <= more else "MISSED"
        shown = ", ".join(f"{name} {grown:.1f}" for name, grown in times.items())
        fewest, most = f"{getattr(first, what):,}", f"{getattr(largest, what):,} {what}"
        yield f"CPU time from {fewest} to {most}, times: {shown}; at most linear, {more:g}: {verdict}"


def _counts(slots: str, partitions: str, *, scale: bool) -> dict[int, list[int]]:
    """Return the measured numbers of slots, by number of partitions."""
    if not scale:
        return {count: [int(one) for one in slots.split(",")] for count in map(int, partitions.split(","))}
    widest = SCALE[-1] * PARTITIONS_PER_SLOT
    return {count * PARTITIONS_PER_SLOT: [SCALE[-1]] for count in SCALE} | {widest: list(SCALE)}


def _measure(partitions: int, slots: Sequence[int], applications: int, rounds: int, beats: float) -> list[Case]:
    cases = []
    # A new broker for these partitions, so that its work for other partitions is in no figure.
    with EmbeddedKafka(heap="2g") as kafka:
        topics = tuple(kafka.create_topic(f"bench-{n}", partitions // TOPICS) for n in range(TOPICS))
        bench = Bench(kafka.bootstrap_servers, topics, partitions)
        # Warm-up, because the first group of a broker creates the offsets topic.
        bench.measure(2, 2, 1, 0.1)
        for count in slots:
            cases.append(bench.measure(count, applications, rounds, beats))
            print(cases[-1].line(), flush=True)
    return cases


if __name__ == "__main__":
    main()
