"""Group membership by number of slots: joins, heartbeats, rebalances and restarts.

    ./run bench group [--slots 10,50,100,200] [--rounds 5] [--beats 20]

The slots of one query, 10 topics with 100 partitions, an embedded broker with one node, assignor `range`. `join`: a new
group, from the first request to the last slot's assignment. `rejoin`: a rebalance with all slots. `restart`: a new
membership of the same static members joins within the session timeout. `rolling`: four applications with a quarter of
the slots each, restarted one after the other. Heartbeats: the CPU time of the thread that sends them every 3 s
for all slots.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from assignors import load
from benchmarks._machine import describe_machine
from kafka_source.client_config import Settings
from kafka_source.embedded import EmbeddedKafka
from kafka_source.errors import ApplicationRecoverableError
from kafka_source.group.membership import GroupMembership
from kafka_source.group.model import GroupSettings, Topics

TOPICS, PARTITIONS = 10, 100
APPLICATIONS = 4
JOIN_BAR_SECONDS = 3.0
HEARTBEAT_BAR = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Case:
    """The figures for one number of slots, with one entry per round.

    Attributes:
        slots: The number of slots.
        seconds: The times in seconds, by operation.
        core: The share of a core that heartbeats used.
        rebalances: The number of rebalances during the rolling restart; the expected number is 0.
    """

    slots: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    core: list[float] = field(default_factory=list)
    rebalances: int = 0

    def line(self) -> str:
        cells = [_spread(self.seconds[name]) for name in ("join", "rejoin", "restart", "rolling")]
        share = f"{median(self.core):.1%} ({min(self.core):.1%} to {max(self.core):.1%})"
        met = max(self.seconds["join"]) <= JOIN_BAR_SECONDS and max(self.core) < HEARTBEAT_BAR and not self.rebalances
        verdict = "met" if met else "MISSED"
        return f"| {self.slots} | {' | '.join(cells)} | {self.rebalances} | {share} | {verdict} |"


HEAD = (
    "| slots | join, s | rejoin, s | restart, s | rolling restart of 4, s | rebalances in it | heartbeats, of a core | "
    f"join ≤ {JOIN_BAR_SECONDS:g} s, heartbeats < {HEARTBEAT_BAR:.0%}, no rebalance |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def _spread(times: list[float]) -> str:
    return f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


class Bench:
    """Creates memberships of new groups on one broker, and measures them."""

    def __init__(self, servers: str, topics: tuple[str, ...]) -> None:
        self._servers = servers
        self._topics = Topics(topics)
        self._groups = 0

    def measure(self, slots: int, rounds: int, beat_seconds: float) -> Case:
        case = Case(slots)
        for _ in range(rounds):
            self._groups += 1
            self._one_query(case, f"one-{self._groups}", beat_seconds)
            self._rolling(case, f"rolling-{self._groups}")
        return case

    def _one_query(self, case: Case, group: str, beat_seconds: float) -> None:
        query = self._make(group, "app", case.slots)
        _timed(case, "join", lambda: query.join(120))
        _check(query)
        case.core.append(_core_share(beat_seconds))
        generation = query.assignment.generation
        _timed(case, "rejoin", lambda: query.rejoin(120))
        _check(query)
        assert query.assignment.generation == generation + 1
        query.close()
        again = self._make(group, "app", case.slots)
        _timed(case, "restart", lambda: again.join(120))
        _check(again)
        assert again.assignment.generation == generation + 1, "the restart was a rebalance"
        again.leave()
        again.close()

    def _rolling(self, case: Case, group: str) -> None:
        names = [f"app{n}" for n in range(APPLICATIONS)]
        slots = -(-case.slots // APPLICATIONS)
        running = {name: self._make(group, name, slots) for name in names}
        _settle(list(running.values()))
        generation = running[names[0]].assignment.generation

        def roll() -> None:
            for name in names:
                running[name].close()
                running[name] = self._make(group, name, slots)
                running[name].join(120)

        _timed(case, "rolling", roll)
        case.rebalances += running[names[-1]].assignment.generation - generation
        assert not any(application.rebalance_needed() for application in running.values())
        for application in running.values():
            application.leave()
            application.close()

    def _make(self, group: str, name: str, slots: int) -> GroupMembership:
        settings = GroupSettings(group, f"{group}-{name}", slots=slots, leave_on_close=False)
        return GroupMembership(Settings({"bootstrap.servers": self._servers}), settings, self._topics, [load("range")])


def _settle(applications: list[GroupMembership]) -> None:
    """Let all applications join, and rejoin when the group rebalances, until they have the same generation."""
    settled = threading.Event()

    def run(application: GroupMembership) -> None:
        application.join(120)
        while not settled.wait(0.05):
            if application.rebalance_needed():
                application.rejoin(120)

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
    started = time.perf_counter()
    work()
    case.seconds.setdefault(name, []).append(time.perf_counter() - started)


def _check(query: GroupMembership) -> None:
    held = [tp for slot in query.assignment.slots for tp in slot.partitions]
    assert len(held) == len(set(held)) == TOPICS * PARTITIONS


def _core_share(seconds: float) -> float:
    """Return the share of a core that the membership's thread uses; there must be only one membership."""
    (thread,) = [t for t in threading.enumerate() if t.name.startswith("kafkagroup")]
    before = _cpu_seconds(thread)
    started = time.perf_counter()
    time.sleep(seconds)
    return (_cpu_seconds(thread) - before) / (time.perf_counter() - started)


def _cpu_seconds(thread: threading.Thread) -> float:
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", default="10,50,100,200")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beats", type=float, default=20.0, help="seconds for which heartbeats are measured")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    machine = describe_machine()
    print(machine, HEAD, sep="\n", flush=True)
    cases = []
    with EmbeddedKafka() as kafka:
        topics = tuple(kafka.create_topic(f"bench-{n}", PARTITIONS) for n in range(TOPICS))
        bench = Bench(kafka.bootstrap_servers, topics)
        # Warm-up: the first group of a broker creates the offsets topic.
        bench.measure(2, 1, 0.1)
        for slots in map(int, given.slots.split(",")):
            cases.append(bench.measure(slots, given.rounds, given.beats))
            print(cases[-1].line(), flush=True)
    if given.save:
        rows = [{"slots": c.slots, "seconds": c.seconds, "core": c.core, "rebalances": c.rebalances} for c in cases]
        given.save.write_text(json.dumps({"machine": machine, "cases": rows}, indent=1))


if __name__ == "__main__":
    main()
