"""All slots of a query as members of the classic protocol: losses, rejoins, commits, and leaving."""

import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from assignors import Assignor, TopicPartition
from kafka_source.client_config import Settings
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group.classic.background import BackgroundRejoiner, Heartbeats
from kafka_source.group.classic.balance import BalanceWatch, EndOffsets
from kafka_source.group.classic.joining import JoinRounds
from kafka_source.group.classic.leader import read_by_members
from kafka_source.group.classic.member_state import State
from kafka_source.group.classic.slot import Slot, leave_slots
from kafka_source.group.membership import CLOSE_SECONDS, REQUEST_SECONDS, BackgroundTasks, Membership
from kafka_source.group.model import BatchInFlight, GroupAssignment, GroupSettings, SlotAssignment, TopicFilter
from kafka_source.group.rebalance_log import Reason, RebalanceLog, log_assignment
from kafka_source.group.requests import describe_classic, if_allowed
from kafka_source.group.siblings import Siblings
from kafka_source.group.topics import SubscribedTopics
from kafka_source.group.unread import Look, UnreadWatch, existing
from kafka_source.kafka_client import ConnectionLost, Deadline
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Rebalance, RebalanceCause

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class ClassicMembership(Membership):
    """The membership of all slots of a query in the classic protocol.

    All slots share one connection for heartbeats. Each slot has its own connection for JoinGroup and SyncGroup, because
    the coordinator delays these requests, and later requests on the same connection, until the rebalance completes.
    Slots rejoin in calls of `rejoin`, between micro-batches. While a sibling waits in a join, slots rejoin immediately,
    outside of `rebalance_paused`, and claim the partitions of the batch in flight.

    Args:
        config: Kafka client settings.
        settings: The group id, the slots and the timeouts.
        subscription: The topics to which all slots subscribe.
        assignors: The supported assignors in order of preference.
        siblings: The other reads of this driver and group; None: they cannot be found.
        end_offsets: Looks up the ends of partitions, for strategies that weigh lags; None: lags are unknown.
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
        super().__init__(config, settings)
        self._subscription = subscription
        self._slots = [Slot(number, self._client, settings, assignors) for number in range(settings.slots)]
        self._balance = BalanceWatch(self._client, settings.group, self._slots, end_offsets)
        self._heartbeats = Heartbeats(settings, self._slots)
        self._rebalances = RebalanceLog(self._looks, settings.group)
        self._siblings = siblings
        self._background = BackgroundRejoiner(
            self._client,
            settings,
            self._slots,
            ask=lambda: self._heartbeats.send(Deadline(REQUEST_SECONDS)),
            enter=self._enter,
            leave=lambda reason: leave_slots(
                self._client, settings.group, self._slots, reason, Deadline(CLOSE_SECONDS)
            ),
        )
        self._topics = SubscribedTopics(
            self._client, settings, subscription, leads=lambda: self._rounds.watches_as_leader
        )
        self._rounds = JoinRounds(
            self._client,
            settings,
            self._slots,
            topics=self._topics,
            heartbeats=self._heartbeats,
            balance=self._balance,
            siblings=siblings,
            in_flight=lambda: self._background.in_flight.ends.keys(),
            leave=self._leave,
        )
        works: list[Callable[[], Awaitable[None]]] = [
            functools.partial(self._heartbeats.beat, self._background.heartbeats_sent),
            self._topics.watch,
            UnreadWatch(settings, self._look_for_unread, self._ask_for_rebalance).watch,
            self._balance.watch,
            self._background.rejoin_lost,
        ]
        if siblings is not None:
            works.append(functools.partial(self._background.rejoin_for, siblings))
        self._tasks = BackgroundTasks(settings.group, works)

    # ---- joining

    def join(self, timeout_s: float) -> GroupAssignment:
        """Join with all slots, and lead the group if one of them is elected; see `Membership.join`."""
        try:
            self._run(self._rounds.look_at_group(self._subscription.topics, timeout_s), timeout_s)
            deadline = Deadline(timeout_s)
            return self._run(self._enter(Reason(RebalanceCause.START, "the query starts"), deadline), timeout_s)
        except BaseException:
            if self._settings.leave_on_close:
                with contextlib.suppress(ConnectionLost):
                    self.leave()
            raise

    def rejoin(self, timeout_s: float) -> GroupAssignment:
        """Rejoin with all slots; raises as `join`."""
        reason = self._rebalance_reason() or Reason(RebalanceCause.REQUEST, "the query asks for it")
        return self._run(self._enter(reason, Deadline(timeout_s)), timeout_s)

    def resume(self, slots: Sequence[SlotCredentials]) -> None:
        """Continue as slots with which another process of this driver has joined, and send their heartbeats.

        All other slots have left the group.
        """
        resumed = {one.slot: one for one in slots}

        async def resume() -> None:
            await self._rounds.open_siblings()
            self._slots[:] = [slot for slot in self._slots if slot.number in resumed]
            for slot in self._slots:
                slot.resume(resumed[slot.number])
            generation = max(one.generation for one in slots)
            assigned = tuple(SlotAssignment(one, one.partitions) for _, one in sorted(resumed.items()))
            self._assignment = GroupAssignment(generation, "", leading=False, slots=assigned)
            self._heartbeats.note_joined()
            self._tasks.start()

        self._run(resume(), REQUEST_SECONDS)

    @property
    def loss_of_batch(self) -> str | None:
        """The reason why the slots can no longer commit the batch in flight; None: they can commit it."""
        lost = None if self._background.lost_batch is None else "other members may have partitions of the batch"
        return self._background.left or self._background.rejoin_failed or lost

    @property
    def credentials(self) -> tuple[SlotCredentials, ...]:
        """The slots' credentials in this generation."""
        return tuple(slot.credentials for slot in self.assignment.slots)

    def ask_for_newer_credentials(self, used: tuple[SlotCredentials, ...]) -> bool:
        """Return False, because credentials do not change within a generation."""
        return False

    def rebalance_needed(self) -> str | None:
        """Return the reason to rejoin; see `Membership.rebalance_needed`."""
        due = self._rebalance_reason()
        return None if due is None else due.text

    def _rebalance_reason(self) -> Reason | None:
        return rebalance_reason(
            self._slots,
            lost=self.lost(),
            rejoin_failed=self._background.rejoin_failed,
            topics_changed=self._topics.changed,
            unbalanced=self._balance.reason,
        )

    def take_rebalances(self) -> tuple[Rebalance, ...]:
        """Return the rebalances since the last call."""
        return self._rebalances.take()

    removed_because = "no heartbeat came in time or a rebalance ended without them"

    def _session_may_have_ended(self) -> bool:
        return self._heartbeats.session_may_have_ended

    def _reason_left(self) -> str | None:
        return self._background.left

    def _lost_slots(self) -> Sequence[int]:
        return [slot.number for slot in self._slots if slot.member.status.state is State.LOST]

    async def _beat_all(self, deadline: Deadline) -> bool:
        return await self._heartbeats.send(deadline)

    def check(self) -> None:
        """Raise the error of a slot; see `Membership.check`."""
        for slot in self._slots:
            slot.member.check()

    # ---- the batch in flight

    async def _begin_call(self) -> None:
        await self._background.begin_call()

    def _end_call(self) -> None:
        self._background.end_call()

    def set_batch_in_flight(self, batch: BatchInFlight) -> None:
        """Note the batch in flight, whose partitions a rejoin outside of `rebalance_paused` claims."""
        self._background.in_flight = batch

    def record_throughput(self, speed: float | None, rates: Mapping[TopicPartition, float]) -> None:
        """Keep the query's measures for strategies that weigh work; see `BalanceWatch.record_throughput`."""
        self._balance.record_throughput(speed, rates)

    # ---- offsets

    def _credentials_of(self, slot: int) -> SlotCredentials:
        return self._slots[slot].credentials()

    def _note_refused_commit(self, used: SlotCredentials, slot: int, problem: BaseException) -> None:
        if isinstance(problem, FencedError) and problem.code is not None:
            self._run(self._slots[slot].handle_commit_error(used, problem.code), CLOSE_SECONDS)

    # ---- leaving and closing

    def detach(self, kept: Collection[int] | None = None) -> None:
        """Stop the heartbeats without leaving; see `Membership.detach`."""
        leaving = [] if kept is None else [slot for slot in self._slots if slot.number not in kept]
        self._run(self._detach(leaving, "slot has no task"), CLOSE_SECONDS)
        self._closed = True

    def is_renewal_asked(self, timeout_s: float) -> bool:
        """Return whether a task of the batch in flight has requested new credentials since the slots last joined."""
        batch, since = self._background.in_flight, self.assignment.generation
        if batch.renewed is None:
            return False
        deadline = Deadline(timeout_s)
        work = batch.renewed.is_renewal_asked(self._client, self._settings.group, batch.ends, since, deadline)
        return self._run(work, timeout_s)

    def renew_credentials(self) -> None:
        """Rejoin after `leave`, and publish new credentials for the batch in flight.

        If other members have partitions of the batch, or the rejoin fails, `loss_of_batch` has the reason.
        """
        self._run(self._background.renew_credentials(), 2 * self._settings.rebalance_timeout_ms / 1000)

    def leave(self) -> None:
        """Leave with all slots in one request, so that the group rebalances only once; see `Membership.leave`."""
        self._run(self._detach(self._slots, "the query ends"), CLOSE_SECONDS)

    def close(self) -> None:
        """Leave the group if `leave_on_close` is set, and close all connections; see `Membership.close`."""
        if not self._closed and self._client.loop.alive:
            self._closed = True
            if self._settings.leave_on_close:
                with contextlib.suppress(ConnectionLost):
                    self.leave()
            else:
                self.detach()
        if self._siblings is not None and self._client.loop.alive:
            self._client.loop.call_soon(self._siblings.close)
        self._client.close(self._looks)

    # ---- on the event loop

    async def _enter(self, reason: Reason, deadline: Deadline) -> GroupAssignment:
        """Join with all slots, and send their heartbeats from now on."""
        started, before = time.monotonic(), self._assignment
        joined = await self._rounds.join(reason, deadline, fresh=before is None)
        self._heartbeats.note_joined()
        self._tasks.start()
        self._assignment = joined.assignment
        self._background.rejoin_failed = self._background.left = None
        self._rebalances.note(self._member_names(), before, joined.assignment, joined.cause, time.monotonic() - started)
        log_assignment(self._settings.group, before, joined.assignment, self._background.in_flight.ends)
        return joined.assignment

    def _member_names(self) -> frozenset[str] | None:
        """Return the names of all members; None: no slot leads the group."""
        leader = next((slot.member.last_join for slot in self._slots if slot.leading), None)
        if leader is None or not leader.members:
            return None
        return frozenset(member.instance_id or member.member_id for member in leader.members)

    async def _look_for_unread(self) -> tuple[Look | None, int]:
        """Describe the group for `UnreadWatch`; do nothing if another query leads the group, and so describes it."""
        joined, generation = self._slots[0].member.joined, self._slots[0].generation
        if joined is None or self._slots[0].has_copies:
            return None, 0
        deadline = Deadline(REQUEST_SECONDS)
        group = self._settings.group
        described = await if_allowed(describe_classic(self._looks, group, deadline), group)
        if described is None:
            return None, 0
        size = sum(len(one.state) + len(one.member.metadata) for one in described.members)
        leader = next((one for one in described.members if one.member.member_id == joined.leader), None)
        led_elsewhere = leader is not None and leader.client_id == self._settings.client_id
        if led_elsewhere and not self._rounds.watches_as_leader:
            return None, size
        topics = {topic for one in described.members for topic in one.topics or ()}
        snapshot = await self._looks.metadata(topics, deadline)
        states = {slot.member.status.state for slot in self._slots}
        if states != {State.STABLE} or {slot.generation for slot in self._slots} != {generation}:
            return None, size
        own = {slot.member.status.member_id: (*slot.assignment.partitions, *slot.held) for slot in self._slots}
        read = read_by_members(described, own)
        return None if read is None else Look(generation, existing(snapshot, topics), read), size

    def _ask_for_rebalance(self, reason: str) -> None:
        self._slots[0].told_generation = self._slots[0].generation
        self._topics.changed = self._topics.changed or reason

    async def _leave(self, reason: str, deadline: Deadline, slots: Sequence[Slot] | None = None) -> None:
        """Stop the heartbeats, and leave with these slots (None: with all slots)."""
        self._rebalances.finish()
        await self._tasks.stop()
        for slot in self._slots:
            slot.member.close()
        await leave_slots(self._client, self._settings.group, self._slots if slots is None else slots, reason, deadline)

    async def _detach(self, leaving: Sequence[Slot], reason: str) -> None:
        try:
            await self._leave(reason, Deadline(CLOSE_SECONDS), leaving)
        except KafkaGroupError as error:
            log.warning("leave group=%s failed: slots stay until their sessions end: %s", self._settings.group, error)


def rebalance_reason(
    slots: Sequence[Slot],
    *,
    lost: str | None = None,
    rejoin_failed: str | None = None,
    topics_changed: str | None = None,
    unbalanced: str | None = None,
) -> Reason | None:
    """Return the most urgent reason why the slots have to rejoin before the next micro-batch, or None.

    Args:
        slots: The slots, with the state from their heartbeats.
        lost: The reason why the group has removed slots.
        rejoin_failed: The reason why a rejoin for another read of the driver has failed.
        topics_changed: The changes of topics, as a reason.
        unbalanced: The reason why the assignment no longer balances the work.
    """
    states = {slot.member.status.state for slot in slots}
    if lost is not None:
        return Reason(RebalanceCause.LOST, lost)
    if states & {State.JOINING, State.AWAITING_SYNC}:
        # Until the slot has rejoined, it is no member, sends no heartbeats, and is not notified.
        return Reason(RebalanceCause.LOST, "the last rejoin ended with an error")
    if State.REBALANCING in states:
        return Reason(RebalanceCause.MEMBERS, "a member joined, left or changed its subscription")
    if any(slot.held for slot in slots):
        return Reason(RebalanceCause.REVOKED, "partitions were revoked while a micro-batch read them")
    if rejoin_failed is not None:
        return Reason(RebalanceCause.SIBLING, rejoin_failed)
    if topics_changed is not None:
        return Reason(RebalanceCause.TOPICS, topics_changed)
    return None if unbalanced is None else Reason(RebalanceCause.BALANCE, unbalanced)
