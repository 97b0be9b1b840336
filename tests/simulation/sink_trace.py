"""Trace the exactly-once sink in a run as actions of the specification `tests/model/ExactlyOnceSink.tla`.

Nearly all actions are effects of requests, recorded when a transaction coordinator handles the request. The other
actions are Spark's calls. TLC accepts a trace if the specification can do the trace's actions in this order. Actions
that leave no trace, such as reading the ledger, are added by TLC. `docs/design/model.md` says more.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_source.kafka_client.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.simulation.brokers.cluster import Broker, Reply
from tests.simulation.brokers.transaction_coordinator import ONGOING, TransactionsWatch
from tests.simulation.clients.jobs import JobsWatch
from tests.simulation.run import Run
from tests.simulation.scenario import Scenario, scenario_of
from tests.simulation.world import Process
from tests.support.record_messages import ProduceRequest

# The faults of the specification, which has no repeated requests, so no coordinator moves here.
_FAULTS = ("kill", "freeze", "kill before", "freeze before", "replace")
_PREFIX = "copy-0"


def scenario_for_trace(seed: int) -> Scenario | None:
    """Return a seed's scenario, reduced to one query and the specification's faults; None: no exactly-once sink."""
    found = scenario_of(seed)
    if not found.sink or not found.exactly_once:
        return None
    return replace(found, queries=1, faults=tuple(one for one in found.faults if one.kind in _FAULTS))


@dataclass
class _Attempt:
    """An attempt of a task: its identity in the specification, and its progress.

    Attributes:
        launched: The position of its launch in the trace. The launch counts after the request for the driver's epoch.
        chosen: The position at which it has taken its last turn.
        described: The position of its last look at its own transaction.
    """

    slot: int
    driver: int
    task: int
    launched: int
    chosen: int = -1
    described: int = -1
    initialised: bool = False
    looked: bool = False
    wrote: bool = False


@dataclass
class Trace(JobsWatch, TransactionsWatch):
    """The actions of a run, in order.

    Attributes:
        unsuitable: The reason why the specification cannot describe the run; empty: no such reason is known.
        rows: The number of tasks of each batch, by driver and batch.
    """

    run: Run
    unsuitable: str = ""
    rows: dict[tuple[int, int], int] = field(default_factory=dict)
    _events: list[list[dict[str, Any]]] = field(default_factory=list)
    _attempts: list[_Attempt] = field(default_factory=list)
    _working: dict[Process, _Attempt] = field(default_factory=dict)
    _drivers: dict[Process, int] = field(default_factory=dict)
    _began: dict[int, int] = field(default_factory=dict)
    _initialised: dict[int, set[str]] = field(default_factory=dict)
    _aborting: set[str] = field(default_factory=set)
    _opened: dict[str, int] = field(default_factory=dict)
    _deciding: set[str] = field(default_factory=set)
    _decided: set[int] = field(default_factory=set)
    _last: dict[int, int] = field(default_factory=dict)
    _ended: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        handlers = self.run.cluster.handlers
        for request, look in (
            (InitProducerIdRequest, self._init),
            (AddOffsetsToTxnRequest, self._add_offsets),
            (AddPartitionsToTxnRequest, self._add_partitions),
            # In the second protocol, the first Produce adds the partitions.
            (ProduceRequest, self._add_partitions),
            (EndTxnRequest, self._end),
            (DescribeTransactionsRequest, self._describe),
        ):
            handlers[request] = self._watched(handlers[request], look)
        self.run.parts.transactions.watch = self
        for query in self.run.parts.queries:
            query.watch = self

    def as_json(self) -> dict[str, Any]:
        """Return the seed, the actions, and the number of tasks by driver and batch."""
        actions = [event for moment in self._events for event in moment]
        rows = [[driver, batch, tasks] for (driver, batch), tasks in self.rows.items()]
        return {"seed": self.run.scenario.seed, "unsuitable": self.unsuitable, "actions": actions, "rows": rows}

    # ---- what Spark does

    def started(self, driver: int, number: int) -> None:
        self._tell("Start", k=driver, b=number + 1)
        self._began[driver] = number

    def batch_begins(self, driver: int, process: Process, number: int, tasks: int) -> None:
        self._drivers[process] = driver
        batch = number + 1
        self.rows[driver, batch] = tasks
        self._initialised[driver] = set()
        if self._began[driver] + 1 != batch:
            self.unsuitable = f"driver {driver} begins batch {batch} after {self._began[driver]}"
        self._began[driver] = batch

    def launched(self, driver: int, worker: Process, task: int) -> None:
        self._events.append([])
        attempt = _Attempt(len(self._attempts) + 1, driver, task + 1, len(self._events) - 1)
        self._attempts.append(attempt)
        self._working[worker] = attempt

    def taken(self, worker: Process) -> None:
        attempt = self._working[worker]
        if attempt.wrote:
            self._events[attempt.described] += [
                {"a": "Write", "s": attempt.slot},
                {"a": "Prepared", "s": attempt.slot, "k": attempt.driver, "t": attempt.task},
            ]
        elif self._began[attempt.driver] not in self._decided:
            # The replay of a decided batch writes nothing.
            self.unsuitable = self.unsuitable or "a task has no rows"

    def checkpointed(self, driver: int) -> None:
        if driver in self._began:
            self._tell("Checkpoint", k=driver)

    def ended(self, driver: int) -> None:
        if driver in self._began and driver not in self._ended:
            self._events.append([])
            self._ended[driver] = len(self._events) - 1

    # ---- what the coordinators of transactions see

    def _tell(self, action: str, **details: Any) -> None:
        self._events.append([{"a": action, **details}])

    def _watched(self, handle: Any, look: Callable[..., None]) -> Any:
        def handles(broker: Broker, request: Any, reply: Reply) -> None:
            name = _name(request)
            before = self._state(name)
            handle(broker, request, reply)
            client = self.run.cluster.client
            if client is not None and name.startswith(f"{_PREFIX}-"):
                look(client, request, name, before, self._state(name))

        return handles

    def _state(self, name: str) -> tuple[int, str]:
        one = self.run.parts.transactions.transactions.get(name)
        return (-1, "") if one is None else (one.epoch, one.state)

    def _driver_acts(self, client: Process) -> int | None:
        driver = self._drivers.get(client)
        if driver is not None:
            self._last[driver] = len(self._events)
        return driver

    def _init(self, client: Process, request: Any, name: str, before: tuple[int, str], after: tuple[int, str]) -> None:
        if before == after:
            return
        driver = self._driver_acts(client)
        if driver is not None and name.endswith(("-driver", "-finished")):
            self._init_of_driver(driver, request, name, before)
        elif driver is not None:
            self._aborts(driver, name)
        elif (attempt := self._working.get(client)) is None:
            return
        elif name.endswith("-turn"):
            self._events.append([])
            attempt.chosen = len(self._events) - 1
        elif (task := _task_of(name)) is not None:
            if not attempt.initialised:
                self._events[attempt.chosen].append({"a": "Stall", "s": attempt.slot, "n": task[1]})
                self._tell("Initialise", s=attempt.slot)
            attempt.initialised = True

    def _init_of_driver(self, driver: int, request: Any, name: str, before: tuple[int, str]) -> None:
        kind = name.rsplit("-", 1)[1]
        done = self._initialised[driver]
        if before[1] == ONGOING:
            # The transaction is aborted first; the next attempt is answered.
            self._tell_init(driver, kind, done)
            done.add(f"{kind} again")
            return
        if f"{kind} again" in done:
            done.remove(f"{kind} again")
            return
        if kind == "driver" and kind in done:
            if self._began[driver] in self._decided:
                self.unsuitable = self.unsuitable or "a commit fails after its decision"
            self._tell("GiveUpBatch" if request.producer_epoch >= 0 else "InitDriver", k=driver)
            return
        self._tell_init(driver, kind, done)

    def _tell_init(self, driver: int, kind: str, done: set[str]) -> None:
        # One epoch serves one transaction: the second `finished` of a batch is part of the record of the decision.
        if kind not in done:
            done.add(kind)
            if kind == "finished" and "driver" not in done:
                return
            self._tell("InitDriver" if kind == "driver" else "InitFinished", k=driver)
            if kind == "driver" and "finished" in done:
                self._tell("InitFinished", k=driver)

    def _aborts(self, driver: int, name: str) -> None:
        """Record EndTxn and InitProducerId as one action: the first of the two requests that has an effect."""
        if name in self._aborting:
            self._aborting.remove(name)
        elif (task := _task_of(name)) is not None:
            self._tell("AbortNext", k=driver, t=task[0], n=task[1])

    def _add_offsets(
        self, client: Process, request: Any, name: str, before: tuple[int, str], after: tuple[int, str]
    ) -> None:
        driver = self._driver_acts(client)
        if driver is None or not name.endswith("-driver") or after[1] != ONGOING:
            return
        if before != after:
            self._events.append([])
            self._opened[name] = len(self._events) - 1
            self._deciding.discard(name)
        # A transaction without the ledger only records the sink's source offsets.
        if request.group_id == f"{_PREFIX}-ledger" and name not in self._deciding:
            self._deciding.add(name)
            self._events[self._opened[name]].append({"a": "BeginDecision", "k": driver})

    def _add_partitions(
        self, client: Process, request: Any, name: str, before: tuple[int, str], after: tuple[int, str]
    ) -> None:
        attempt = self._working.get(client)
        if attempt is not None and before[1] != ONGOING and after[1] == ONGOING:
            attempt.wrote = True
            self._tell("Write", s=attempt.slot)

    def _end(self, client: Process, request: Any, name: str, before: tuple[int, str], after: tuple[int, str]) -> None:
        driver = self._driver_acts(client)
        if before[1] != ONGOING or before == after:
            return
        task = _task_of(name)
        if driver is None:
            self.unsuitable = self.unsuitable or "a task ends its transaction itself"
        elif task is not None and request.committed:
            self._tell("EndNext", k=driver, t=task[0], n=task[1])
        elif task is not None:
            self._tell("AbortNext", k=driver, t=task[0], n=task[1])
            self._aborting.add(name)
        elif name.endswith("-finished") and request.committed:
            self._tell("Finished", k=driver)
        elif request.committed and name in self._deciding:
            self._tell("Decide", k=driver)
            self._decided.add(self._began[driver])
        elif not request.committed:
            self.unsuitable = self.unsuitable or f"the transaction of {name} is aborted"

    def _describe(
        self, client: Process, request: Any, name: str, before: tuple[int, str], after: tuple[int, str]
    ) -> None:
        attempt = self._working.get(client)
        if attempt is None:
            return
        if name.endswith("-driver"):
            if not attempt.looked:
                attempt.looked = True
                self._events[attempt.launched].append(
                    {"a": "Launch", "k": attempt.driver, "t": attempt.task, "s": attempt.slot}
                )
            if attempt.initialised and not attempt.wrote:
                self._tell("CheckAgain", s=attempt.slot)
        else:
            self._events.append([])
            attempt.described = len(self._events) - 1

    def marked(self, name: str, *, commit: bool) -> None:
        task = _task_of(name)
        if task is not None and commit:
            self._tell("WriteMarkers", t=task[0], n=task[1])

    def expired(self, name: str) -> None:
        task = _task_of(name)
        if task is None:
            self.unsuitable = self.unsuitable or f"the transaction of {name} has timed out"
        else:
            self._tell("TimeOut", t=task[0], n=task[1])

    def finish(self) -> None:
        """Record a crash of each driver that has ended, after its last handled request."""
        if 0 in self.rows.values():
            self.unsuitable = self.unsuitable or "a batch has no tasks"
        for driver, at in self._ended.items():
            last = min(self._last.get(driver, 0), len(self._events) - 1)
            self._events[max(at, last)].append({"a": "Crash", "k": driver})


def _name(request: Any) -> str:
    if isinstance(request, DescribeTransactionsRequest):
        return str(request.transactional_ids[0]) if len(request.transactional_ids) == 1 else ""
    if isinstance(request, AddPartitionsToTxnRequest):
        return request.v3_and_below_transactional_id
    return request.transactional_id or ""


def _task_of(name: str) -> tuple[int, int] | None:
    """Return the task and the turn of a transactional id; None: the id belongs to no task."""
    found = re.fullmatch(rf"{_PREFIX}-(\d+)-(\d+)", name)
    return None if found is None else (int(found[1]) + 1, int(found[2]))


def trace_of(seed: int) -> Trace | None:
    """Run the scenario of `scenario_for_trace` for a seed, and return its trace; None: no exactly-once sink."""
    scenario = scenario_for_trace(seed)
    if scenario is None:
        return None
    trace = Trace(Run(scenario))
    trace.run.run()
    trace.finish()
    return trace
