"""The driver's side of group membership: all slots of one query join, lead, send heartbeats and leave here."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

from assignors import (
    Assignment,
    AssignmentError,
    Assignor,
    TopicPartition,
    WireFormatError,
    decode_assignment,
)
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    ApplicationRecoverableError,
    AssignmentFailed,
    FencedError,
    KafkaGroupError,
    RetriableError,
    error_for_code,
)
from kafka_source.group import leader, strategies
from kafka_source.group.background import BackgroundRejoiner, Heartbeats, Siblings
from kafka_source.group.balance import BalanceWatch, EndOffsets
from kafka_source.group.leader import without_held
from kafka_source.group.member import Joined, RebalanceTimeout
from kafka_source.group.member_state import State
from kafka_source.group.model import BatchInFlight, GroupAssignment, GroupSettings, SlotAssignment, TopicFilter
from kafka_source.group.rebalance_log import OtherMembers, Reason, RebalanceLog, log_progress
from kafka_source.group.requests import (
    DEAD,
    STABLE,
    commit_offsets,
    describe,
    describe_assigned_by_brokers,
    fetch_committed,
    fetch_entries,
    leave_group,
)
from kafka_source.group.slot import Slot
from kafka_source.group.topics import SubscribedTopics
from kafka_source.kafka_client import Deadline, KafkaClient, cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Rebalance, RebalanceCause
from kafka_source.model.partition_runs import format_partitions
from kafka_source.runtime.logs import log_event

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# The maximum number of rounds of JoinGroup and SyncGroup in one rebalance.
_MAX_ROUNDS = 10
_REQUEST_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
# Seconds between the JoinGroup of a slot that leads and those of the other slots.
_LEADERS_HEAD_START = 0.02
# Seconds between the heartbeats of a slot that waits for the query's other slots in `_join_slot`. The maximum grows
# with the number of slots, because all heartbeats share one connection.
_FIRST_POLL = 0.05
_MAX_POLL = 0.25
_POLL_PER_SLOT = 0.004
# Seconds after which a newcomer asks whether the group, whose members it waits for, will refuse it.
_ASK_AFTER_SECONDS = 15.0
# Seconds for which the first join waits until the brokers have computed the assignment and others have given up theirs.
_SHARE_SECONDS = 20.0


class GroupMembership:
    """The membership of all slots of a query. Its methods are synchronous; an event loop on a thread does the work.

    All slots share one connection for heartbeats. Each slot has its own connection for JoinGroup and SyncGroup, because
    the coordinator holds these requests, and every request behind them on the same connection, until the rebalance
    completes. Slots rejoin when `rejoin` is called, between micro-batches. The exception is a sibling that waits in a
    join: then they rejoin at once, outside of `rebalance_paused`, and claim the partitions of the batch in flight.

    Args:
        config: Kafka client settings.
        settings: The group id, the slots and the timeouts.
        subscription: The topics to which all slots subscribe.
        assignors: The supported assignors in order of preference.
        siblings: Where to meet the other reads of this driver and group; None: nowhere.
        end_offsets: Looks up the ends of partitions, for strategies that weigh lags; None: their lags are unknown.
    """

    def __init__(
        self,
        config: Settings,
        settings: GroupSettings,
        subscription: TopicFilter,
        assignors: Sequence[Assignor],
        siblings: Siblings | None = None,
        end_offsets: EndOffsets | None = None,
    ) -> None:
        if not assignors:
            raise ValueError("a group needs an assignor")
        self._settings = settings
        self._subscription = subscription
        self._client = KafkaClient(config, client_id=settings.client_id)
        # A heartbeat that is not answered within its interval closes its connection. A commit may take longer.
        self._commits = cached_client(config, "commit")
        self._slots = [Slot(number, self._client, settings, assignors) for number in range(settings.slots)]
        self._balance = BalanceWatch(self._client, settings.group, self._slots, end_offsets)
        self._strategies = tuple(assignor.name for assignor in assignors)
        self._brokers_assign = False
        # The group's strategy before the slots joined it.
        self._present: str | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._assignment: GroupAssignment | None = None
        self._topics = SubscribedTopics(self._client, settings, subscription, leads=lambda: self._watches_as_leader)
        self._heartbeats = Heartbeats(settings, self._slots)
        self._led_generation = -1
        # The group has a leader that does not know it; see `_stale_reason`.
        self._leader_unaware = False
        # The generation in which the leader's refusals were last logged.
        self._warned_generation = -1
        self._closed = False
        self._siblings = siblings
        self._others = OtherMembers(self._client, settings)
        self._rebalances = RebalanceLog(self._client, settings.group)
        self._background = BackgroundRejoiner(
            self._client,
            settings,
            self._slots,
            ask=lambda: self._heartbeats.send(Deadline(_REQUEST_SECONDS)),
            enter=self._enter,
            leave=lambda reason: self._send_leave(reason, Deadline(_CLOSE_SECONDS)),
        )

    def __repr__(self) -> str:
        return f"GroupMembership({self._settings.group!r}, slots={len(self._slots)})"

    # ---- joining

    def join(self, timeout_s: float) -> GroupAssignment:
        """Join with all slots, lead the group if one of them is elected, and start the heartbeats.

        Raises:
            FencedError: Another process has joined with a slot's instance id.
            InvalidConfigurationError: The group refuses a slot; the error names the setting.
            AssignmentFailed: The group's leader could not assign partitions; the error gives its reason.
            BootstrapError: No broker answers.
            RetriableError: The slots could not join within `timeout_s`.
        """
        try:
            self._run(self._meet_others(), timeout_s)
            return self._run(self._enter_group(Deadline(timeout_s)), timeout_s)
        except BaseException:
            if self._settings.leave_on_close:
                with contextlib.suppress(TimeoutError):
                    self.leave()
            raise

    def rejoin(self, timeout_s: float) -> GroupAssignment:
        """Rejoin with all slots; raises as `join`."""
        reason = self._rebalance_reason() or Reason(RebalanceCause.REQUEST, "the query asks for it")
        return self._run(self._enter(reason, Deadline(timeout_s)), timeout_s)

    def resume(self, slots: Sequence[SlotCredentials]) -> None:
        """Continue as slots that another process of this driver has joined: send their heartbeats from now on.

        The slots that are not named here are dropped; they have left the group.
        """
        self._run(self._resume({one.slot: one for one in slots}), _REQUEST_SECONDS)

    async def _resume(self, slots: Mapping[int, SlotCredentials]) -> None:
        await self._meet_siblings()
        self._slots[:] = [slot for slot in self._slots if slot.number in slots]
        for slot in self._slots:
            slot.resume(slots[slot.number])
        generation = max(one.generation for one in slots.values())
        assigned = tuple(SlotAssignment(one, one.partitions) for _, one in sorted(slots.items()))
        self._assignment = GroupAssignment(generation, "", leading=False, slots=assigned)
        self._start_tasks()

    @property
    def reason_to_give_up(self) -> str | None:
        """Why the slots cannot commit the batch in flight any more; None: they can."""
        lost = None if self._background.lost_batch is None else "other members may have partitions of the batch"
        return self._background.left or self._background.rejoin_failed or lost

    @property
    def assignment(self) -> GroupAssignment:
        """The last assignment of the slots.

        Raises:
            ApplicationRecoverableError: The slots have not joined yet.
        """
        if self._assignment is None:
            raise ApplicationRecoverableError(f"The slots have not joined group {self._settings.group}.")
        return self._assignment

    def rebalance_needed(self) -> str | None:
        """Return the reason to rejoin before the next micro-batch, or None.

        Raises:
            FencedError: Another process has joined with a slot's instance id. If this query rejoined, the two would
                fence each other in turn.
        """
        due = self._rebalance_reason()
        return None if due is None else due.text

    def _rebalance_reason(self) -> Reason | None:
        lost = self.lost()
        if lost is not None:
            return Reason(RebalanceCause.LOST, lost)
        states = {slot.member.membership.state for slot in self._slots}
        if states & {State.JOINING, State.AWAITING_SYNC}:
            # Until it has rejoined it is no member, sends no heartbeats, and hears of nothing.
            return Reason(RebalanceCause.LOST, "the last rejoin ended with an error")
        if State.REBALANCING in states:
            return Reason(RebalanceCause.MEMBERS, "a member joined, left or changed its subscription")
        if any(slot.held for slot in self._slots):
            return Reason(RebalanceCause.REVOKED, "partitions were revoked while a micro-batch read them")
        if self._background.rejoin_failed is not None:
            return Reason(RebalanceCause.SIBLING, self._background.rejoin_failed)
        if self._topics.changed is not None:
            return Reason(RebalanceCause.TOPICS, self._topics.changed)
        if self._balance.reason is not None:
            return Reason(RebalanceCause.BALANCE, self._balance.reason)
        return None

    def take_rebalances(self) -> tuple[Rebalance, ...]:
        """Return the rebalances since the last call."""
        return self._rebalances.take()

    def lost(self) -> str | None:
        """Return the reason why the group has removed slots, or None.

        It sends heartbeats first if the coordinator has not answered for longer than the session timeout: a process
        that was suspended has not noticed yet that its session has ended.

        Raises:
            FencedError: Another process has joined with a slot's instance id.
        """
        if self._heartbeats.session_may_have_ended:
            with contextlib.suppress(RetriableError, TimeoutError):
                self._run(self._heartbeats.send(Deadline(_REQUEST_SECONDS)), _REQUEST_SECONDS)
        self.check()
        if self._background.left is not None:
            return self._background.left
        lost = [slot.number for slot in self._slots if slot.member.membership.state is State.LOST]
        if not lost:
            return None
        return (
            f"the group has removed {_slots(lost)}, because no heartbeat came in time or a rebalance ended without them"
        )

    def check(self) -> None:
        """Raise the error if the group has refused or fenced one of the slots.

        Raises:
            FencedError: Another process has joined with the slot's instance id.
            KafkaGroupError: The error of the coordinator's error code; AuthenticationError if a right was revoked.
        """
        for slot in self._slots:
            slot.member.check()

    # ---- the batch in flight

    @contextlib.contextmanager
    def rebalance_paused(self) -> Iterator[None]:
        """Keep the generation as it is inside the block, unless the block itself rejoins.

        It first waits for a rejoin that is under way because a sibling waits.
        """
        self._client.run(self._background.begin_call())
        try:
            yield
        finally:
            if self._client.loop.alive:
                self._client.loop.call_soon(self._background.end_call)

    def set_batch_in_flight(self, batch: BatchInFlight) -> None:
        """Note the batch in flight: a rejoin outside of `rebalance_paused` claims its partitions."""
        self._background.in_flight = batch

    def record_throughput(self, speed: float | None, rates: Mapping[TopicPartition, float]) -> None:
        """Note what the query has measured, for strategies that weigh work; see `BalanceWatch.record_throughput`."""
        self._balance.record_throughput(speed, rates)

    # ---- offsets

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, None for a partition without one.

        It waits for open transactions. The limit is `coordinator_timeout_ms`, unless another one is given.
        """
        timeout_s = self._settings.coordinator_timeout_ms / 1000 if timeout_s is None else timeout_s
        work = fetch_committed(self._client, self._settings.group, partitions, Deadline(timeout_s))
        return self._run(work, timeout_s)

    def committed_entries(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, CommitOffset]:
        """Return the committed offsets with their metadata, without partitions that have none.

        If `stable`, it waits for open transactions.
        """
        timeout_s = self._settings.coordinator_timeout_ms / 1000
        work = fetch_entries(self._client, self._settings.group, partitions, Deadline(timeout_s), stable=stable)
        return self._run(work, timeout_s)

    def commit(
        self,
        offsets: Mapping[int, Mapping[TopicPartition, int | CommitOffset]],
        timeout_s: float = _REQUEST_SECONDS,
    ) -> None:
        """Commit without a transaction; each slot commits its own partitions.

        Args:
            offsets: The next offset to read for each partition, by slot number.
            timeout_s: The time limit for all commits.

        Raises:
            FencedError: A slot is no longer a member of this generation; its offsets were not committed.
            UnknownTopicError: A topic does not exist; the offsets of the other topics are committed.
            UnknownOutcomeError: The coordinator has not answered in time.
        """
        used = {number: self._slots[number].credentials() for number in offsets}
        deadline = Deadline(timeout_s)

        async def commit() -> list[BaseException | None]:
            commits = (
                commit_offsets(self._commits, used[number], of_slot, deadline, fail_on_unknown_topic=True)
                for number, of_slot in offsets.items()
            )
            return await asyncio.gather(*commits, return_exceptions=True)

        results = self._commits.run(commit(), timeout_s + _CLOSE_SECONDS)
        problems = {number: result for number, result in zip(offsets, results, strict=True) if result is not None}
        for number, problem in problems.items():
            if isinstance(problem, FencedError) and problem.code is not None:
                self._run(self._handle_commit_error(self._slots[number], used[number], problem.code), _CLOSE_SECONDS)
        for problem in problems.values():
            raise problem

    # ---- leaving and closing

    def detach(self, kept: Collection[int] | None = None) -> None:
        """Stop the heartbeats without leaving; another process resumes the slots before their sessions end.

        Args:
            kept: The numbers of the slots that stay; the others leave. None: all stay.
        """
        leaving = [] if kept is None else [slot for slot in self._slots if slot.number not in kept]
        self._run(self._detach(leaving), _CLOSE_SECONDS)
        self._closed = True

    def leave(self) -> None:
        """Leave with all slots in one request, so that the group rebalances only once.

        If the coordinator cannot be reached, it logs a warning, and the slots stay until their sessions end.
        """
        self._run(self._detach(self._slots, "the query ends"), _CLOSE_SECONDS)

    def close(self) -> None:
        """Leave the group if `leave_on_close` is set, and close all connections.

        It may be called twice, and after `detach`.
        """
        if not self._closed:
            self._closed = True
            if self._settings.leave_on_close:
                with contextlib.suppress(TimeoutError):
                    self.leave()
            else:
                self._run(self._stop_tasks(), _CLOSE_SECONDS)
        if self._siblings is not None and self._client.loop.alive:
            self._client.loop.call_soon(self._siblings.close)
        self._client.close()

    # ---- on the event loop

    def _run(self, work: Coroutine[Any, Any, _T], timeout_s: float) -> _T:
        # The coroutines have their own deadlines, and their errors say what they waited for. The longer timeout here is
        # only for code without a deadline.
        return self._client.run(work, timeout_s + _CLOSE_SECONDS)

    async def _enter_group(self, deadline: Deadline) -> GroupAssignment:
        entering = asyncio.ensure_future(self._enter(Reason(RebalanceCause.START, "the query starts"), deadline))
        try:
            done, _ = await asyncio.wait([entering], timeout=_ASK_AFTER_SECONDS)
            problem = None if done else await self._refusal_of_newcomer(deadline)
            if problem is None:
                return await entering
        finally:
            entering.cancel()
        await asyncio.wait([entering])
        await self._detach(self._slots, "no strategy in common with the group")
        raise problem

    async def _refusal_of_newcomer(self, deadline: Deadline) -> KafkaGroupError | None:
        """Return the error of a newcomer that the group will refuse when its members have rejoined; None: unknown."""
        slot, known = self._slots[0], self._strategies
        if self._present is None or self._present in known:
            return None
        offered = [protocol for protocol in slot.protocols if protocol[0] in known]
        try:
            if not offered or not await strategies.is_refused(self._client, self._settings, offered, deadline):
                return None
        except KafkaGroupError as error:
            log.info("join group=%s: %s", self._settings.group, error)
            return None
        return self._refusal(
            slot,
            f"it offers {', '.join(known)}, and the group uses {self._present}. Its members are in a micro-batch; "
            "those of a run that was killed are gone when their kafka.session.timeout.ms is over",
        )

    async def _enter(self, reason: Reason, deadline: Deadline) -> GroupAssignment:
        async with self._announce_join():
            return await self._join_all(reason, deadline)

    @contextlib.asynccontextmanager
    async def _announce_join(self) -> AsyncIterator[None]:
        """Tell siblings and the log that this query waits in a join."""
        progress = asyncio.ensure_future(log_progress(self._client, self._settings))
        try:
            if self._siblings is None:
                yield
            else:
                async with self._siblings.waiting():
                    yield
        finally:
            progress.cancel()

    async def _join_all(self, reason: Reason, deadline: Deadline) -> GroupAssignment:
        started = time.monotonic()
        cause, fresh = reason, self._assignment is None
        patience = Deadline(min(_SHARE_SECONDS, deadline.left))
        for _ in range(_MAX_ROUNDS):
            topics = await self._topics.look_up(deadline)
            try:
                moved = await self._join_round(topics, reason.text, deadline)
            except KafkaGroupError as error:
                if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                    # The group waits for slots that the leader has refused, also for those that would stay.
                    await self._detach(self._slots, "no strategy in common with the group")
                problem = await strategies.refusal_of_other_kind(self._client, self._settings.group, error.code)
                if problem is not None:
                    raise problem from error
                raise
            if self._nobody_reads:
                reason = cause = self._why_nobody_reads()
                # It ends when the member that rewinds the group or is refused leaves, or when its session ends because
                # it has died.
                await self._wait_for_rebalance(deadline)
                if deadline.over:
                    raise RebalanceTimeout(
                        f"Group {self._settings.group} has had a generation in which nobody reads for "
                        f"{deadline.seconds:.0f} s: a member that rewinds it, or that it refuses, has not left yet."
                    )
                continue
            self._check_who_assigns()
            self._raise_failed_assignment()
            if moved:
                # Cooperative rebalancing (KIP-429): the leader assigns revoked partitions to their new owners only
                # after the previous owners have rejoined without them.
                reason = Reason(reason.cause, "partitions were revoked")
                continue
            if fresh and self._brokers_assign and not await self._assignment_complete(patience):
                reason = Reason(reason.cause, "the brokers have assigned more")
                continue
            stale = await self._stale_reason(topics, deadline) if fresh else None
            if stale is None:
                break
            fresh = False
            reason = cause = Reason(RebalanceCause.STALE, stale)
            if not any(slot.leading or slot.hands_over for slot in self._slots):
                # If a follower rejoins with unchanged metadata, the coordinator does not start a rebalance. So leave
                # first, which does. With cooperative assignors the metadata contains the generation, so it has changed,
                # and a partition without an owner may just be moving to this query.
                await self._leave(stale, deadline)
        if self._others.unclear:
            await self._others.look_up(topics, self._own_ids)
        self._start_tasks()
        before, self._assignment = self._assignment, self._collect()
        self._background.rejoin_failed = self._background.left = None
        self._warn_of_lost_claims(before, self._assignment)
        seconds = time.monotonic() - started
        self._rebalances.note(self._slots, before, self._assignment, cause, seconds)
        for slot in self._assignment.slots:
            log_event(
                log,
                logging.INFO,
                "assigned",
                group=self._settings.group,
                generation=self._assignment.generation,
                slot=slot.credentials.slot,
                member=slot.credentials.instance_id or slot.credentials.member_id,
                partitions=format_partitions(tp for tp in slot.partitions if tp not in slot.replicas),
                standby=format_partitions(slot.replicas),
            )
        return self._assignment

    async def _join_round(self, topics: Sequence[str], reason: str, deadline: Deadline) -> bool:
        """Bring all slots into one generation; return whether another round must follow."""
        # Find the coordinator once before the slots join. If each slot looked for it, they would join at different
        # times and each would cause a rebalance.
        patience = min(deadline.left, self._settings.coordinator_timeout_ms / 1000)
        await self._client.coordinator(self._settings.group, Deadline(patience))
        self._topics.changed = None
        self._heartbeats.note_rejoin()
        self._balance.reason = None
        self._leader_unaware = False
        settled = asyncio.Event()
        lead_first = [slot for slot in self._slots if slot.leading] + [slot for slot in self._slots if not slot.leading]
        tasks = []
        try:
            for index, slot in enumerate(lead_first):
                tasks.append(asyncio.ensure_future(self._join_slot(slot, topics, settled, reason, deadline)))
                if index == 0 and slot.leading:
                    # A leader that rejoins starts a rebalance. Followers that rejoin before it would get the response
                    # of the old generation.
                    await asyncio.sleep(_LEADERS_HEAD_START)
            return any(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _join_slot(
        self, slot: Slot, topics: Sequence[str], settled: asyncio.Event, reason: str, deadline: Deadline
    ) -> bool:
        async def lead(joined: Joined) -> Mapping[str, bytes]:
            return await self._lead(slot, joined, deadline)

        moved = False
        while True:
            in_flight = self._background.in_flight.ends.keys()
            state = await slot.member.join(slot.subscribe(topics, in_flight), lead, deadline, reason)
            if slot.member.last_join.protocol == strategies.PROTOCOL:
                self._raise_if_refused(slot)
                self._warn_of_refused(slot)
            else:
                moved |= slot.store_assignment(state, in_flight)
            if all(s.member.membership.state is State.STABLE for s in self._slots) and self._one_generation():
                settled.set()
            pause = _FIRST_POLL
            while not settled.is_set():
                # Other slots of this query may have started another rebalance, which waits for this slot to rejoin: its
                # heartbeat shows that. Send heartbeats less often with time.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(settled.wait(), pause)
                    break
                with contextlib.suppress(RetriableError):
                    await slot.member.heartbeat(deadline)
                if slot.member.membership.state is not State.STABLE:
                    break
                pause = min(pause * 2, _MAX_POLL + _POLL_PER_SLOT * len(self._slots))
            if settled.is_set():
                return moved

    def _one_generation(self) -> bool:
        # Where the brokers assign, a slot gets its next epoch only when it has given up what it holds: when the
        # batch in flight is committed.
        waiting = [slot.assigned_by_brokers and bool(slot.held) for slot in self._slots]
        return len({slot.generation for slot, waits in zip(self._slots, waiting, strict=True) if not waits}) <= 1

    @property
    def _own_ids(self) -> set[str]:
        return {slot.member.membership.member_id for slot in self._slots}

    @property
    def _nobody_reads(self) -> bool:
        return any(slot.member.last_join.protocol == strategies.PROTOCOL for slot in self._slots)

    def _raise_if_refused(self, slot: Slot) -> None:
        why = strategies.why_refused(decode_assignment(slot.member.state_bytes))
        if why is not None:
            raise self._refusal(slot, why)

    def _refusal(self, slot: Slot, why: str) -> KafkaGroupError:
        who = slot.member.settings.instance_id or slot.member.membership.member_id
        return error_for_code(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Joining group {self._settings.group} as {who} failed",
            reason=f"{why}. Nothing was committed",
        )

    def _warn_of_refused(self, slot: Slot) -> None:
        """Say whom the leader has refused in a generation, once for all slots.

        A refused member leaves at once, so the slots may be in the next generation before this join has ended.
        """
        others = strategies.others_refused(decode_assignment(slot.member.state_bytes))
        if others is None or slot.generation == self._warned_generation:
            return
        self._warned_generation = slot.generation
        log.warning(
            "rebalance group=%s generation=%d refused=%s: these members have no strategy in common with the group; "
            "nobody reads until they have left",
            self._settings.group,
            slot.generation,
            others,
        )

    def _why_nobody_reads(self) -> Reason:
        """Return why the generation has no assignments, as the reason of the next one."""
        states = (decode_assignment(slot.member.state_bytes) for slot in self._slots)
        if any(map(strategies.others_refused, states)):
            return Reason(RebalanceCause.MEMBERS, "a member without a common strategy was refused")
        log.warning(
            "rewind group=%s generation=%d: the group's offsets are being set, nobody reads meanwhile",
            self._settings.group,
            max(slot.generation for slot in self._slots),
        )
        return Reason(RebalanceCause.REWIND, "the group was rewound")

    async def _wait_for_rebalance(self, deadline: Deadline) -> None:
        pause = _FIRST_POLL
        while all(slot.member.membership.state is State.STABLE for slot in self._slots) and not deadline.over:
            for slot in self._slots:
                with contextlib.suppress(RetriableError):
                    await slot.member.heartbeat(deadline)
            await asyncio.sleep(min(pause, deadline.left))
            pause = min(pause * 2, _MAX_POLL + _POLL_PER_SLOT * len(self._slots))

    async def _assignment_complete(self, patience: Deadline) -> bool:
        """Return whether the slots have all that the brokers mean for them; if not, when it is time to rejoin.

        Brokers compute assignments with some delay (KIP-1263), and answer a join before that with the assignment of
        before, which is empty for a new member. A batch joins only once.
        """
        ours = self._own_ids
        while not patience.over:
            try:
                described = await describe_assigned_by_brokers(self._client, self._settings.group, patience)
            except KafkaGroupError as error:
                # For example without the right to describe the other members' topics. A stream rejoins when it has to.
                log.info("describe group=%s: %s", self._settings.group, error)
                return True
            if described is None or ours <= described.settled:
                return True
            await self._wait_for_rebalance(Deadline(_MAX_POLL))
            if any(slot.member.membership.state is not State.STABLE for slot in self._slots):
                return False
        # Another member does not give its partitions up. They are read by it, or later by this query.
        return True

    async def _lead(self, slot: Slot, joined: Joined, deadline: Deadline) -> Mapping[str, bytes]:
        if joined.protocol == strategies.PROTOCOL:
            return strategies.lead(joined.members)
        strategy = slot.assignor(joined.protocol)
        led = await leader.lead(
            self._client, self._settings.group, strategy, joined, deadline, self._balance.work_lookup
        )
        self._balance.record_assignment(strategy, led, joined.generation)
        self._topics.record_assignment(led.topics, led.snapshot)
        self._led_generation = joined.generation
        return led.states

    async def _stale_reason(self, topics: Sequence[str], deadline: Deadline) -> str | None:
        """Return why the assignment that the slots got back after a restart does not match, or None if it matches."""
        described = await describe(self._client, self._settings.group, deadline)
        if described.state != DEAD:
            # Who has joined at the same time as this query was not there before.
            self._others.log_members(described.members, topics, self._own_ids)
        if described.state != STABLE or self._led_generation == self._slots[0].generation:
            return None
        try:
            group = leader.subscriptions(d.member for d in described.members)
            held = {d.member.member_id: _with_held(decode_assignment(d.state)) for d in described.members}
        except (AssignmentError, WireFormatError):
            # Another client's leader has made an assignment in a format of its own: it cannot be checked here.
            return None
        # Before Kafka 3.2 (JoinGroup 9) a static leader that comes back is told its former id as the leader's. The
        # coordinator knows its new id and takes it for the leader, but the member does not. So whoever meets a leader
        # that is no member watches the topics: one of them is the leader, whose rejoin starts a rebalance. Slots that
        # come back after the leader are told its new id, so every slot's answer counts.
        named = {slot.member.last_join.leader for slot in self._slots}
        self._leader_unaware = not named <= {d.member.member_id for d in described.members}
        leading = self._watches_as_leader
        wanted = frozenset(leader.topics_of(group))
        snapshot = await self._client.metadata(wanted, deadline)
        if leading:
            self._topics.record_assignment(wanted, snapshot)
            return leader.stale(snapshot.for_assignor(wanted), group, held)
        # Another application leads the group. It watches the topics of the members' subscriptions, but does not know
        # that our subscription has changed, because we came back without a rebalance.
        ours = frozenset(topics)
        given = {tp.topic for slot in self._slots for tp in slot.assignment.partitions}
        anybody = {tp.topic for assignment in held.values() for tp in assignment.partitions}
        if given - ours:
            return f"topic {min(given - ours)} is no longer subscribed to"
        unknown = {name for name in ours - anybody if name in snapshot.topics}
        return f"topic {min(unknown)} is assigned to nobody" if unknown else None

    @property
    def _watches_as_leader(self) -> bool:
        return self._leader_unaware or any(slot.leading for slot in self._slots)

    def _check_who_assigns(self) -> None:
        """Say that the brokers assign the partitions, if they do; see `strategies`.

        Raises:
            InvalidConfigurationError: None of the strategies is one that the brokers can replace, and the query is not
                to go on without it; or the query refuses such groups.
        """
        if not any(slot.assigned_by_brokers for slot in self._slots):
            if self._brokers_assign:
                strategy = self._slots[0].member.last_join.protocol
                log.warning("%s", strategies.end_of_conversion(self._settings.group, strategy))
            self._brokers_assign = False
            return
        refuses = self._settings.refuses_conversion
        problem = strategies.refusal_of_conversion(self._settings.group, self._strategies, whatever=refuses)
        if problem is not None and not self._settings.without_strategy:
            raise problem
        if not self._brokers_assign:
            log.warning("%s", strategies.conversion_warning(self._settings.group, self._strategies))
        self._brokers_assign = True

    def _raise_failed_assignment(self) -> None:
        for slot in self._slots:
            reason = leader.failure_reason(slot.assignment)
            if reason is not None:
                raise AssignmentFailed(
                    f"The leader of group {self._settings.group} could not assign partitions: {reason}."
                )

    def _collect(self) -> GroupAssignment:
        joined = [slot.member.last_join for slot in self._slots]
        return GroupAssignment(
            # Slots may have different epochs where the brokers assign; each slot's credentials have its own.
            generation=max(one.generation for one in joined),
            assignor=strategies.BROKERS if self._brokers_assign else joined[0].protocol,
            leading=any(slot.leading for slot in self._slots),
            slots=tuple(slot.slot_assignment() for slot in self._slots),
        )

    async def _handle_commit_error(self, slot: Slot, used: SlotCredentials, code: int) -> None:
        # The error code of a commit means the same as that of a heartbeat, and arrives earlier.
        if used == slot.credentials():
            slot.member.handle_error(code)

    # ---- what runs beside the micro-batches

    def _start_tasks(self) -> None:
        if not self._tasks:
            self._heartbeats.note_joined()
            self._tasks = [
                asyncio.ensure_future(
                    self._forever(functools.partial(self._heartbeats.beat, self._background.heartbeats_sent))
                ),
                asyncio.ensure_future(self._forever(self._topics.watch)),
                asyncio.ensure_future(self._forever(self._balance.watch)),
                asyncio.ensure_future(self._forever(self._background.rejoin_lost)),
            ]
            if self._siblings is not None:
                rejoin = functools.partial(self._background.rejoin_for, self._siblings)
                self._tasks.append(asyncio.ensure_future(self._forever(rejoin)))

    async def _stop_tasks(self) -> None:
        self._rebalances.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for slot in self._slots:
            slot.member.close()

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:
                log.exception("group=%s: a background task failed; retrying in 1 s", self._settings.group)
                await asyncio.sleep(1.0)

    # ---- other members and siblings

    async def _meet_others(self) -> None:
        await self._meet_siblings()
        described = await self._others.look_up(self._subscription.topics)
        if described is not None and described.state == STABLE and described.protocol != strategies.PROTOCOL:
            self._present = described.protocol
        for slot in self._slots:
            slot.member.remember_member_id(described)

    async def _meet_siblings(self) -> None:
        if self._siblings is None:
            return
        try:
            await self._siblings.open()
        except OSError as error:
            log.warning("group=%s: other reads of this driver cannot find this one: %s", self._settings.group, error)
            self._siblings = None

    def _warn_of_lost_claims(self, before: GroupAssignment | None, now: GroupAssignment) -> None:
        """Say which partitions of the batch in flight the leader has given to others all the same."""
        had = {tp for slot in before.slots for tp in (*slot.partitions, *slot.held)} if before is not None else set()
        has = {tp for slot in now.slots for tp in (*slot.partitions, *slot.held)}
        if moved := sorted((had - has) & self._background.in_flight.ends.keys()):
            log.warning(
                "rebalance group=%s generation=%d: the group's leader has given %s to other members while a "
                "micro-batch of this query reads them. The micro-batch is finished and not committed there, so other "
                "members may read these records again.",
                self._settings.group,
                now.generation,
                format_partitions(moved),
            )

    # ---- leaving

    async def _leave(self, reason: str, deadline: Deadline) -> None:
        await self._stop_tasks()
        await self._send_leave(reason, deadline)

    async def _detach(self, leaving: Sequence[Slot], reason: str = "slot has no task") -> None:
        await self._stop_tasks()
        try:
            await self._send_leave(reason, Deadline(_CLOSE_SECONDS), leaving)
        except KafkaGroupError as error:
            log.warning("leave group=%s failed: slots stay until their sessions end: %s", self._settings.group, error)

    async def _send_leave(self, reason: str, deadline: Deadline, slots: Sequence[Slot] | None = None) -> None:
        slots = self._slots if slots is None else slots
        members = [slot.member for slot in slots if slot.member.may_be_known]
        if members:
            leaving = [(member.membership.member_id, member.settings.instance_id) for member in members]
            await leave_group(self._client, self._settings.group, leaving, reason, deadline)
            log.info("leave group=%s slots=%d reason=%r", self._settings.group, len(members), reason)
        for slot in slots:
            slot.member.note_left()


def _with_held(assignment: Assignment) -> Assignment:
    """Return an assignment with the partitions that are held for the member: nobody else may have them."""
    own, held = without_held(assignment)
    return Assignment((*own.partitions, *held), own.user_data)


def _slots(numbers: Sequence[int]) -> str:
    return f"slot {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} slots"
