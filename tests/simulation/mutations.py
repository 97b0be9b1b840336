"""Put each defect of protocol and interleaving back, one at a time, to see whether the seeds find the defect.

Most are defects that reviews have found in this project, or removals of rules of `docs/design/consumer-protocol.md`. A
mutation replaces a function. If the function is gone, the replacement fails loudly.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import kafkagroup_native as kernel

from assignors import Assignment
from kafka_source.commits import as_members, by_sink, by_tasks, halts, handoff, offsets, rights, source_offsets
from kafka_source.commits.side_groups import ASKED, within
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import CorruptRecordsError, FencedError
from kafka_source.fetch import protocol
from kafka_source.fetch.native_reader import NativeReader
from kafka_source.group import model, requests
from kafka_source.group.classic import background, leader, membership
from kafka_source.group.classic.member import Member
from kafka_source.group.consumer import member_state
from kafka_source.group.consumer import membership as consumer_membership
from kafka_source.group.consumer import slot as consumer_slot
from kafka_source.group.membership import Membership
from kafka_source.group.rebalance_log import Reason
from kafka_source.group.requests import fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset
from kafka_source.model.driver_figures import RebalanceCause
from kafka_source.produce.sender import Sender
from kafka_source.sink.two_phase import open_transactions, prepare
from kafka_source.sink.two_phase.committer import DriverEpoch, TwoPhaseCommit
from kafka_source.sink.two_phase.ledger import Ledger, LedgerState
from kafka_source.source import (
    batch,
    facts,
    group_member_owner,
    position_tracker,
    positions,
    read_task,
    standstill,
    topic_tracker,
    trigger,
)
from kafka_source.source.micro_batches import MicroBatches
from kafka_source.source.standstill import Standstill
from kafka_source.transactions import offset_committer, offset_transaction, open_transaction
from kafka_source.transactions.offset_transaction import GroupOffsets
from kafkagroup.admin import Stand, running_group
from kafkagroup.admin import halts as admin_halts
from kafkagroup.admin.rows import Rows
from tests.simulation.allowances import ALLOWANCES, RARE, UNSEEN, Allowance
from tests.simulation.checks import Checks
from tests.simulation.halts import with_halts
from tests.simulation.scenario import Scenario, scenario_of


@dataclass(frozen=True)
class Mutation:
    """A defect.

    Attributes:
        name: The wrong behavior.
        where: The object with the function that is replaced, and the function's name.
        make: Makes the wrong function from the right function.
        of_sink: Whether only seeds with sinks can find it.
        of_halts: Whether only groups that are halted can find it.
    """

    name: str
    where: tuple[Any, str]
    make: Callable[[Any], Any]
    of_sink: bool = False
    of_halts: bool = False

    def scenario_of(self, seed: int) -> Scenario:
        """Return a scenario that may find the defect."""
        return with_halts(scenario_of(seed)) if self.of_halts else scenario_of(seed)

    def applied(self) -> Any:
        """Return a context in which the defect is in place.

        Raises:
            AttributeError: The function is gone, so the mutation has to be written again.
        """
        target, attribute = self.where
        right = vars(target)[attribute] if isinstance(target, type) else getattr(target, attribute)
        return mock.patch.object(target, attribute, self.make(right))


_Defect = tuple[str, tuple[Any, str], Callable[[Any], Any]]
"""The first attributes of a mutation."""


def _commit_before_the_sink(right: Any) -> Any:
    def tasks(self: MicroBatches, start: Any, end: Any) -> Any:
        found = right(self, start, end)
        with self._owner.rebalance_paused():
            self._owner.commit(dict(end.ends))
        return found

    return tasks


def _read_through_open_transactions(right: Any) -> Any:
    async def fetch(*args: Any, **more: Any) -> Any:
        return await right(*args, **{**more, "stable": False})

    return fetch


def _positions_of_before(right: Any) -> Any:
    return lambda self, generation: self.is_resolved


def _only_lost_slots_rejoin(right: Any) -> Any:
    def reason(*args: Any, **more: Any) -> Reason | None:
        found: Reason | None = right(*args, **more)
        return found if found is not None and found.cause is RebalanceCause.LOST else None

    return reason


def _every_refusal_ends_the_commit(right: Any) -> Any:
    def may_commit_again(self: Any, error: Exception, failures: int, pause: float) -> bool:
        return not isinstance(error, FencedError) and bool(right(self, error, failures, pause))

    return may_commit_again


def _lost_while_it_joins(right: Any) -> Any:
    def answered(member: member_state.Member, sent: Any, answer: member_state.Answer) -> Any:
        is_fenced = answer.code == ErrorCode.FENCED_MEMBER_EPOCH
        return member_state.lost(member, answer.code) if is_fenced else right(member, sent, answer)

    return answered


def _every_fence_is_a_fence(right: Any) -> Any:
    async def classify(self: Any, code: int, connection: Any, deadline: Any) -> int:
        return code

    return classify


def _repeated_sync_is_empty(right: Any) -> Any:
    sent: set[tuple[int, str, int]] = set()

    async def send(self: Any, states: Mapping[str, bytes], deadline: Any) -> Any:
        key = id(self), self.status.member_id, self.status.generation
        again = key in sent
        sent.add(key)
        return await right(self, {} if again else states, deadline)

    return send


def _commit_as_nobody(right: Any) -> Any:
    async def add(client: Any, transaction: Any, group: Any, deadline: Any, **more: Any) -> Any:
        nobody = replace(group.member, generation=-1, member_id="", instance_id=None)
        return await right(client, transaction, replace(group, member=nobody), deadline, **more)

    return add


def _no_second_try(right: Any) -> Any:
    async def retrying(self: KafkaClient, work: Any, deadline: Any) -> Any:
        return await work()

    return retrying


def _leave_the_last_batch(right: Any) -> Any:
    def commit(self: Any, finished: Any) -> bool:
        return True if self._membership.rebalance_needed() is not None else right(self, finished)

    return commit


def _give_up_in_the_middle_of_a_batch(right: Any) -> Any:
    return lambda self, names, in_flight: right(self, names, ())


def _seldom_heartbeats(right: Any) -> Any:
    async def beat(self: Any, then: Any) -> None:
        await self.send(Deadline(5.0))
        await then()
        await asyncio.sleep(2 * self._settings.session_timeout_ms / 1000)

    return beat


def _two_owners(right: Any) -> Any:
    def assign(assignor: Any, cluster: Any, group: Any) -> Any:
        plan = right(assignor, cluster, group)
        members = sorted(plan)
        given = [tp for member in members[:-1] for tp in plan[member].partitions]
        last = plan[members[-1]]
        return {**plan, members[-1]: Assignment([*last.partitions, *given[:1]], last.user_data)}

    return assign


def _answers_outlive_their_topic(right: Any) -> Any:
    async def is_renewal_asked(self: Any, client: Any, group: str, partitions: Any, since: int, deadline: Any) -> bool:
        asked = await fetch_entries(client, ASKED.of(group, self.id), partitions, deadline)
        return any(within(entry.offset) >= since for entry in asked.values())

    return is_renewal_asked


def _only_once_for_each_rewind(right: Any) -> Any:
    checked: set[int] = set()

    def check(cluster: Any, group: str, offsets: Any) -> None:
        if id(offsets) not in checked:
            right(cluster, group, offsets)
        checked.add(id(offsets))

    return check


def _first_at_the_end(right: Any) -> Any:
    def starts(self: Any, wanted: Any) -> Any:
        return self._cluster.latest(wanted, read_committed=False) if wanted else {}

    return starts


def _stay_when_stopped(right: Any) -> Any:
    async def leave(self: Any, reason: str, deadline: Any, slots: Any = None) -> None:
        await self._tasks.stop()

    return leave


def _commit_all(right: Any) -> Any:
    return lambda self, finished: dict(finished)


def _fresh_instance_ids(right: Any) -> Any:
    return lambda self, slot: f"other-{time.monotonic():.3f}-{slot}"


# ---- the sink: rules of docs/design/exactly-once.md that are taken out


def _commit_before_the_decision(right: Any) -> Any:
    async def decide(self: Any, epoch: Any, batch: Any, *rest: Any) -> None:
        await self._commit_all(sorted(batch.transactions), rest[-1])
        await right(self, epoch, batch, *rest)

    return decide


def _offsets_in_a_transaction_of_their_own(right: Any) -> Any:
    async def decide(
        self: Any, epoch: Any, batch: Any, offsets: Sequence[GroupOffsets], prepared: Any, deadline: Any
    ) -> None:
        own = [one for one in offsets if one.member.member_id]
        if own:
            alone = await open_transaction.initialise(self._client, f"{self._prefix}-offsets", 30_000, deadline)
            await offset_transaction.commit_in(self._client, alone, own, deadline)
        await right(self, epoch, batch, [one for one in offsets if one not in own], prepared, deadline)

    return decide


def _empty_ledger(right: Any) -> Any:
    async def read(self: Any, deadline: Any) -> LedgerState:
        return replace(await right(self, deadline), last=None)

    return read


def _all_is_finished(right: Any) -> Any:
    async def read(self: Any, deadline: Any) -> LedgerState:
        found: LedgerState = await right(self, deadline)
        return found if found.last is None else replace(found, last=replace(found.last, done=True))

    return read


def _new_epoch_for_the_decision(right: Any) -> Any:
    async def decide(self: Any, epoch: DriverEpoch, *rest: Any) -> None:
        newest = await self._initialise("driver", rest[-1])
        await right(self, replace(epoch, driver=newest), *rest)

    return decide


def _as_if_open(right: Any) -> Any:
    async def check(self: Any, epoch: Any, batch: Any, deadline: Any) -> Any:
        names = [t.transactional_id for t in batch.transactions]
        found = await open_transactions.describe_all(self._client, names, deadline)
        # The check that no transaction times out soon also refuses transactions that have timed out.
        return [replace(one, timeout_ms=sys.maxsize) for one in found]

    return check


def _nothing_aborted(right: Any) -> Any:
    async def abort(self: Any, left: Any, driver: Any, deadline: Any) -> list[Any]:
        return []

    return abort


def _abort_without_a_fence(right: Any) -> Any:
    async def abort(self: Any, one: Any, deadline: Any) -> bool:
        if one.is_open:
            await open_transaction.end(self._client, one.transaction, commit=False, deadline=deadline)
        return bool(one.is_open)

    return abort


def _late_is_nothing(right: Any) -> Any:
    async def collect(*args: Any) -> Any:
        found = await right(*args)
        return None if found is None else replace(found, late=())

    return collect


def _first_id(_: Any) -> Any:
    async def next_id(client: Any, task: prepare.SinkTask, epoch: Any, deadline: Any) -> str:
        return task.transactional_id(0)

    return next_id


def _unchecked(right: Any) -> Any:
    async def check(*_: Any) -> None:
        pass

    return check


_OF_SINK: Sequence[_Defect] = (
    ("commit the records before the decision", (TwoPhaseCommit, "_decide"), _commit_before_the_decision),
    (
        "commit offsets in a transaction before the decision",
        (TwoPhaseCommit, "_decide"),
        _offsets_in_a_transaction_of_their_own,
    ),
    ("begin with an empty ledger", (Ledger, "read"), _empty_ledger),
    ("take each decision for finished", (Ledger, "read"), _all_is_finished),
    ("take no batch for a replay", (DriverEpoch, "covers"), lambda _: lambda self, query, batch: False),
    ("decide in a new epoch", (TwoPhaseCommit, "_decide"), _new_epoch_for_the_decision),
    ("do not look whether the transactions are open", (TwoPhaseCommit, "_check_open"), _as_if_open),
    ("leave undecided transactions open", (TwoPhaseCommit, "_abort"), _nothing_aborted),
    ("abort without a fence", (TwoPhaseCommit, "_abort_one"), _abort_without_a_fence),
    ("write in a batch that has ended", (prepare, "_check_undecided"), _unchecked),
    ("take the id of another attempt", (prepare, "_next_id"), _first_id),
    ("prepare before the flush", (Sender, "flush"), lambda _: lambda self: None),
    (
        "do not look what other members have read",
        (source_offsets, "_check_not_read_by_others"),
        lambda _: lambda handoff, committed: None,
    ),
    ("record as finished what is not visible", (TwoPhaseCommit, "_visible"), _unchecked),
    ("take what comes late for no new data", (source_offsets, "collect"), _late_is_nothing),
    (
        "commit the offsets of a sink without the marks of rewinds",
        (handoff.Handoff, "ends"),
        lambda right: lambda self, rewinds, cluster: right(self, {}, cluster),
    ),
    (
        "keep no record where a topic was created again",
        (by_sink.BySink, "keep_record"),
        lambda right: lambda self, stream, partitions, _: right(self, stream, partitions, {}),
    ),
    ("ignore the ranges of a decision", (by_sink, "only_decided"), lambda _: lambda planned, decided: list(planned)),
)


def _with(**more: Any) -> Callable[[Any], Any]:
    """Return a decorator that calls a function with additional arguments."""
    return lambda right: lambda *args, **named: right(*args, **{**named, **more})


def _only_the_first_aborted(right: Any) -> Any:
    def record_set(*args: Any, **named: Any) -> Any:
        return right(*args, **{**named, "aborted_transactions": (named["aborted_transactions"] or ())[:1] or None})

    return record_set


def _forget_late_commits(right: Any) -> Any:
    def begin(self: Any) -> None:
        self._late._commits.clear()
        self._late._done.clear()
        right(self)

    return begin


def _no_preferred_replica(right: Any) -> Any:
    def parse(*args: Any) -> Any:
        found = right(*args)
        return replace(found, partitions=tuple(replace(one, preferred=-1) for one in found.partitions))

    return parse


def _no_epoch_for_followers(right: Any) -> Any:
    def send(self: Any, node: int, parts: Any) -> None:
        for part in parts:
            part.epoch = -1 if part.follower else part.epoch
        right(self, node, parts)

    return send


def _leave_the_range(right: Any) -> Any:
    def leave(self: Any, part: Any, *_: Any, **__: Any) -> None:
        part.asked = part.whole.end

    return leave


def _take_the_id_before_reading(right: Any) -> Any:
    def begin(self: Any, sessions: Any, task: Any, options: Any) -> None:
        right(self, sessions, task, options)
        ready = [(session, self._committer(session)) for session in sessions()]
        self._committer = dict(ready).__getitem__

    return begin


def _skip_what_is_corrupt(right: Any) -> Any:
    def decode(self: Any, part: Any, records: Any) -> Any:
        with contextlib.suppress(CorruptRecordsError):
            yield from right(self, part, records)

    return decode


def _without_the_last_rows(right: Any) -> Any:
    def batches(self: Any) -> Any:
        given = list(right(self))
        yield from given[: max(1, len(given) - 1)]

    return batches


def _skip_one_with_a_lost_connection(right: Any) -> Any:
    def lost(self: Any, node: int, problem: Any) -> None:
        for part in self._parts.values():
            if part.node == node:
                part.asked = min(part.whole.end, part.asked + 1)
        right(self, node, problem)

    return lost


def _a_short_log_is_the_end(right: Any) -> Any:
    def check_end(self: Any, part: Any, fetched: Any, *, alone: bool) -> None:
        if fetched.high_watermark < part.whole.end and part.follower:
            part.asked = part.whole.end
        else:
            right(self, part, fetched, alone=alone)

    return check_end


def _next_offset(of: Callable[[Any, int], int]) -> Callable[[Any], Any]:
    def make(right: Any) -> Any:
        def scan(buffer: Any, begun: int, **named: Any) -> Any:
            found = right(buffer, begun, **named)
            fields = {name: getattr(found, name) for name in ("cut_off", "size", "batches", "offsets", "leader_epoch")}
            return SimpleNamespace(**fields, next_offset=of(found, begun))

        return scan

    return make


def _leave_the_range_after_a_loss(right: Any) -> Any:
    def out_of_range(self: Any, part: Any, problem: Any) -> None:
        before = part.asked
        right(self, part, problem)
        if part.asked != before:
            part.asked = part.whole.end

    return out_of_range


def _an_empty_answer_is_the_end(right: Any) -> Any:
    def take(self: Any, node: int, response: Any) -> Any:
        if not response.partitions:
            for part in self._parts.values():
                part.asked = part.whole.end
        return right(self, node, response)

    return take


# ---- halts of a group


def _limit_what_it_had(right: Any) -> Any:
    def limit(self: Any, starts: Any, latest: Any) -> Any:
        if self._halt is None:
            return right(self, starts, latest)
        had = vars(self).setdefault(f"_had_{self._halt.number}", set(starts))
        return {tp: to if tp in had else latest[tp] for tp, to in right(self, starts, latest).items()}

    return limit


def _look_once(right: Any) -> Any:
    return lambda self: None if self._has_looked else right(self)


def _without_keep(right: Any) -> Any:
    return lambda *args, **named: right(*args, **{**named, "keep_ms": None})


def _no_halt(right: Any) -> Any:
    async def fetch(*_: Any) -> None:
        pass

    return fetch


def _nobody_asks_members(right: Any) -> Any:
    def standing(*args: Any) -> Any:
        found = right(*args)
        return replace(found, partitions=Rows(Stand, (replace(one, obeys=True) for one in found.partitions)))

    return standing


_OF_HALTS: Sequence[_Defect] = (
    ("read beyond the boundaries of what is taken over", (Standstill, "limit"), _limit_what_it_had),
    ("look for a halt once", (Standstill, "look"), _look_once),
    ("take the end of a halt for one", (standstill, "while_it_holds"), lambda _: lambda newest: newest),
    ("take a group for halted that has batches under way", (admin_halts, "_standing"), _nobody_asks_members),
    ("let brokers forget a halt", (halts, "commit_offsets"), _without_keep),
    ("do not resume a group that brokers have forgotten", (admin_halts, "fetch_newest_halt"), _no_halt),
)


def _withhold(allowance: Allowance) -> Callable[[Any], Any]:
    return lambda right: lambda self, asked, *, if_=True: asked != allowance and right(self, asked, if_=if_)


_OF_TASKS: Sequence[_Defect] = (
    ("read what a batch has before the offset that was asked for", (kernel, "RecordSet"), _with(from_offset=0)),
    ("read on after the end of the range", (kernel, "RecordSet"), _with(to_offset=sys.maxsize)),
    ("read the records of aborted transactions", (kernel, "RecordSet"), _with(aborted_transactions=None)),
    ("know the first aborted transaction of an answer only", (kernel, "RecordSet"), _only_the_first_aborted),
    ("fetch what is uncommitted, whatever was asked for", (protocol, "encode"), _with(read_committed=False)),
    ("stay at a leader that refers to a follower", (protocol, "parse"), _no_preferred_replica),
    ("take a batch that is cut off for the end", (NativeReader, "_ask_for_whole"), _leave_the_range),
    ("leave a range when a broker refuses it", (NativeReader, "_handle_error"), _leave_the_range),
    ("leave a range that is out of a follower's", (NativeReader, "_out_of_range"), _leave_the_range),
    (
        "leave a range of which retention has removed a part",
        (NativeReader, "_out_of_range"),
        _leave_the_range_after_a_loss,
    ),
    ("take the end of a follower's log for that of the range", (NativeReader, "_check_end"), _a_short_log_is_the_end),
    (
        "count a batch for one offset",
        (kernel, "scan"),
        _next_offset(lambda found, begun: min(found.next_offset, begun + found.batches)),
    ),
    ("fetch the last offset of a batch again", (kernel, "scan"), _next_offset(lambda found, _: found.next_offset - 1)),
    ("read the first slot of a bundle only", (read_task, "_merged"), lambda _: lambda group: group[0]),
    ("skip a batch that is corrupt", (NativeReader, "_decode"), _skip_what_is_corrupt),
    ("keep the last rows of a read", (NativeReader, "batches"), _without_the_last_rows),
    ("take a throttled answer for the end", (NativeReader, "_take"), _an_empty_answer_is_the_end),
)


_OF_ANY: Sequence[_Defect] = (
    ("commit before the sink has written", (MicroBatches, "tasks"), _commit_before_the_sink),
    ("fetch offsets that a transaction is about to change", (requests, "_fetch"), _read_through_open_transactions),
    (
        "keep positions of before a rebalance",
        (position_tracker.PositionTracker, "is_resolved_after"),
        _positions_of_before,
    ),
    ("set the group back", (positions.Positions, "not_behind"), lambda _: lambda self, missing, __: dict(missing)),
    ("do not rejoin when others wait", (membership, "rebalance_reason"), _only_lost_slots_rejoin),
    (
        "take a late InitProducerId for another owner",
        (offset_committer.TransactionalCommitter, "_may_commit_again"),
        _every_refusal_ends_the_commit,
    ),
    (
        "take a coordinator that lost a member id for a second process",
        (Member, "_classify_fenced"),
        _every_fence_is_a_fence,
    ),
    ("take a fence while a member joins for a loss", (member_state, "answered"), _lost_while_it_joins),
    (
        "ask the coordinator of before for ever",
        (KafkaClient, "forget_coordinator"),
        lambda _: lambda self, key, kind=0: None,
    ),
    ("send an empty assignment in a repeated SyncGroup", (Member, "_send_sync"), _repeated_sync_is_empty),
    ("commit as nobody in a transaction", (offset_transaction, "add_offsets"), _commit_as_nobody),
    ("give up after the first error", (KafkaClient, "retrying"), _no_second_try),
    (
        "rejoin without a commit of the last batch",
        (group_member_owner.GroupMemberOwner, "_commit_finished"),
        _leave_the_last_batch,
    ),
    (
        "give partitions up in the middle of a batch",
        (consumer_slot.ConsumerSlot, "reconcile"),
        _give_up_in_the_middle_of_a_batch,
    ),
    (
        "do not commit again after the epoch has risen",
        (consumer_membership.ConsumerMembership, "ask_for_newer_credentials"),
        lambda _: lambda self, used: False,
    ),
    ("send heartbeats too seldom", (background.Heartbeats, "beat"), _seldom_heartbeats),
    (
        "do not send a heartbeat again that has failed",
        (Membership, "ask"),
        lambda _: lambda self: self._send_heartbeats(Deadline(30.0)),
    ),
    ("give a partition to two members", (leader, "assign"), _two_owners),
    (
        "forget the claims of members that a rebalance has overtaken",
        (leader, "hold"),
        lambda right: lambda *args: right(*args[:-1], {}),
    ),
    (
        "check the offsets of a rewind before the members stop only",
        (running_group, "_check_exist"),
        _only_once_for_each_rewind,
    ),
    ("begin new partitions at their end", (facts.Look, "starts"), _first_at_the_end),
    ("end a run although partitions have no leader", (trigger, "unfinished"), lambda _: lambda **_: None),
    ("stop without leaving", (membership.ClassicMembership, "_leave"), _stay_when_stopped),
    ("take the id before the task reads", (by_tasks._CommittingTask, "__init__"), _take_the_id_before_reading),
    ("commit partitions of other members", (offsets.KeptOffsets, "_not_committed"), _commit_all),
    (
        "commit a batch's step back without its epoch",
        (offsets.KeptOffsets, "note_epochs"),
        lambda _: lambda self, positions, epochs: None,
    ),
    (
        "leave a group that a late commit has set back",
        (offsets.KeptOffsets, "check_late"),
        lambda _: lambda self, *, now: None,
    ),
    (
        "take a new assignment for the end of late commits",
        (as_members.AsMembers, "begin_generation"),
        _forget_late_commits,
    ),
    ("follow no mark of a rewind", (CommitOffset, "unfollowed_rewind"), lambda _: lambda self, followed: None),
    ("ignore the topic in an offset's note", (positions, "is_of_other_topic"), lambda _: lambda *_: False),
    ("compare no topic ids", (topic_tracker, "is_recreated"), lambda _: lambda before, now: False),
    (
        "read what was assigned of a topic's predecessor",
        (model.OwnedPartitions, "slots_of"),
        lambda _: lambda self, topics: self.slots,
    ),
    (
        "take slots that have rejoined for those of the plan",
        (MicroBatches, "_has_rejoined"),
        lambda _: lambda self: False,
    ),
    ("answer no task again", (rights.Right, "is_renewal_asked"), _answers_outlive_their_topic),
    ("keep no slots for the tasks of a batch", (batch, "start_keeper"), lambda _: lambda *_: None),
    ("join again with another instance id", (model.GroupSettings, "instance_id"), _fresh_instance_ids),
    ("take what is fetched by name for what was planned", (NativeReader, "_check_ids"), lambda _: lambda self: None),
    ("tell followers no leader epoch", (NativeReader, "_send"), _no_epoch_for_followers),
    ("skip a record when a connection is lost", (NativeReader, "_lost"), _skip_one_with_a_lost_connection),
)


MUTATIONS = (
    *(Mutation(*one) for one in _OF_ANY),
    *(Mutation(*one, of_sink=True) for one in (*_OF_SINK, *_OF_TASKS)),
    *(Mutation(*one, of_halts=True) for one in _OF_HALTS),
    # ---- what the checks allow, and what needs it
    *(
        Mutation(f"allow no more: {one.name}", (Checks, "_allows"), _withhold(one), of_halts=one is UNSEEN)
        for one in ALLOWANCES
        if one not in RARE
    ),
)
