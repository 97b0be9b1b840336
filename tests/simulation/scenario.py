"""What a seed stands for: how many queries and brokers, with which options, and the faults that come.

The faults are a list that is made before the world starts, so that a failing seed can be shortened: faults are left out
one after another as long as it still fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.simulation.clients import other_client

CONSUMER = "consumer protocol"
LONG_POLL_MS = 60_000
"""A `kafka.max.poll.interval.ms` that is longer than all that a batch does."""

# Virtual seconds: how long faults happen.
_FAULTS_UNTIL, _FAULTS_AROUND_TASKS_UNTIL = 60.0, 30.0
# Which part of the seeds runs tasks.
_SHARE_WITH_TASKS = 0.25
# In which part of the seeds without tasks records of the source are lost.
_SHARE_OF_LOSSES = 0.15
# In which part of those whose strategy other applications may have they are in the group.
_SHARE_OF_OTHERS = 0.3
# Which part of the sinks whose source commits itself writes at least once.
_SHARE_OF_AT_LEAST_ONCE = 0.4
# Which part of the queries has instance ids of the user's.
_SHARE_OF_STATIC = 0.3
# In which part of the seeds no fault explains that a member is lost.
_SHARE_OF_HARMLESS = 0.1
# In every sixth seed something happens at a moment in which chance seldom has it. The other seeds stay as they are.
_AIMED_EACH, _FIRST_AIMED = 6, 2
# In every twelfth seed whose tasks do not run applications read the group in batches whose tasks commit.
_BATCHES_EACH, _FIRST_WITH_BATCHES = 12, 7

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
}
"""The faults that may cost a member its place."""
_CHANGES_VERSION = "change transactions"
# The faults after which records of the source are gone.
_LOSES_RECORDS = ("truncate", "create again")
_STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "copartition", CONSUMER, CONSUMER, CONSUMER)
_KINDS: Sequence[str] = (
    "kill",
    "kill",
    "freeze",
    "stop broker",
    "freeze broker",
    "cut",
    "cut",
    "slow broker",
    "move group",
    "move in rebalance",
    "move in rebalance",
    "move transaction",
    "add partitions",
    "stop query",
    "start query",
    "lose answers",
    "lose answers",
    "freeze before",
    "freeze before",
)
_KINDS_WITH_TASKS: Sequence[str] = (
    "kill",
    "freeze",
    "stop broker",
    "freeze broker",
    "cut",
    "cut",
    "slow broker",
    "move group",
    "move in rebalance",
    "move transaction",
    "move transaction",
    "lose answers",
    "lose answers",
    "freeze before",
    "freeze before",
    "freeze before",
    "kill before",
    "kill before",
    "kill before",
    "replace",
    "run stage again",
)
_KINDS_WITH_BATCHES = ("add partitions", *(kind for kind in _KINDS_WITH_TASKS if kind != "replace"))


@dataclass(frozen=True)
class Fault:
    """Something that happens to the world at a point of time: its kind, and two numbers between 0 and 1 for details."""

    at: float
    kind: str
    which: float
    how: float

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.kind} ({self.which:.2f}, {self.how:.2f})"


@dataclass(frozen=True)
class Scenario:
    """What a seed stands for.

    Attributes:
        strategy: `partition.assignment.strategy` of all queries.
        transactional: Whether offsets are committed in transactions.
        share_of_long: Which part of the micro-batches takes long.
        on_lost: `group.on.lost`.
        static: Whether the queries have instance ids of the user's, which a restart keeps.
        commit: The option `commit` of all queries.
        sink: Whether they write to Kafka. Else their sink is another one.
        exactly_once: Whether that sink writes exactly once, and not at least once.
        others: How many other applications are in the group.
        batches: How many Spark applications read the group in batches with `commit=task`.
        batch_poll_ms: `kafka.max.poll.interval.ms` of these batches.
        timeout_ms: `kafka.transaction.timeout.ms` of the sink.
        transaction_version: The feature `transaction.version` at the beginning: 2 for KIP-890's second protocol.
        max_epoch: The highest epoch of a producer id.
        slow_markers: Whether the markers of some transactions are written late.
    """

    seed: int
    strategy: str
    queries: int
    slots: int
    partitions: int
    brokers: int
    transactional: bool
    session_ms: int
    share_of_long: float
    on_lost: str
    static: bool
    faults: tuple[Fault, ...]
    commit: str = "batch"
    sink: bool = False
    exactly_once: bool = True
    others: int = 0
    batches: int = 0
    batch_poll_ms: int = LONG_POLL_MS
    timeout_ms: int = 600_000
    transaction_version: int = 1
    max_epoch: int = 32_767
    slow_markers: bool = False

    @property
    def loses_records(self) -> bool:
        """Whether logs of the source are truncated, or its topic is created again."""
        return any(fault.kind in _LOSES_RECORDS for fault in self.faults)

    @property
    def always_second_protocol(self) -> bool:
        """Whether transactions of the source are of KIP-890's second protocol from the beginning to the end."""
        return self.transaction_version == 2 and not any(fault.kind == _CHANGES_VERSION for fault in self.faults)

    @property
    def may_lose_transactions(self) -> bool:
        """Whether decided transactions may be gone, because they time out."""
        return self.timeout_ms < 60_000

    @property
    def runs_tasks(self) -> bool:
        """Whether the tasks of the queries run, because our code in them does more than read."""
        return self.sink or self.commit == "task"

    @property
    def seconds(self) -> float:
        """How long faults happen."""
        return _FAULTS_AROUND_TASKS_UNTIL if self.runs_tasks else _FAULTS_UNTIL


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(f"scenario {seed}")
    brokers = rng.choice((1, 3, 3))
    faults = _faults(rng, _KINDS, brokers, _FAULTS_UNTIL)
    strategy = rng.choice(_STRATEGIES)
    scenario = Scenario(
        seed=seed,
        strategy=strategy,
        queries=rng.choice((1, 2, 2, 3)),
        slots=rng.choice((1, 2, 2, 3)),
        partitions=rng.choice((1, 4, 6, 9)),
        brokers=brokers,
        transactional=rng.random() < 0.7,
        session_ms=rng.choice((6_000, 10_000, 20_000)),
        share_of_long=rng.choice((0.0, 0.1, 0.4)),
        on_lost=rng.choice(("rejoin", "rejoin", "stop")),
        static=rng.random() < _SHARE_OF_STATIC,
        faults=faults,
    )
    rng = random.Random(f"tasks {seed}")
    if rng.random() < _SHARE_WITH_TASKS:
        return _aimed(_with_transactions(_with_tasks(scenario, rng)))
    if seed % _BATCHES_EACH == _FIRST_WITH_BATCHES:
        return _with_transactions(_with_batches(scenario))
    return _aimed(_with_others(_with_losses(_with_transactions(scenario))))


def _with_batches(scenario: Scenario) -> Scenario:
    """Return a scenario with batches, and perhaps a stream, in the group."""
    rng = random.Random(f"batches {scenario.seed}")
    strategy = scenario.strategy if scenario.strategy != CONSUMER else "cooperative-sticky"
    return replace(
        scenario,
        strategy=strategy,
        queries=rng.choice((0, 1, 1)),
        batches=rng.choice((1, 1, 2)),
        batch_poll_ms=rng.choice((5_000, LONG_POLL_MS)),
        faults=_faults(rng, _KINDS_WITH_BATCHES, scenario.brokers, _FAULTS_UNTIL),
    )


def _aimed(scenario: Scenario) -> Scenario:
    """Return a scenario with faults that come at a moment in which chance seldom has them, or the same one."""
    if scenario.seed % _AIMED_EACH != _FIRST_AIMED:
        return scenario
    rng = random.Random(f"aimed {scenario.seed}")
    kinds = []
    if scenario.sink and scenario.exactly_once:
        kinds += ["freeze to the end", "run stage twice"]
    if scenario.sink and scenario.commit == "sink":
        kinds += ["publish late", "read by another"]
    if not scenario.runs_tasks and scenario.brokers > 1:
        kinds += ["lose once"]
        if scenario.static and scenario.strategy != CONSUMER:
            kinds += ["return in rebalance"]
    made = _some_faults(rng, kinds, rng.choice((1, 2, 4)), scenario.seconds) if kinds else ()
    return replace(scenario, faults=_in_order(*scenario.faults, *made), slow_markers=True)


def _with_others(scenario: Scenario) -> Scenario:
    """Return a scenario with other applications in the group, or the same one."""
    rng = random.Random(f"others {scenario.seed}")
    fits = scenario.strategy in other_client.STRATEGIES and not scenario.loses_records
    if not fits or rng.random() >= _SHARE_OF_OTHERS:
        return scenario
    made = _some_faults(rng, ("kill other", "freeze other"), rng.choice((0, 3)))
    return replace(scenario, others=rng.choice((1, 2)), faults=_in_order(*scenario.faults, *made))


def _with_losses(scenario: Scenario) -> Scenario:
    """Return a scenario in which records are lost, or the same one."""
    rng = random.Random(f"losses {scenario.seed}")
    if rng.random() >= _SHARE_OF_LOSSES:
        return scenario
    # In the first protocol of transactions commits name topics by their names, so the last one of the topic before
    # counts for the new one where its driver does not know that yet. The simulated coordinator of the consumer protocol
    # assigns by name.
    by_id = scenario.strategy != CONSUMER and (not scenario.transactional or scenario.always_second_protocol)
    kinds = _LOSES_RECORDS if by_id else _LOSES_RECORDS[:1]
    return replace(scenario, faults=_in_order(*scenario.faults, *_some_faults(rng, kinds, 3)))


def _with_transactions(scenario: Scenario) -> Scenario:
    """Return a scenario with a version of transactions; in some it changes, or producer ids are used up soon."""
    rng = random.Random(f"transactions {scenario.seed}")
    changes = _some_faults(rng, (_CHANGES_VERSION,), rng.choice((0, 0, 0, 1, 2, 4)), scenario.seconds)
    return replace(
        scenario,
        faults=_in_order(*scenario.faults, *changes),
        transaction_version=rng.choice((1, 2)),
        max_epoch=rng.choice((32_767, 32_767, 32_767 if scenario.commit == "sink" else 6)),
    )


def _with_tasks(scenario: Scenario, rng: random.Random) -> Scenario:
    """Return a scenario whose tasks run: smaller, because each micro-batch takes many requests."""
    commit = rng.choice(("batch", "batch", "sink", "sink", "sink", "task"))
    if commit == "task" and scenario.strategy == CONSUMER:
        # Epochs rise while tasks run, so the connector refuses this.
        commit = "sink"
    return replace(
        scenario,
        queries=rng.choice((1, 1, 2)),
        slots=rng.choice((1, 2, 3)),
        partitions=rng.choice((1, 3, 4)),
        faults=_faults(rng, _KINDS_WITH_TASKS, scenario.brokers, _FAULTS_AROUND_TASKS_UNTIL),
        commit=commit,
        sink=commit != "task",
        timeout_ms=rng.choice((20_000, 600_000, 600_000)),
        exactly_once=commit != "batch" or rng.random() >= _SHARE_OF_AT_LEAST_ONCE,
    )


def _faults(rng: random.Random, all_kinds: Sequence[str], brokers: int, until: float) -> tuple[Fault, ...]:
    kinds = [kind for kind in all_kinds if rng.random() < 0.6] or ["cut"]
    if rng.random() < _SHARE_OF_HARMLESS:
        kinds = [kind for kind in all_kinds if kind not in LOSES_MEMBERS]
    if brokers == 1:
        kinds = [kind for kind in kinds if not kind.startswith("move")] or ["cut"]
    count = rng.choice((0, 2, 5, 10, 20))
    return _in_order(*_some_faults(rng, kinds, count, until))


def _some_faults(rng: random.Random, kinds: Sequence[str], count: int, until: float = _FAULTS_UNTIL) -> Iterator[Fault]:
    return (Fault(rng.uniform(1.0, until), rng.choice(kinds), rng.random(), rng.random()) for _ in range(count))


def _in_order(*faults: Fault) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))
