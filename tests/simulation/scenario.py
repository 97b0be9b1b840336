"""Make the scenario of a seed: the numbers of queries and brokers, their options, and the faults.

The list of faults is made before the world starts, so that a failing seed can be shortened: faults are left out one
after another while the run still fails.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.clients import other_client

CONSUMER = "consumer protocol"
LONG_POLL_MS = 60_000
"""A `kafka.max.poll.interval.ms` that is longer than any batch."""

# Virtual seconds during which faults happen.
_FAULTS_UNTIL, _FAULTS_AROUND_TASKS_UNTIL = 60.0, 30.0
_STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "copartition", CONSUMER, CONSUMER, CONSUMER)

LOSES_MEMBERS = {
    "kill",
    "freeze",
    "stop broker",
    "freeze broker",
    "cut",
    "slow broker",
    "move group",
    "move in rebalance",
    "lose answers",
    "freeze before",
    "kill before",
    "replace",
    "kill other",
    "freeze other",
    "publish late",
    "return in rebalance",
    "run stage twice",
    "rewind",
    "create again",
    "change options",
    "change version",
}
"""The faults that may cost a member its place."""
_CHANGES_VERSION = "change transactions"
LOSES_RECORDS = ("truncate", "create again", "retain")
"""The faults after which records of the source are gone."""
_WHILE_READING = ("move leader", "move leader", "move leader", "damage", "damage", "retain")
# Faults of members. With `assign`, partitions are not added, the commit of a replaced driver is not fenced, and a
# program that rewinds the group cannot know whether the query runs.
_OF_MEMBERS = ("add partitions", "change options", "replace", "return in rebalance", "rewind")
# Everyday events, with their frequencies in worlds whose tasks do not run, and in other worlds.
_EVERYDAY = {
    "kill": (2, 1),
    "freeze": (1, 1),
    "stop broker": (1, 1),
    "freeze broker": (1, 1),
    "cut": (2, 2),
    "slow broker": (1, 1),
    "move group": (1, 1),
    "move in rebalance": (2, 1),
    "move transaction": (1, 2),
    "add partitions": (1, 1),
    "stop query": (1, 1),
    "start query": (1, 2),
    "lose answers": (2, 2),
    "freeze before": (2, 3),
    "kill before": (0, 3),
    "replace": (0, 1),
    "run stage again": (0, 1),
    "change options": (1, 1),
}


@dataclass(frozen=True)
class Fault:
    """An event in the world at a point of time: its kind, and two numbers between 0 and 1 for details."""

    at: float
    kind: str
    which: float
    how: float

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.kind} ({self.which:.2f}, {self.how:.2f})"


@dataclass(frozen=True)
class Reading:
    """How tasks read, and how brokers answer the tasks.

    Attributes:
        committed: Whether tasks get no records of aborted transactions.
        version: The newest version of Fetch that brokers know.
        fetch_bytes: The most bytes of a partition in a fetch.
        throttled: The share of fetches that are throttled.
        far: Whether leaders refer readers to followers.
    """

    committed: bool = True
    version: int = 13
    fetch_bytes: int = 1 << 20
    throttled: float = 0.0
    far: bool = False


@dataclass(frozen=True)
class Scenario:
    """What a seed stands for.

    Attributes:
        strategy: `partition.assignment.strategy` of all queries.
        transactional: Whether offsets are committed in transactions.
        share_of_long: The share of micro-batches that take long.
        on_lost: `group.on.lost`.
        static: Whether the queries have the user's instance ids, which a restart keeps.
        commit: The option `commit` of the queries.
        mixed: Whether every second query has `commit=batch` instead.
        sink: Whether the queries write to Kafka; else they have another sink.
        exactly_once: Whether that sink writes exactly once, and not at least once.
        others: The number of other applications in the group.
        batches: The number of Spark applications that read the group in batches with `commit=task`.
        batch_poll_ms: `kafka.max.poll.interval.ms` of these batches.
        timeout_ms: `kafka.transaction.timeout.ms` of the sink.
        transaction_version: The feature `transaction.version` at the beginning: 2 for KIP-890's second protocol.
        max_epoch: The highest epoch of a producer id.
        slow_markers: Whether the markers of some transactions are written late.
        names_only: Whether brokers commit and fetch offsets by the names of topics only.
        siblings: Whether the queries are reads of one application.
        reading: How the queries' tasks read.
        retention: The seconds for which brokers keep the offsets of a group without members.
        listens: Whether queries have a `StopListener`.
        halted_for: The longest time for which a program halts the group.
        fail_on_loss: The option `failOnDataLoss` of a query, until the query has ended with this error.
        selects: The option that selects the topic: `subscribe`, `subscribePattern` or `assign`.
        available_now: Whether queries run with Trigger.AvailableNow, and are started again after each end.
    """

    seed: int
    strategy: str
    queries: int
    slots: int
    partitions: int
    brokers: int = 1
    transactional: bool = True
    session_ms: int = 10_000
    share_of_long: float = 0.0
    on_lost: str = "rejoin"
    static: bool = False
    faults: tuple[Fault, ...] = ()
    commit: str = "batch"
    mixed: bool = False
    sink: bool = False
    exactly_once: bool = True
    others: int = 0
    batches: int = 0
    batch_poll_ms: int = LONG_POLL_MS
    timeout_ms: int = 600_000
    transaction_version: int = 1
    max_epoch: int = 32_767
    slow_markers: bool = False
    names_only: bool = False
    fail_on_loss: bool = True
    siblings: bool = False
    reading: Reading = Reading()
    retention: float = math.inf
    listens: bool = False
    halted_for: float = 40.0
    selects: str = "subscribe"
    available_now: bool = False

    @property
    def may_lose_transactions(self) -> bool:
        """Whether decided transactions may be gone, because they time out."""
        return self.timeout_ms < 60_000

    @property
    def runs_tasks(self) -> bool:
        """Whether the tasks of the queries run, because our code does more in these tasks than read."""
        return self.sink or self.commit == "task"

    @property
    def by_sinks(self) -> bool:
        """Whether all offsets of the group are committed with the output's records."""
        return self.commit == "sink" and not self.mixed

    def commit_of(self, query: int) -> str:
        """Return the option `commit` of a query."""
        return "batch" if self.mixed and query % 2 else self.commit

    @property
    def seconds(self) -> float:
        """Return the virtual seconds during which faults happen."""
        return _FAULTS_AROUND_TASKS_UNTIL if self.runs_tasks else _FAULTS_UNTIL


SWARM_FROM = 500_000
"""The first seed with a random half of the faults and features switched off."""


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed: its world, and the faults in it."""
    return _drawn(seed) if seed < SWARM_FROM else _in_swarm(_drawn(seed))


def _in_swarm(made: Scenario) -> Scenario:
    """Switch off a random half of the features and of the kinds of faults, and let the others happen more often.

    Faults hide each other: a query that is killed all the time never meets another fault.
    """
    rng = random.Random(f"swarm {made.seed}")
    off: dict[str, Any] = {
        name: value
        for name, value in {
            "static": False,
            "others": 0,
            "siblings": False,
            "names_only": False,
            "slow_markers": False,
            "timeout_ms": 600_000,
            "max_epoch": 32_767,
            "share_of_long": 0.0,
            "on_lost": "rejoin",
            "reading": Reading(committed=made.reading.committed),
        }.items()
        if rng.random() < 0.5
    }
    kept = {kind for kind in sorted({one.kind for one in made.faults}) if rng.random() < 0.5}
    if "others" in off:
        kept -= {"kill other", "freeze other"}
    faults = [one for one in made.faults if one.kind in kept]
    # Fewer kinds of faults leave room for more of each kind.
    faults += [replace(one, at=rng.uniform(1.0, made.seconds), how=rng.random()) for one in faults]
    return replace(made, **off, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def _drawn(seed: int) -> Scenario:
    rng = random.Random(f"scenario {seed}")
    runs_tasks, reads_batches = rng.random() < 0.35, rng.random() < 0.1
    strategy = rng.choice([one for one in _STRATEGIES if not reads_batches or one != CONSUMER])
    # Epochs rise while tasks run, so the connector refuses `commit=task` in the consumer protocol.
    commits = ["batch", "batch", "sink", "sink", "sink", *(["task"] * 2 if strategy != CONSUMER else [])]
    commit = rng.choice(commits) if runs_tasks and not reads_batches else "batch"
    runs_tasks = runs_tasks and not reads_batches
    has_others = strategy in other_client.STRATEGIES and not runs_tasks and rng.random() < 0.3
    made = Scenario(
        seed=seed,
        strategy=strategy,
        # Tasks send many requests, so worlds with tasks are smaller.
        queries=rng.choice((0, 1, 1) if reads_batches else (1, 1, 2, 2) if runs_tasks else (1, 2, 2, 3)),
        slots=rng.choice((1, 2, 2, 3)),
        partitions=rng.choice((1, 3, 4) if runs_tasks else (1, 4, 6, 9)),
        brokers=rng.choice((1, 3, 3)),
        transactional=rng.random() < 0.7,
        session_ms=rng.choice((6_000, 10_000, 20_000)),
        share_of_long=rng.choice((0.0, 0.1, 0.4)),
        on_lost=rng.choice(("rejoin", "rejoin", "stop")),
        static=rng.random() < 0.3,
        commit=commit,
        sink=runs_tasks and commit != "task",
        exactly_once=commit != "batch" or rng.random() < 0.6,
        others=rng.choice((1, 2)) if has_others else 0,
        batches=rng.choice((1, 1, 2)) if reads_batches else 0,
        batch_poll_ms=rng.choice((5_000, LONG_POLL_MS)),
        timeout_ms=rng.choice((20_000, 600_000, 600_000)),
        transaction_version=rng.choice((1, 2)),
        max_epoch=rng.choice((32_767, 32_767, 32_767 if commit == "sink" else 6)),
        slow_markers=rng.random() < 0.2,
        names_only=rng.random() < 0.2,
        fail_on_loss=rng.random() < 0.5,
        siblings=rng.random() < 0.2,
    )
    faults = list(_faults(rng, made))
    if runs_tasks or reads_batches:
        rng = random.Random(f"reading {seed}")
        made = replace(
            made,
            reading=Reading(
                committed=rng.random() < 0.7,
                version=rng.choice((11, 13, 13)),
                fetch_bytes=rng.choice((100, 1_000, 8_000, 1 << 20)),
                throttled=rng.choice((0.0, 0.0, 0.2)),
                far=rng.random() < 0.25,
            ),
        )
        for _ in range(rng.choice((0, 1, 3, 6))):
            at = rng.uniform(1.0, made.seconds)
            faults.append(Fault(at, rng.choice(_WHILE_READING), rng.random(), rng.random()))
    is_due = not made.batches and random.Random(f"available now {seed}").random() < 0.1
    ordered = tuple(sorted(faults, key=lambda fault: fault.at))
    return _selecting(_mixing(replace(made, available_now=is_due, faults=ordered)))


def _mixing(made: Scenario) -> Scenario:
    """Let some groups have queries with different values of `commit`."""
    if made.commit == "batch" or made.queries == 1 or random.Random(f"mixing {made.seed}").random() > 0.3:
        return made
    # A sink that does not commit the group's offsets does not notice that others do.
    faults = tuple(one for one in made.faults if one.kind != "read by another")
    return replace(made, mixed=True, faults=faults)


def _selecting(made: Scenario) -> Scenario:
    """Let some queries subscribe to a pattern, and some queries that are alone read assigned partitions."""
    chosen = random.Random(f"selecting {made.seed}").random()
    if chosen < 0.1:
        return replace(made, selects="subscribePattern")
    if chosen > 0.2 or made.others or made.batches or made.commit != "batch":
        return made
    faults = tuple(one for one in made.faults if one.kind not in _OF_MEMBERS)
    return replace(made, selects="assign", queries=1, transactional=False, static=False, siblings=False, faults=faults)


def _faults(rng: random.Random, made: Scenario) -> Iterator[Fault]:
    """Yield the faults: everyday events, and in some worlds events that are drawn for this world alone."""
    everyday = [
        kind for kind, weights in _EVERYDAY.items() for _ in range(weights[made.runs_tasks or made.batches > 0])
    ]
    chosen = {kind for kind in _EVERYDAY if rng.random() < 0.6}
    if rng.random() < 0.1:
        chosen = set(_EVERYDAY) - LOSES_MEMBERS
    if made.batches:
        chosen.discard("replace")
    aimed = []
    if made.sink and made.exactly_once:
        aimed += ["freeze to the end", "run stage twice"]
    if made.commit == "sink":
        aimed += ["publish late", "read by another"]
    if not made.runs_tasks and made.brokers > 1:
        aimed += ["lose once"]
        if made.static and made.strategy != CONSUMER:
            aimed += ["return in rebalance"]
    draws: Sequence[tuple[Sequence[str], Sequence[int]]] = (
        ([kind for kind in everyday if kind in chosen] or ["cut"], (0, 2, 5, 10, 20)),
        ((_CHANGES_VERSION,), (0, 0, 0, 1, 2, 4)),
        (("truncate", "create again"), (0, 0, 0, 1, 2)),
        (("rewind",), (0, 0, 0, 0, 1, 2)),
        (aimed, (0, 0, 0, 0, 1, 2)),
        (("kill other", "freeze other") if made.others else (), (0, 3)),
    )
    for kinds, counts in draws:
        count = rng.choice(counts)
        for _ in range(count if kinds else 0):
            kind = rng.choice(kinds)
            if made.brokers > 1 or not kind.startswith("move"):
                yield Fault(rng.uniform(1.0, made.seconds), kind, rng.random(), rng.random())
