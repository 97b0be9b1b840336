"""Check what must hold in a run, at each step and at its end, and note the verdict."""

from collections import Counter
from collections.abc import Collection, Container
from dataclasses import dataclass, field
from uuid import UUID

from assignors.model import TopicPartition
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    ApplicationRecoverableError,
    BootstrapError,
    DataLossError,
    FencedError,
    KafkaGroupError,
    LostTransactionsError,
    RetriableError,
)
from kafka_source.fetch.protocol import BY_ID
from kafka_source.kafka_client import topic_id_of
from kafka_source.model.commits import OffsetNote
from kafka_source.model.stream_offset import StreamOffset
from kafka_source.sink.two_phase import ledger
from tests.simulation import allowances
from tests.simulation.brokers.cluster import Range
from tests.simulation.brokers.group_coordinator import Committed, Group, Key, Watch
from tests.simulation.brokers.transaction_coordinator import COMPLETE_ABORT, ONGOING, PREPARE_ABORT
from tests.simulation.clients.jobs import OUTPUT
from tests.simulation.halts import HaltChecks
from tests.simulation.parts import GROUP_ID, TOPIC, Parts
from tests.simulation.scenario import LONG_POLL_MS, LOSES_MEMBERS, LOSES_RECORDS, Scenario
from tests.simulation.world import Process

_SHOWN_LINES = 120
# The faults after which a task or driver may find that another task or driver has taken its place.
_FENCES = LOSES_MEMBERS | {"run stage again", "freeze to the end", "move transaction", "read by another"}
# Virtual seconds: the longest time for which a process is suspended, and for which a fault has consequences.
_STANDS_STILL, _FAULTS_LAST = 40.0, 130.0
# Virtual seconds: the longest time for which a request of another application may be under way.
_ON_ITS_WAY = 5.0


@dataclass
class Verdict:
    """The result of a run.

    Attributes:
        problems: The checks that failed; empty if all held.
        story: The events of the run.
        faults: The number of faults of each kind.
        requests: The number of requests of each kind.
        errors: The number of answers with each error code, by the name of the API.
        allowed: The number of times that each allowance was needed.
        failures: The errors with which queries have ended, by their class.
        steps: The number of events.
        seconds: The virtual time at the end.
        records: The number of records in the logs.
    """

    scenario: Scenario
    problems: list[str] = field(default_factory=list)
    story: list[tuple[float, str, str]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, int]] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
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
            f"commit={scenario.commit}, mixed={scenario.mixed}, sink={scenario.sink}, "
            f"exactly_once={scenario.exactly_once}, static={scenario.static}, others={scenario.others}, "
            f"batches={scenario.batches}, transaction.version={scenario.transaction_version}, "
            f"max_epoch={scenario.max_epoch}, available_now={scenario.available_now}"
        ]
        faults = [f"  fault {fault}" for fault in scenario.faults]
        story = [f"  {at:8.3f} {who}: {what}" for at, who, what in self.story[-lines:]]
        return "\n".join([*head, *faults, *story, *(f"PROBLEM {one}" for one in self.problems)])


class Checks(Watch):
    """Records failed checks in a verdict."""

    def __init__(self, parts: Parts, verdict: Verdict) -> None:
        self._parts, self._scenario, self._verdict = parts, parts.scenario, verdict
        self._world, self._cluster, self._output = parts.world, parts.cluster, parts.output
        self._lost_at: list[float] = []
        self._replaced_at: list[float] = []
        # A partition's offset before another application's late commit; kept until this offset is committed again.
        self._set_back: dict[Key, int] = {}
        self._set_back_at: list[float] = []
        # The times at which slots of a batch that had left or were lost have taken a partition of the batch again.
        self._taken_again_at: dict[Key, list[float]] = {}
        # The ends of the logs when a run with Trigger.AvailableNow began.
        self._ends_before: dict[Process, tuple[UUID, list[int]]] = {}
        # The instance ids that a late JoinGroup has taken from the process that has joined since.
        self._taken_late: set[str] = set()
        # The newest decision of each sink, if it fits into one offset.
        self._decided: dict[str, ledger.Decision] = {}
        # The ids of all transactions that were decided.
        self._decided_ids: set[str] = set()
        # The partition that was behind at the last look, with which the look after the next event begins.
        self._behind = 0
        parts.groups.watches.append(self)
        self.halts = HaltChecks(parts, self._note, self._allows)
        for query in parts.queries:
            query.watch_plan, query.watch_begin, query.watch_end = self.planned, self.run_began, self.run_ended

    @property
    def lost_members(self) -> int:
        """Return the number of members that groups have removed."""
        return len(self._lost_at)

    # ---- at each step

    def begins(self, what: str) -> None:
        self._world.tell("group", what)

    def assigned(self, assignments: dict[str, bytes]) -> None:
        if not any(assignments.values()):
            self._verdict.problems.append(f"at {self._world.now:.3f} a leader assigns nothing to any member")

    def replaced(self, instance_id: str) -> None:
        self._replaced_at.append(self._world.now)
        client = self._cluster.client
        if client is not None and (self._cluster.handles_late or not client.alive):
            self._taken_late.add(instance_id)

    def lost(self, member: str, why: str) -> None:
        self._lost_at.append(self._world.now)
        self._world.tell("group", f"{member} is removed: {why}")

    def committed(self, group: Group, entries: dict[Key, Committed]) -> None:
        if group.name != GROUP_ID:
            if group.name.endswith("-ledger"):
                self._look_at_decision(group.name.removesuffix("-ledger"), next(iter(entries.values())))
            elif group.name.endswith("-finished"):
                self._look_at_finished(
                    group.name.removesuffix("-finished"), {entry.offset for entry in entries.values()}
                )
            elif group.name.startswith(f"{GROUP_ID}-rejoined-") and not group.name.endswith("-asked"):
                for tp in entries:
                    self._taken_again_at.setdefault(tp, []).append(self._world.now)
            return
        durable, created_at = self._output.durable(), self._cluster.topics[TOPIC].created_at
        for tp, entry in entries.items():
            if tp[0] != TOPIC or not self._is_of_now(tp, entry):
                continue
            name, client = f"{tp[0]}-{tp[1]}", entry.client
            self._world.tell("group", f"commits {name}@{entry.offset}")
            before, written = group.offsets.get(tp), durable.get(tp, 0)
            is_young = created_at > 0 and self._world.now < created_at + _ON_ITS_WAY
            if is_young and client in self._parts.plain:
                goes_back = before is not None and entry.offset < before.offset
                if entry.offset > written or (
                    goes_back and not self._steps_back(str(client), tp, entry.offset, "commit")
                ):
                    self._allows(allowances.ON_ITS_WAY)
                    self._output.of_predecessor[str(self._cluster.topics[TOPIC].id), tp[1]] = entry.offset
                continue
            if OffsetNote.parse(entry.metadata).rewound is not None and client in self._parts.operators:
                known = str(self._cluster.topics[tp[0]].id), tp[1]
                set_before = [r[4] for r, *_ in self._output.rewound if r[:2] == known]
                was_valid = entry.offset <= max(self._cluster.log(tp).lost_up_to, *set_before, 0)
                if was_valid and written < entry.offset <= self._cluster.end(tp):
                    self._allows(allowances.SKIPPED)
                    self._output.skipped[known] = entry.offset
                if self._scenario.commit == "sink" and before is not None and before.offset == entry.offset:
                    # Nothing is read again: a batch that starts here is not decided yet.
                    continue
                end = max(
                    [
                        0 if before is None else before.offset,
                        *set_before,
                        # A batch that is under way is read again too, even if its tasks are not planned yet.
                        *(r[4] for _, r in self._output.plans if r[:2] == known),
                        *(query.checkpoint.planned_to(tp, known[0]) for query in self._parts.queries),
                    ]
                )
                since = self._world.now, len(self._output.plans)
                self._output.rewound += [(one, *since) for one in self._cluster.fetch(tp, entry.offset, end)]
                continue
            if entry.offset > written and not (
                self._allows(allowances.TRUNCATED, if_=entry.offset <= self._cluster.log(tp).lost_up_to)
                or self._allows(allowances.ON_ITS_WAY, if_=entry.offset <= self._output.durable(late=True).get(tp, 0))
                # A transaction that times out or is overtaken after its commit was decided is lost until its batch is
                # replayed. Kafka has no request that decides and commits at once.
                or self._allows(
                    allowances.TIMED_OUT,
                    if_=entry.offset <= self._output.durable(lost=self._lost_transactions).get(tp, 0),
                )
            ):
                self._note(f"{name} is committed up to {entry.offset}, and written up to {written} only")
            # A commit whose connection was given up may be handled after the next commit, as with all clients of Kafka.
            # Only the epoch of a transaction would prevent this. A query finds the late commit and commits again; other
            # clients commit again when there are new records. Late, too, is an attempt of a task that has outlived its
            # job: the attempt is a member of the generation in which later batches are committed.
            is_late = (self._cluster.handles_late or self._outlives_its_job(client)) and (
                not self._scenario.transactional or client in self._parts.plain
            )
            if before is not None and not self._is_of_now(tp, before):
                before = None
            reached = self._set_back.pop(tp, 0 if before is None else before.offset)
            if before is None or entry.offset >= before.offset:
                continue
            if self._allows(allowances.LATE_COMMIT, if_=is_late):
                self._set_back_at.append(self._world.now)
                if client in self._parts.plain:
                    self._set_back[tp] = reached
            elif self._allows(allowances.BEGINS_AGAIN, if_=self._begins_again(tp, before, entry.offset)):
                self._set_back_at.append(self._world.now)
            elif written >= before.offset and not self._allows(
                allowances.STEPS_BACK, if_=self._steps_back(str(client), tp, entry.offset, "commit")
            ):
                # In other cases, the group follows a query that has found lost records.
                self._note(f"the offset of {name} goes back from {before.offset} to {entry.offset}")

    def _begins_again(self, tp: Key, before: Committed, offset: int) -> bool:
        """Return whether a query begins a recreated topic in which another application has continued to read.

        The application's offset has no note, and brokers that store offsets by topic names do not tell its topic.
        """
        log, created_at = self._cluster.log(tp), self._cluster.topics[tp[0]].created_at
        return self._cluster.names_only and created_at > 0 and not before.metadata and offset == log.read.start

    def _steps_back(self, name: str, tp: Key, offset: int, how: str) -> bool:
        """Return whether a query steps back to where its log lost records, which is allowed once after each loss.

        Other members of the query's group may have read on from this place in the meantime.
        """
        log, step = self._cluster.log(tp), (name.split(".")[0], how)
        if offset < log.lost_from or step in log.followed:
            return False
        log.followed.add(step)
        self._set_back_at.append(self._world.now)
        return True

    def _allows(self, allowance: allowances.Allowance, *, if_: bool = True) -> bool:
        """Return whether a failed rule is excused by this allowance, and count the allowance."""
        self._verdict.allowed[allowance.name] += if_
        return if_

    def _note(self, problem: str) -> None:
        self._verdict.problems.append(f"at {self._world.now:.3f} {problem}")

    def _is_of_now(self, tp: Key, entry: Committed) -> bool:
        return entry.is_of(self._cluster.topics[tp[0]].id)

    def planned(self, process: Process, offset: StreamOffset, began: float) -> None:
        """Check that a driver has planned only offsets of the log, and none before its group's committed offsets.

        A driver that was removed or replaced during a suspension, or while its coordinator answered nothing, notices
        this at the next answer of the group.
        """
        self.halts.planned(process, offset, began)
        gone_at = *self._lost_at, *self._replaced_at
        is_slow = self._follows_fault(self._world.now, ("slow broker", "freeze broker"))
        stood_still = any(
            (is_slow or process.froze_at <= at) and at < self._world.now < at + _STANDS_STILL for at in gone_at
        )
        for tp, span in offset.partitions.items():
            key = tp.topic, tp.partition
            if topic_id_of(offset.topics.get(tp.topic)) != self._cluster.topics[tp.topic].id:
                # The tasks find that the topic is gone.
                continue
            entry = self._parts.group.offsets.get(key)
            if entry is None or not span.start < min(span.end, entry.offset) or not self._is_of_now(key, entry):
                continue
            if self._output.durable().get(key, 0) > span.start and not (
                self._allows(allowances.STOOD_STILL, if_=stood_still)
                or self._allows(allowances.BEGINS_AGAIN, if_=self._begins_again(key, entry, span.start))
                or self._allows(allowances.STEPS_BACK, if_=self._steps_back(process.name, key, span.start, "plan"))
            ):
                self._note(f"{process.name} plans {tp} from {span.start}, and the group has {entry.offset}")

    def run_began(self, process: Process) -> None:
        """Record the ends of the topic, up to which a run with Trigger.AvailableNow reads its partitions."""
        topic = self._cluster.topics[TOPIC]
        self._ends_before[process] = topic.id, [one.end for one in topic.partitions]

    def run_ended(self, process: Process, offset: StreamOffset, owned: Container[TopicPartition]) -> None:
        """Check that such a run has read its partitions up to these ends, except in logs that have lost records."""
        (topic_id, ends), topic = self._ends_before[process], self._cluster.topics[TOPIC]
        halts = any(one.kind == "halt" for one in self._scenario.faults)
        if topic_id != topic.id or topic_id_of(offset.topics.get(TOPIC)) != topic.id or halts:
            return
        written = self._output.durable()
        for number, end in enumerate(ends):
            reached = written.get((TOPIC, number), 0)
            if TopicPartition(TOPIC, number) in owned and reached < end <= topic.partitions[number].lost_from:
                self._note(f"{process.name} ends, and {TOPIC}-{number} is written up to {reached} of {end} only")

    def _outlives_its_job(self, client: Process | None) -> bool:
        return client is not None and client.task is not None and not client.task.awaited

    def _look_at_decision(self, prefix: str, entry: Committed) -> None:
        """Check that a sink decides only about transactions that it has seen to be open."""
        parts, _, text = entry.metadata.partition(" ")
        # A later version may write decisions in another form.
        if parts != "1" or self._world.later:
            return
        self._decided[prefix] = ledger.read_decision(prefix, entry.offset, (), text, 0)
        for one in self._decided[prefix].transactions:
            self._decided_ids.add(one.transactional_id)
            *known, state = self._parts.transactions.seen.get(
                one.transactional_id, (one.producer_id, one.epoch, ONGOING)
            )
            if known != [one.producer_id, one.epoch] or state in (PREPARE_ABORT, COMPLETE_ABORT):
                self._verdict.problems.append(
                    f"at {self._world.now:.3f} a decision names epoch {one.epoch} of {one.transactional_id}, which its "
                    f"sink has seen {state} in epoch {known[1]}"
                )

    def _look_at_finished(self, prefix: str, numbers: Collection[int]) -> None:
        """Check that the records of a decision that is recorded as finished are visible."""
        decision = self._decided.get(prefix)
        if decision is None or decision.number not in numbers:
            return
        decided = {(one.producer_id, one.epoch) for one in decision.transactions}
        if any(decided.intersection(one.log.open().items()) for one in self._cluster.topics[OUTPUT].partitions):
            self._verdict.problems.append(
                f"at {self._world.now:.3f} batch {decision.batch} of {prefix} is recorded as finished, and not all of "
                "its records are visible"
            )

    # ---- at the end

    @property
    def _lost_transactions(self) -> set[str]:
        """Return the ids of transactions that may be gone after the decision about them."""
        return self._parts.transactions.timed_out

    def is_done(self) -> bool:
        """Return whether everything is committed, and nothing is open."""
        if any(one.alive for one in self._parts.operators):
            return False
        partitions = self._cluster.topics[TOPIC].partitions
        for number in (self._behind, *range(len(partitions))):
            if (self._committed_up_to((TOPIC, number)) or 0) < partitions[number].end:
                self._behind = number
                return False
        if self._scenario.runs_tasks and any(query.checkpoint.in_flight for query in self._parts.queries):
            return False
        return all(map(self._is_begun_late, self._parts.transactions.open()))

    @property
    def is_committing(self) -> bool:
        """Whether an open transaction has only offsets, such as the transaction of a driver that was just killed."""
        known = self._parts.transactions
        return any(not known.transactions[name].partitions for name in known.open())

    def _is_begun_late(self, name: str) -> bool:
        """Return whether an open transaction has no records for which readers could wait."""
        one = self._parts.transactions.transactions[name]
        logs = (log for topic in self._cluster.topics.values() for log in topic.partitions)
        holds = any(one.producer_id in log.log.open() for log in logs)
        return one.begun_late and not holds

    def _committed_up_to(self, tp: Key) -> int | None:
        """Return a partition's committed offset as members know it; None: no offset, or one after the log's end."""
        entry = self._parts.group.offsets.get(tp)
        if entry is None or not self._is_of_now(tp, entry) or entry.offset > self._cluster.end(tp):
            return None
        return max(entry.offset, self._set_back.get(tp, 0))

    def look_at_end(self) -> None:
        """Record missing, repeated and unordered records and open transactions, when the world is quiet."""
        problems, exactly_once = self._verdict.problems, self._scenario.sink and self._scenario.exactly_once
        durable = self._output.durable(lost=self._output.accepted, late=True)
        for number, one in enumerate(self._cluster.topics[TOPIC].partitions):
            if durable.get((TOPIC, number), 0) < one.end:
                problems.append(f"{TOPIC}-{number} is written up to {durable.get((TOPIC, number), 0)} of {one.end}")
            reached = self._committed_up_to((TOPIC, number))
            if one.end and (reached is None or reached < one.end):
                problems.append(f"{TOPIC}-{number} is committed up to {reached} of {one.end}")
        if left := self._output.not_read_again():
            problems.append(f"rewound and not read again: {left[:3]}")
        found = self._parts.transactions.open()
        if opened := [one for one in found if not self._allows(allowances.BEGUN_LATE, if_=self._is_begun_late(one))]:
            problems.append(f"open transactions: {', '.join(opened)}")
        if lost := [at for at in self._lost_at if not self._allows(allowances.REMOVED, if_=self._explains_removal(at))]:
            problems.append(f"members were removed at {lost} without a fault that explains it")
        if twice := [one for one in self._output.twice(of_one_batch=exactly_once) if not self._may_repeat(one)]:
            problems.append(f"written twice, though no member was lost: {twice[:3]}")
        if exactly_once:
            self._check_sink()
        self.look_at_story()

    def look_at_story(self) -> None:
        """Record events that must never happen."""
        story = self._world.story
        self._verdict.problems.extend(what for _, __, what in story if what.startswith(("BROKE", "UNHANDLED")))

    def _check_sink(self) -> None:
        problems, output = self._verdict.problems, self._output
        if twice := output.batches_written_twice():
            problems.append(f"visible twice in the output: {twice[:3]}")
        if opened := output.open_batches():
            problems.append(f"{opened} transactions are open in the output")
        # The lost part of a decided batch is written again, after later records that other members have read.
        again = bool(self._decided_ids & self._lost_transactions)
        late = [one for one in output.out_of_order() if not self._may_repeat(one)]
        if late and not self._allows(allowances.OUT_OF_ORDER, if_=again):
            problems.append(f"out of order in the output: {late[:3]}")

    def _may_repeat(self, part: Range) -> bool:
        """Return whether records may have been read twice, because of an event while their read was planned, or later.

        Such an event is the loss of a member or the end of a query, after which a batch is uncommitted. A suspension
        may come before the event. A late commit that sets the group back is such an event, too. Events count until
        the last plan of the records, or until slots of a planned batch have the partition again.
        """
        if self._scenario.by_sinks:
            return self._allows(allowances.DELETED, if_=self._went_with_its_topic(part))
        if self._allows(allowances.BY_NAME, if_=self._was_read_by_name(part)):
            return True
        plans = self._output.planned_at(part)
        taken = self._taken_again_at.get((TOPIC, part[1]), [])
        latest = max([*plans, *(at for at in taken if at <= max(plans) + _STANDS_STILL)])
        happened = (
            (allowances.AFTER_REMOVAL, self._lost_at),
            (allowances.AFTER_END, [at for query in self._parts.queries for at in query.ended_at]),
            (allowances.AFTER_SET_BACK, self._set_back_at),
            (allowances.OF_ANOTHER, [at for other in self._parts.others for at in other.repeats_at]),
        )
        return any(
            self._allows(allowance, if_=any(min(plans) - _STANDS_STILL <= at <= latest for at in times))
            for allowance, times in happened
        )

    def _was_read_by_name(self, part: Range) -> bool:
        """Return whether an attempt may have written these records of a topic that was created again, and failed."""
        topic, scenario = self._cluster.topics[TOPIC], self._scenario
        is_new = topic.created_at > 0 and part[0] == str(topic.id)
        return is_new and self._cluster.fetches.version < BY_ID and scenario.sink and not scenario.exactly_once

    def _went_with_its_topic(self, part: Range) -> bool:
        """Return whether the records' topic was deleted during the batch, and with it the offsets that fence a sink."""
        at = self._cluster.deleted_at.get(part[0])
        return at is not None and any(at - _STANDS_STILL <= plan <= at for plan in self._output.planned_at(part))

    def _explains_removal(self, at: float) -> bool:
        """Return whether a fault, or a batch that has failed, explains that a member was removed."""
        # Members with the user's instance ids do not leave when their query stops.
        explains = LOSES_MEMBERS | ({"stop query", "halt"} if self._scenario.static else set())
        if self._scenario.static and self._scenario.available_now:
            return True
        failed_at = (failed_at for batch in self._parts.batches for failed_at, _ in batch.errors)
        return self._follows_fault(at, explains) or any(one <= at <= one + _FAULTS_LAST for one in failed_at)

    def _follows_fault(self, at: float, kinds: Container[str] | None) -> bool:
        """Return whether a fault of these kinds (None: any fault) may explain an event at this time."""
        faults = (fault for fault in self._scenario.faults if kinds is None or fault.kind in kinds)
        return any(fault.at <= at <= fault.at + _FAULTS_LAST for fault in faults)

    def explains(self, failure: KafkaGroupError, at: float, *, of_batch: bool) -> bool:
        """Return whether the faults explain that a query or a batch has ended with this error."""
        scenario = self._scenario
        if isinstance(failure, BootstrapError):
            return self._allows(allowances.NO_BROKER)
        if at > scenario.seconds + _FAULTS_LAST:
            return False
        if isinstance(failure, DataLossError):
            return self._allows(
                allowances.DATA_LOSS, if_=scenario.fail_on_loss and self._follows_fault(at, LOSES_RECORDS)
            )
        if failure.code == ErrorCode.FENCED_INSTANCE_ID and any(one in str(failure) for one in self._taken_late):
            return self._allows(allowances.TAKEN_LATE)
        if failure.code == ErrorCode.UNRELEASED_INSTANCE_ID:
            # The query waits for a minute.
            sessions = 1 + sum(what.startswith(f"coordinator of {GROUP_ID} moves") for *_, what in self._world.story)
            waits = sessions * scenario.session_ms >= 60_000 or self._follows_fault(at, ("replace",))
            return self._allows(allowances.UNRELEASED, if_=waits)
        if of_batch and failure.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            # Batch reads do not support a rewind.
            return self._allows(allowances.REWIND_IN_GROUP, if_=self._follows_fault(at, ("rewind",)))
        if of_batch and isinstance(failure, FencedError):
            comes_late = scenario.batch_poll_ms < LONG_POLL_MS
            return self._allows(allowances.BATCH_FENCED, if_=comes_late or self._follows_fault(at, _FENCES))
        if not scenario.runs_tasks and not of_batch:
            lost = any(one <= at <= one + _FAULTS_LAST for one in self._lost_at)
            return self._allows(
                allowances.STOPS, if_=isinstance(failure, FencedError) and lost and scenario.on_lost == "stop"
            )
        if isinstance(failure, LostTransactionsError) and failure.decided:
            return self._allows(
                allowances.TRANSACTIONS_LOST, if_=self._lost_transactions >= set(failure.transactional_ids)
            )
        # A query runs its batch again after a restart, for whatever reason the job failed.
        is_repeatable = isinstance(failure, RetriableError | AbortableError | ApplicationRecoverableError)
        after = self._follows_fault(at, _FENCES if isinstance(failure, FencedError) else None)
        return self._allows(allowances.JOB_FAILED, if_=is_repeatable and after)
