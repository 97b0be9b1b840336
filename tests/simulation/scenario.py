"""One seed: a scenario with its faults, what must hold while it runs and at its end, and its story where it did not.

A seed determines everything. The faults are a list that is made before the world starts, so that a failing seed can be
shortened: faults are left out one after another as long as it still fails.
"""

from __future__ import annotations

import functools
import logging
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    ApplicationRecoverableError,
    BootstrapError,
    FencedError,
    KafkaGroupError,
    LostTransactionsError,
    RetriableError,
)
from kafka_source.kafka_client import GROUP
from kafka_source.kafka_client.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka_source.kafka_client.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.sink.two_phase.ledger import Decision, read_decision
from tests.simulation import other_client
from tests.simulation.batches import BatchApplication
from tests.simulation.cluster import Cluster
from tests.simulation.consumer_coordinator import ConsumerCoordinators
from tests.simulation.group_coordinator import Committed, Group, GroupCoordinators, Key, Watch
from tests.simulation.jobs import OUTPUT, OUTPUT_PARTITIONS, simulated_engine
from tests.simulation.other_client import OtherClient
from tests.simulation.spark import Load, Output, Query
from tests.simulation.transaction_coordinator import COMPLETE_ABORT, ONGOING, PREPARE_ABORT, TransactionCoordinators
from tests.simulation.world import Process, Stuck, World
from tests.support.record_messages import ProduceRequest

CONSUMER = "consumer protocol"
TOPIC, GROUP_ID = "orders", "billing"
# Virtual seconds: how long faults happen, and how long the world may take afterwards to become quiet.
_FAULTS_UNTIL, _FAULTS_AROUND_TASKS_UNTIL = 60.0, 30.0
_QUIET_WITHIN = 400.0
# Which part of the seeds runs tasks, and how long attempts that nobody waits for may go on once the world is quiet.
_SHARE_WITH_TASKS = 0.25
_LATE_ATTEMPTS = 10.0
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
# Milliseconds: longer than all that a batch does.
_LONG_POLL = 60_000
# How long a keeper of slots may need to notice that its driver has ended, while nothing goes wrong.
_KEEPERS_END = 60.0
# The last seconds of a story that are shown.
_SHOWN_LINES = 120


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
    batch_poll_ms: int = _LONG_POLL
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
        """Whether decided transactions may be gone: they time out, or an attempt takes the id of one (`overtaken`)."""
        return self.timeout_ms < 60_000 or any(
            fault.kind in ("run stage twice", "run stage again") for fault in self.faults
        )

    @property
    def runs_tasks(self) -> bool:
        """Whether the tasks of the queries run, because our code in them does more than read."""
        return self.sink or self.commit == "task"

    @property
    def seconds(self) -> float:
        """How long faults happen."""
        return _FAULTS_AROUND_TASKS_UNTIL if self.runs_tasks else _FAULTS_UNTIL


@dataclass
class Verdict:
    """What came of a run.

    Attributes:
        problems: What did not hold; empty if everything did.
        story: What has happened.
        faults: How many faults of each kind have happened.
        requests: How many requests of each kind have come.
        errors: How often each error code was answered, by the name of the API.
        failures: The errors with which queries have ended, by their class.
        steps: How many events have happened.
        seconds: The virtual time at the end.
        records: How many records the logs have.
    """

    scenario: Scenario
    problems: list[str] = field(default_factory=list)
    story: list[tuple[float, str, str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    seconds: float = 0.0
    records: int = 0

    def tell(self, lines: int = _SHOWN_LINES) -> str:
        """Return the verdict as text: the scenario, its faults, the problems, and the end of the story."""
        scenario = self.scenario
        head = [
            f"seed {scenario.seed}: {scenario.queries} queries with {scenario.slots} slots, {scenario.partitions} "
            f"partitions, {scenario.brokers} brokers, {scenario.strategy}, transactional={scenario.transactional}, "
            f"commit={scenario.commit}, sink={scenario.sink}, exactly_once={scenario.exactly_once}, "
            f"static={scenario.static}, others={scenario.others}, batches={scenario.batches}, "
            f"transaction.version={scenario.transaction_version}, max_epoch={scenario.max_epoch}"
        ]
        faults = [f"  fault {fault}" for fault in scenario.faults]
        story = [f"  {at:8.3f} {who}: {what}" for at, who, what in self.story[-lines:]]
        return "\n".join([*head, *faults, *story, *(f"PROBLEM {one}" for one in self.problems)])


# The faults that may cost a member its place.
_LOSES_MEMBERS = {
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
# The faults after which records of the source are gone.
_LOSES_RECORDS = ("truncate", "create again")
_CHANGES_VERSION = "change transactions"
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
# The requests before which a process may stand still or die.
_DANGEROUS = tuple(
    one.API_KEY
    for one in (
        AddOffsetsToTxnRequest,
        ConsumerGroupHeartbeatRequest,
        EndTxnRequest,
        HeartbeatRequest,
        InitProducerIdRequest,
        JoinGroupRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        SyncGroupRequest,
        TxnOffsetCommitRequest,
    )
)
_DANGEROUS_TO_TASKS = tuple(
    one.API_KEY
    for one in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        ListTransactionsRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
    )
)


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
        batch_poll_ms=rng.choice((5_000, _LONG_POLL)),
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
        kinds = [kind for kind in all_kinds if kind not in _LOSES_MEMBERS]
    if brokers == 1:
        kinds = [kind for kind in kinds if not kind.startswith("move")] or ["cut"]
    count = rng.choice((0, 2, 5, 10, 20))
    return _in_order(*_some_faults(rng, kinds, count, until))


def _some_faults(rng: random.Random, kinds: Sequence[str], count: int, until: float = _FAULTS_UNTIL) -> Iterator[Fault]:
    return (Fault(rng.uniform(1.0, until), rng.choice(kinds), rng.random(), rng.random()) for _ in range(count))


def _in_order(*faults: Fault) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at))


class _Checks(Watch):
    """What must hold at each step."""

    def __init__(self, cluster: Cluster, output: Output, verdict: Verdict) -> None:
        self._cluster, self._output, self._verdict = cluster, output, verdict
        self._world = cluster.world
        self.lost_members = 0
        # The offset from which a late commit has set each partition back, until somebody commits there again.
        self.set_back: dict[Key, int] = {}
        self.has_set_back = False
        # The transactional ids of which a transaction was open for too long.
        self.timed_out: set[str] = set()
        # Those which an attempt has initialised again, although another attempt's transaction may be decided.
        self.overtaken: set[str] = set()
        self.moves_in_rebalance = False
        # The instance ids that a killed process has taken, whose JoinGroup was handled after that of its successor.
        self.taken_late: set[str] = set()
        # The processes that never commit in transactions.
        self.plain: list[Process] = []
        # The workers that stand still before they publish what their batch reads, by the group in which they do.
        self.publishers: dict[str, Process] = {}
        # The newest decision of each sink, if it fits into one offset.
        self.decided: dict[str, Decision] = {}
        # Whether a late task has published in the place of a decision's marks, which were not visible yet.
        self.lost_marks = False
        # The ids of all transactions that were decided.
        self.decided_ids: set[str] = set()
        # See `TransactionCoordinators`.
        self.seen: dict[str, tuple[int, int, str]] = {}

    def begins(self, what: str) -> None:
        self._world.tell("group", what)
        if self.moves_in_rebalance:
            self.moves_in_rebalance = False
            delay = self._world.random.choice((0.002, 0.005, 0.02, 0.1))
            self._world.after(delay, lambda: self._cluster.move_coordinator(GROUP, GROUP_ID))

    def assigned(self, assignments: dict[str, bytes]) -> None:
        if not any(assignments.values()):
            self._verdict.problems.append(f"at {self._world.now:.3f} a leader assigns nothing to any member")

    def replaced(self, instance_id: str) -> None:
        client = self._cluster.client
        if client is not None and not client.alive:
            self.taken_late.add(instance_id)

    def lost(self, member: str, why: str) -> None:
        self.lost_members += 1
        self._world.tell("group", f"{member} is removed: {why}")

    def passed(self, group: Group) -> None:
        self.lost_marks |= "-read-by-" in group.name

    def committed(self, group: Group, entries: dict[Key, Committed]) -> None:
        if group.name != GROUP_ID:
            if group.name.endswith("-ledger"):
                self._decided(group.name.removesuffix("-ledger"), next(iter(entries.values())))
            elif group.name.endswith("-finished"):
                self._finished(group.name.removesuffix("-finished"), {entry.offset for entry in entries.values()})
            self._published(group.name)
            return
        durable = self._output.durable()
        for tp, entry in entries.items():
            name = f"{tp[0]}-{tp[1]}"
            self._world.tell("group", f"commits {name}@{entry.offset}")
            # What times out or is overtaken after the decision about it is lost until its batch is replayed; Kafka has
            # no request that decides and commits at once.
            if entry.offset > max(durable.get(tp, 0), self._output.reached.get(tp, 0)) and not (
                self.timed_out or self.overtaken
            ):
                self._verdict.problems.append(
                    f"at {self._world.now:.3f} {name} is committed up to {entry.offset}, and written up to "
                    f"{durable.get(tp, 0)} only"
                )
            before = group.offsets.get(tp)
            lost_from = self._output.lost_from.get(tp)
            # A commit without a transaction whose connection was given up may come after the next one, as with all
            # clients of Kafka. The epoch of a transaction refuses it. Whoever has committed that next one does not see
            # it, and commits there again when there are new records. The same holds for an attempt of a task that has
            # outlived its job: it is a member of the generation in which later batches are committed.
            is_late = (self._cluster.handles_late or self._outlives_its_job(self._cluster.client)) and (
                not self._verdict.scenario.transactional or self._cluster.client in self.plain
            )
            reached = self.set_back.pop(tp, 0 if before is None else before.offset)
            if before is None or entry.offset >= before.offset:
                continue
            if is_late:
                self.set_back[tp], self.has_set_back = reached, True
            elif lost_from is None or entry.offset < lost_from:
                # Else the group follows a query that has found records lost.
                self._verdict.problems.append(
                    f"at {self._world.now:.3f} the offset of {name} goes back from {before.offset} to {entry.offset}"
                )

    def _outlives_its_job(self, client: Process | None) -> bool:
        return client is not None and client.task is not None and not client.task.awaited

    def _decided(self, prefix: str, entry: Committed) -> None:
        """Look whether a sink decides about transactions that it has seen to be open."""
        parts, _, text = entry.metadata.partition(" ")
        if parts != "1":
            return
        self.decided[prefix] = read_decision(prefix, entry.offset, (), text, 0)
        for one in self.decided[prefix].transactions:
            self.decided_ids.add(one.transactional_id)
            *known, state = self.seen.get(one.transactional_id, (one.producer_id, one.epoch, ONGOING))
            if known != [one.producer_id, one.epoch] or state in (PREPARE_ABORT, COMPLETE_ABORT):
                self._verdict.problems.append(
                    f"at {self._world.now:.3f} a decision names epoch {one.epoch} of {one.transactional_id}, which its "
                    f"sink has seen {state} in epoch {known[1]}"
                )

    def _finished(self, prefix: str, numbers: Collection[int]) -> None:
        """Look whether the records of a decision that is recorded as finished are visible."""
        decision = self.decided.get(prefix)
        if decision is None or decision.number not in numbers:
            return
        decided = {(one.producer_id, one.epoch) for one in decision.transactions}
        if any(decided.intersection(one.log.open().items()) for one in self._cluster.topics[OUTPUT].partitions):
            self._verdict.problems.append(
                f"at {self._world.now:.3f} batch {decision.batch} of {prefix} is recorded as finished, and not all of "
                "its records are visible"
            )

    def _published(self, group: str) -> None:
        """Let a worker go on that stands still before it publishes, soon after another one has published."""
        waiting, client = self.publishers.get(group), self._cluster.client
        if waiting is not None and client is not None and client.task is not None and client is not waiting:
            del self.publishers[group]
            self._world.after(self._world.random.uniform(0, 0.2), waiting.thaw)

    def committed_up_to(self, group: Group, tp: Key) -> int | None:
        """Return how far a partition is committed, as the members know it; None: not at all, or beyond its end."""
        entry = group.offsets.get(tp)
        if entry is None or (tp in self._output.lost_from and entry.offset > self._cluster.end(tp)):
            return None
        return max(entry.offset, self.set_back.get(tp, 0))


class Run:
    """A run of a scenario."""

    def __init__(self, scenario: Scenario, quiet_within: float = _QUIET_WITHIN) -> None:
        self.scenario, self.verdict, self._quiet_within = scenario, Verdict(scenario), quiet_within
        self.world = world = World(scenario.seed)
        self.cluster = Cluster(world, scenario.brokers)
        self.output = Output(self.cluster)
        self.checks = _Checks(self.cluster, self.output, self.verdict)
        self.groups = GroupCoordinators(self.cluster, self.checks)
        self.consumers = ConsumerCoordinators(self.cluster, self.groups, scenario.session_ms / 1000, 2000)
        self.transactions = TransactionCoordinators(self.cluster, self.groups)
        self.transactions.max_epoch = scenario.max_epoch
        self.cluster.transaction_version = scenario.transaction_version
        self.transactions.slow_markers = scenario.slow_markers
        self.checks.timed_out, self.checks.seen = self.transactions.timed_out, self.transactions.seen
        self.checks.overtaken = self.transactions.overtaken
        self.cluster.create_topic(TOPIC, scenario.partitions)
        if scenario.sink:
            self.cluster.create_topic(OUTPUT, OUTPUT_PARTITIONS)
        load = Load(share_of_long=scenario.share_of_long)
        self.queries: list[Query] = [
            Query(
                world,
                f"query-{number}",
                self._options(number),
                self.output,
                load,
                runs_tasks=scenario.runs_tasks,
                sink=self._sink_options(number),
            )
            for number in range(scenario.queries)
        ]
        self.batches = [
            BatchApplication(
                world, f"batches-{number}", self._batch_options(), self.output, load, runs_tasks=True, sink=None
            )
            for number in range(scenario.batches)
        ]
        self.queries += self.batches
        self.others = [self._other(f"other-{number}") for number in range(scenario.others)]
        self._produces = True
        # The partition that was behind at the last look: the next look, after the next event, begins with it.
        self._behind = 0
        # The workers that stand still until the world is quiet.
        self._held: list[Process] = []

    def _other(self, name: str) -> OtherClient:
        settings = other_client.settings_of(GROUP_ID, name, self.scenario.session_ms)
        return OtherClient(
            self.world, name, self.cluster, self.output, settings, TOPIC, self.scenario.strategy, self.checks.plain
        )

    def _options(self, query: int) -> dict[str, str]:
        scenario = self.scenario
        options = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "subscribe": TOPIC,
            "kafka.group.id": GROUP_ID,
            "group.members": str(scenario.slots),
            "startingOffsets": "earliest",
            "kafka.max.poll.interval.ms": str(_LONG_POLL),
            "kafka.request.timeout.ms": "10000",
            "kafka.metadata.max.age.ms": "5000",
            "commit.transactional": str(scenario.transactional).lower(),
            "maxOffsetsPerTrigger": "200",
            "group.on.lost": scenario.on_lost,
            "failOnDataLoss": str(not scenario.loses_records).lower(),
        }
        if scenario.static:
            options["kafka.group.instance.id"] = f"instance-{query}"
        if scenario.runs_tasks:
            options |= {"commit": scenario.commit, "min.records.per.task": "1"}
        if scenario.strategy == CONSUMER:
            return {**options, "kafka.group.protocol": "consumer"}
        return {
            **options,
            "kafka.partition.assignment.strategy": scenario.strategy,
            "kafka.session.timeout.ms": str(scenario.session_ms),
            "kafka.heartbeat.interval.ms": "2000",
        }

    def _batch_options(self) -> dict[str, str]:
        """Return the options of batches: those of a stream without an instance id, but for what only streams have."""
        of_streams = ("maxOffsetsPerTrigger", "group.on.lost", "kafka.group.instance.id")
        options = {name: value for name, value in self._options(0).items() if name not in of_streams}
        return {**options, "commit": "task", "kafka.max.poll.interval.ms": str(self.scenario.batch_poll_ms)}

    def _sink_options(self, query: int) -> dict[str, str] | None:
        scenario = self.scenario
        if not scenario.sink:
            return None
        options = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "topic": OUTPUT,
            "kafka.request.timeout.ms": "10000",
            "engine": "native",
        }
        if not scenario.exactly_once:
            return options
        options |= {
            "transactional": "true",
            "transactional.id.prefix": f"copy-{query}",
            "kafka.transaction.timeout.ms": str(scenario.timeout_ms),
            "transactional.on.lost": "replay" if scenario.may_lose_transactions else "stop",
        }
        return {**options, "commit.group": GROUP_ID} if scenario.commit == "sink" else options

    def run(self) -> Verdict:
        world, verdict = self.world, self.verdict
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with world.installed(), simulated_engine(world):
                self._go()
        except Stuck as error:
            verdict.problems.append(str(error))
        finally:
            logging.disable(before)
        verdict.story = world.story
        verdict.steps, verdict.seconds = world.steps, world.now
        verdict.requests, verdict.errors = self.cluster.requests, self.cluster.errors
        verdict.records = sum(one.end for one in self.cluster.topics[TOPIC].partitions)
        for query in self.queries:
            for failure in query.errors:
                verdict.failures[type(failure).__name__] += 1
                if not self._explains(failure, of_batch=isinstance(query, BatchApplication)):
                    verdict.problems.append(f"{query.name} has ended with {type(failure).__name__}: {failure}")
        return verdict

    def _explains(self, failure: KafkaGroupError, *, of_batch: bool) -> bool:
        """Return whether the faults explain that a query or a batch has ended with this error."""
        scenario = self.scenario
        if isinstance(failure, BootstrapError):
            return True
        if failure.code == ErrorCode.FENCED_INSTANCE_ID and any(one in str(failure) for one in self.checks.taken_late):
            return True
        if failure.code == ErrorCode.UNRELEASED_INSTANCE_ID:
            # A killed member's session begins anew with each coordinator, and the query waits for a minute.
            sessions = 1 + sum(what.startswith(f"coordinator of {GROUP_ID} moves") for *_, what in self.world.story)
            return sessions * scenario.session_ms >= 60_000
        if of_batch and isinstance(failure, FencedError):
            # Its slots have left because its tasks came late, or an attempt has committed whose answer nobody has got.
            return bool(scenario.faults) or scenario.batch_poll_ms < _LONG_POLL
        if not scenario.runs_tasks and not of_batch:
            return isinstance(failure, FencedError) and self.checks.lost_members > 0 and scenario.on_lost == "stop"
        if isinstance(failure, LostTransactionsError) and failure.decided:
            return self.transactions.timed_out | self.transactions.overtaken >= set(failure.transactional_ids)
        # Whatever fails a job, the query runs the batch again after its restart.
        return bool(scenario.faults) and isinstance(
            failure, RetriableError | AbortableError | ApplicationRecoverableError
        )

    def _go(self) -> None:
        world = self.world
        for number, query in enumerate(self.queries):
            world.after(world.random.uniform(0, 20.0) * number, query.start)
        for other in self.others:
            world.after(world.random.uniform(0, 20.0), other.start)
        world.after(0.1, self._produce)
        for fault in self.scenario.faults:
            world.after(fault.at, functools.partial(self._happen, fault))
        world.run(self.scenario.seconds)
        self._heal()
        world.run(self.scenario.seconds + self._quiet_within, done=self._is_quiet)
        self._stop_batches()
        if self.scenario.runs_tasks:
            for worker in (*self._held, *self.checks.publishers.values()):
                world.after(world.random.uniform(0, _LATE_ATTEMPTS / 3), worker.thaw)
            world.run(world.now + _LATE_ATTEMPTS)
        self._check_end()

    def _stop_batches(self) -> None:
        """End the applications that read batches: the keepers of their slots notice it, and leave the group."""
        for one in self.batches:
            one.stop()
        ends = self.world.now + _KEEPERS_END
        self.world.run(ends, done=lambda: not any(one.processes() for one in self.batches))
        for one in self.batches:
            self.verdict.problems.extend(f"{keeper} goes on without its driver" for keeper in one.keepers())

    def _produce(self) -> None:
        if self._produces:
            rng = self.world.random
            partition = rng.choice(self.cluster.topics[TOPIC].partitions)
            if self.cluster.brokers[partition.leader].up:
                partition.end += rng.choice((1, 5, 50))
            self.world.after(rng.uniform(0.05, 0.8), self._produce)

    def _happen(self, fault: Fault) -> None:
        world, how = self.world, fault.how
        query = self.queries[int(fault.which * len(self.queries))]
        broker = self.cluster.brokers[1 + int(fault.which * len(self.cluster.brokers))]
        world.tell(
            "fault",
            f"{fault.kind}: {query.name if 'quer' in fault.kind or fault.kind in ('kill', 'freeze') else broker.node}",
        )
        self.verdict.faults[fault.kind] += 1
        if fault.kind == "kill":
            query.kill(how * 15)
        elif fault.kind == "freeze":
            if query.process is not None and query.process.alive and not query.process.frozen:
                query.process.freeze(0.5 + how * 30)
        elif fault.kind == "stop broker":
            if broker.up and sum(one.up for one in self.cluster.brokers.values()) > min(
                1, len(self.cluster.brokers) - 1
            ):
                self.cluster.stop_broker(broker.node)
                world.after(1 + how * 20, functools.partial(self.cluster.start_broker, broker.node))
        elif fault.kind == "freeze broker":
            if not broker.frozen:
                broker.frozen = True
                world.after(0.1 + how * 8, broker.thaw)
        elif fault.kind == "cut":
            for link in list(broker.links):
                if world.random.random() < 0.2 + 0.8 * how:
                    link.cut()
        elif fault.kind == "slow broker":
            broker.slow = how * 2
            world.after(8.0, lambda: setattr(broker, "slow", 0.0))
        elif fault.kind == "lose answers":
            only = None if how < 0.4 else world.random.choice(_DANGEROUS)
            moves = world.random.random() < 0.5 and len(self.cluster.brokers) > 1
            share = how if only is None else 0.5
            self.cluster.lose_answers(1 + fault.which * 8, share, moves=moves, only=only)
        elif fault.kind == "freeze before":
            process = self._some_process(query)
            if process is not None and process.alive:
                self._freeze_before(process, self._dangerous(how), 0.5 + world.random.random() * 30)
        elif fault.kind == "kill before":
            process = self._some_process(query)
            if process is not None:
                process.before(self._dangerous(how), lambda: self._kill_before(query, process), skip=self._skipped())
        elif fault.kind == "replace":
            query.replace(0.5 + how * 30)
        elif fault.kind == "run stage again":
            if query.jobs is not None:
                query.jobs.run_again()
        elif fault.kind == "run stage twice":
            query.armed.append(lambda worker, task: self._run_stage_twice(query))
        elif fault.kind == "freeze to the end":
            query.armed.append(lambda worker, task: self._freeze_to_the_end(worker, how))
        elif fault.kind == "publish late":
            query.armed.append(lambda worker, task: task == 0 and self._publish_late(query, worker))
        elif fault.kind == "read by another":
            query.armed.append(lambda worker, task: self._read_by_another(query, how))
        elif fault.kind == "lose once":
            about = SyncGroupRequest if self.scenario.strategy != CONSUMER else ConsumerGroupHeartbeatRequest
            self.cluster.lose_once((InitProducerIdRequest if how < 0.5 else about).API_KEY)
        elif fault.kind == "return in rebalance":
            # Somebody notices the partition, and the others wait for the static members that are away.
            query.kill(how * 8)
            self.cluster.add_partitions(TOPIC, 1)
            self.checks.moves_in_rebalance = True
        elif fault.kind == "move group":
            self.cluster.move_coordinator(GROUP, GROUP_ID)
        elif fault.kind == "move in rebalance":
            self.checks.moves_in_rebalance = True
        elif fault.kind == "move transaction":
            known = [place for place in self.cluster.known_coordinators() if place[0] != GROUP]
            if known:
                self.cluster.move_coordinator(*known[int(how * len(known))])
        elif fault.kind == _CHANGES_VERSION:
            # Clients hear of it when they connect anew.
            self.cluster.transaction_version = 3 - self.cluster.transaction_version
        elif fault.kind == "add partitions":
            self.cluster.add_partitions(TOPIC, 1 + int(how * 3))
        elif fault.kind == "kill other":
            self.others[int(fault.which * len(self.others))].kill(how * 15)
        elif fault.kind == "freeze other":
            self.others[int(fault.which * len(self.others))].freeze(0.5 + how * 30)
        elif fault.kind == "truncate":
            tp = TOPIC, int(fault.which * len(self.cluster.topics[TOPIC].partitions))
            before = self.cluster.end(tp)
            self.cluster.truncate(*tp, 1 + int(how * 60))
            self.output.lose(tp, self.cluster.end(tp), before)
        elif fault.kind == "create again":
            partitions = self.cluster.topics[TOPIC].partitions
            for number, one in enumerate(partitions):
                self.output.lose((TOPIC, number), 0, one.end)
            self.cluster.create_topic(TOPIC, len(partitions))
            self.groups.topic_deleted(TOPIC)
        elif fault.kind == "stop query":
            query.stop()
        elif fault.kind == "start query":
            query.start()

    def _dangerous(self, how: float) -> int:
        keys = _DANGEROUS_TO_TASKS if self.scenario.runs_tasks else _DANGEROUS
        return keys[int(how * len(keys))]

    def _skipped(self) -> int:
        # The same request has several purposes in a batch of a sink.
        return self.world.random.choice((0, 0, 1, 2, 4)) if self.scenario.runs_tasks else 0

    def _some_process(self, query: Query) -> Process | None:
        """Return a process of a query: that of its planner, or of its sink or a worker."""
        if isinstance(query, BatchApplication):
            return self.world.random.choice([query.process, *query.processes()])
        if query.jobs is None:
            return query.process
        workers = [one for one in query.jobs.workers if one.alive]
        among = [
            query.process,
            query.jobs.driver,
            query.jobs.driver,
            *([self.world.random.choice(workers)] if workers else []),
        ]
        return self.world.random.choice(among)

    def _freeze_before(self, process: Process, api_key: int, seconds: float) -> None:
        def freeze() -> None:
            self.world.tell(process.name, f"stands still for {seconds:.1f} s before a request {api_key}")
            process.freeze(seconds)

        process.before(api_key, freeze, skip=self._skipped())

    def _kill_before(self, query: Query, process: Process) -> None:
        self.world.tell(process.name, "dies before a request")
        if process.task is not None:
            process.kill()
        else:
            query.kill(self.world.random.uniform(0, 15))

    def _run_stage_twice(self, query: Query) -> bool:
        """Let the stage that begins run again soon, in processes that stand still before they initialise an id.

        Perhaps the driver stands still meanwhile, before it looks at the transactions or after its decision.
        """
        rng, jobs = self.world.random, query.jobs
        if jobs is None:
            return True

        def run_again() -> None:
            if not jobs.driver.alive:
                return
            query.armed.append(hold)
            jobs.run_again()
            query.armed.remove(hold)

        def hold(worker: Process, _: int) -> bool:
            seconds = rng.uniform(0.05, 1.0)
            worker.before(InitProducerIdRequest.API_KEY, functools.partial(worker.freeze, seconds))
            return False

        # The first EndTxn is that of the decision.
        request, skipped = rng.choice(((None, 0), (DescribeTransactionsRequest, 0), (EndTxnRequest, 1)))
        if request is not None:
            hold_seconds = rng.uniform(0.5, 3.0)
            jobs.driver.before(request.API_KEY, functools.partial(jobs.driver.freeze, hold_seconds), skip=skipped)
        self.world.after(rng.uniform(0, 0.3), run_again)
        return True

    def _freeze_to_the_end(self, worker: Process, how: float) -> bool:
        """Let an attempt stand still until all work is done, before it initialises its id or adds a partition to it."""

        def freeze() -> None:
            if not self._is_held_beside(worker):
                worker.freeze(None)
                self._held.append(worker)

        # In the second protocol a leader adds its partitions, where it leads all of them.
        alone = self.scenario.brokers == 1 and self.cluster.transaction_version >= 2
        adds = ProduceRequest if alone else AddPartitionsToTxnRequest
        request = InitProducerIdRequest if how < 0.4 else adds
        worker.before(request.API_KEY, freeze, skip=1 if how > 0.7 else 0)
        return True

    def _is_held_beside(self, worker: Process) -> bool:
        """Return whether another attempt of its task stands still: beside two of them Spark runs no third one."""
        held = (*self._held, *self.checks.publishers.values())
        return any(one.alive and _same_task(one, worker) for one in held)

    def _publish_late(self, query: Query, worker: Process) -> bool:
        """Let the attempt that publishes stand still until that of another batch or run has published, and kill it."""

        def freeze() -> None:
            if self._is_held_beside(worker):
                return
            worker.freeze(None)
            self.checks.publishers[f"{GROUP_ID}-read-by-{query.name}"] = worker
            if self.world.random.random() < 0.7:
                self.world.after(0.01, functools.partial(query.kill, self.world.random.uniform(0, 5)))

        worker.before(OffsetCommitRequest.API_KEY, freeze)
        return True

    def _read_by_another(self, query: Query, how: float) -> bool:
        """Let somebody read and commit a part of a batch that begins, whose member is of the query's generation.

        Coordinators do not check that a member of the classic protocol owns the partitions that it commits.
        """
        group = self.groups.group(GROUP_ID)
        for tp, span in sorted(StreamOffset.from_json(query.checkpoint.offsets[-1]).partitions.items()):
            entry = group.offsets.get(tp)
            if span.start < span.end and entry is not None and entry.offset == span.start:
                end = span.start + 1 + int(how * (span.end - span.start))
                self.world.tell("somebody", f"reads and commits {tp.topic}-{tp.partition} from {span.start} to {end}")
                self.output.batches["somebody", len(self.output.batches)] = ((tp.topic, tp.partition, span.start, end),)
                group.commit_as_any((tp.topic, tp.partition), end)
                break
        return True

    def _heal(self) -> None:
        world = self.world
        world.tell("world", "becomes quiet")
        self._produces = False
        for broker in self.cluster.brokers.values():
            broker.slow = 0.0
            if not broker.up:
                self.cluster.start_broker(broker.node)
            if broker.frozen:
                broker.thaw()
        for query in self.queries:
            query.start()

    def _is_quiet(self) -> bool:
        partitions = self.cluster.topics[TOPIC].partitions
        group = self.groups.group(GROUP_ID)
        for number in (self._behind, *range(len(partitions))):
            if (self.checks.committed_up_to(group, (TOPIC, number)) or 0) < partitions[number].end:
                self._behind = number
                return False
        if self.scenario.runs_tasks and any(query.checkpoint.in_flight for query in self.queries):
            return False
        return not self.transactions.open()

    def _check_end(self) -> None:
        problems = self.verdict.problems
        waits = self.checks.lost_marks and any(_waits_for_somebody(query) for query in self.queries)
        durable = self.output.durable()
        group = self.groups.group(GROUP_ID)
        for number, one in enumerate([] if waits else self.cluster.topics[TOPIC].partitions):
            if durable.get((TOPIC, number), 0) < one.end:
                problems.append(f"{TOPIC}-{number} is written up to {durable.get((TOPIC, number), 0)} of {one.end}")
            reached = self.checks.committed_up_to(group, (TOPIC, number))
            if one.end and (reached is None or reached < one.end):
                problems.append(f"{TOPIC}-{number} is committed up to {reached} of {one.end}")
        if opened := self.transactions.open():
            problems.append(f"open transactions: {', '.join(opened)}")
        kinds = {fault.kind for fault in self.scenario.faults}
        # Members with instance ids of the user's do not leave when their query stops.
        explains = _LOSES_MEMBERS | ({"stop query"} if self.scenario.static else set())
        if self.checks.lost_members and not kinds & explains:
            problems.append(f"{self.checks.lost_members} members were removed without a fault that explains it")
        if (twice := self.output.twice()) and not self._may_repeat():
            problems.append(f"written twice, though no member was lost: {twice[:3]}")
        if self.scenario.sink and self.scenario.exactly_once:
            self._check_sink()
        problems.extend(what for _, __, what in self.world.story if what.startswith(("BROKE", "UNHANDLED")))

    def _check_sink(self) -> None:
        problems, output = self.verdict.problems, self.output
        if twice := output.batches_written_twice():
            problems.append(f"visible twice in the output: {twice[:3]}")
        if opened := output.open_batches():
            problems.append(f"{opened} transactions are open in the output")
        # What was lost of a decided batch is written again after what other members have read on since.
        again = self.checks.decided_ids & (self.transactions.timed_out | self.transactions.overtaken)
        if (late := output.out_of_order()) and not again and not self._may_repeat():
            problems.append(f"out of order in the output: {late[:3]}")

    def _may_repeat(self) -> bool:
        """Return whether records may have been read twice.

        A member was lost, or a query has ended, with a batch that was not committed; or a commit without a transaction
        that came late has set the group back.
        """
        if self.scenario.commit == "sink":
            return False
        if self.scenario.sink and not self.scenario.exactly_once and self.scenario.faults:
            # An attempt of a task has written before it failed, or beside another one.
            return True
        ended = any(query.starts > 1 or query.stops for query in self.queries)
        ended |= any(other.repeats for other in self.others)
        return ended or self.checks.lost_members > 0 or self.checks.has_set_back


def _waits_for_somebody(query: Query) -> bool:
    """Return whether a query cannot go on until somebody accepts what is lost."""
    last = query.errors[-1] if query.errors else None
    return isinstance(last, LostTransactionsError) and last.decided


def _same_task(one: Process, other: Process) -> bool:
    a, b = one.task, other.task
    return a is not None and b is not None and (a.partition, a.properties) == (b.partition, b.properties)


def run(seed: int, quiet_within: float = _QUIET_WITHIN) -> Verdict:
    """Run the scenario of a seed, whose world has so many virtual seconds to become quiet."""
    return Run(scenario_of(seed), quiet_within).run()


def shortened(scenario: Scenario) -> Scenario:
    """Return a scenario that fails, without the faults that it does not need to fail."""
    faults = scenario.faults
    for fault in scenario.faults:
        fewer = tuple(one for one in faults if one is not fault)
        if Run(replace(scenario, faults=fewer)).run().problems:
            faults = fewer
    return replace(scenario, faults=faults)
