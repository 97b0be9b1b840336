"""The driver's side of group membership: all slots of one query join, lead, send heartbeats and leave here."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
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
from kafka_source.errors import (
    ApplicationRecoverableError,
    AssignmentFailed,
    FencedError,
    KafkaGroupError,
    RetriableError,
)
from kafka_source.group import broker_side, leader, topic_watch
from kafka_source.group.between_calls import BetweenCalls
from kafka_source.group.claims import without_held
from kafka_source.group.committed_offsets import commit_offsets, fetch_committed
from kafka_source.group.description import STABLE, describe
from kafka_source.group.join_progress import log_progress
from kafka_source.group.member import Joined, Member
from kafka_source.group.member_state import State
from kafka_source.group.model import BatchUnderWay, GroupAssignment, GroupSettings, TopicFilter
from kafka_source.group.siblings import Siblings
from kafka_source.group.slot import Slot
from kafka_source.kafka_client import Deadline, KafkaClient, Snapshot, cached_client
from kafka_source.kafka_client.messages import LeaveGroupRequest
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.model.credentials import SlotCredentials

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# The maximum number of rounds of JoinGroup and SyncGroup in one rebalance.
_MOST_ROUNDS = 10
_REQUEST_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
# Seconds between the JoinGroup of a slot that leads and those of the other slots.
_LEADERS_HEAD_START = 0.02
# Seconds between the heartbeats of a slot that waits for the query's other slots in `_bring_in`. The maximum grows with
# the number of slots, because all heartbeats share one connection.
_FIRST_POLL = 0.05
_LONGEST_POLL = 0.25
_POLL_PER_SLOT = 0.004


class GroupMembership:
    """The membership of all slots of a query. Its methods are synchronous; an event loop on a thread does the work.

    All slots share one connection for heartbeats. Each slot has its own connection for JoinGroup and SyncGroup, because
    the coordinator holds these requests, and every request behind them on the same connection, until the rebalance
    completes. Slots rejoin when `rejoin` is called, between micro-batches. The exception is a sibling that waits in a
    join: then they rejoin at once, outside of `undisturbed`, and claim the partitions of the micro-batch under way.

    Args:
        config: Kafka client settings.
        settings: The group id, the slots and the timeouts.
        subscription: The topics to which all slots subscribe.
        assignors: The supported assignors in order of preference.
        siblings: Where to meet the other reads of this driver and group; None: nowhere.
    """

    def __init__(
        self,
        config: Settings,
        settings: GroupSettings,
        subscription: TopicFilter,
        assignors: Sequence[Assignor],
        siblings: Siblings | None = None,
    ) -> None:
        if not assignors:
            raise ValueError("a group needs an assignor")
        self._settings = settings
        self._subscription = subscription
        self._client = KafkaClient(config, client_id=settings.client_id)
        # A heartbeat that is not answered within its interval closes its connection. A commit may take longer.
        self._commits = cached_client(config, "commit")
        self._slots = [Slot(number, self._client, settings, assignors) for number in range(settings.slots)]
        self._strategies = tuple(assignor.name for assignor in assignors)
        self._brokers_assign = False
        self._tasks: list[asyncio.Task[None]] = []
        self._assignment: GroupAssignment | None = None
        self._watched: dict[str, topic_watch.TopicState] = {}
        self._led_topics: frozenset[str] = frozenset()
        self._led_generation = -1
        # The group has a leader that does not know it; see `_stale`.
        self._leader_unaware = False
        self._topics_changed: str | None = None
        self._heard_at = time.monotonic()
        self._rebalancing_since: float | None = None
        self._closed = False
        self._siblings = siblings
        self._between = BetweenCalls(
            self._client,
            settings,
            self._slots,
            ask=lambda: self._ask(Deadline(_REQUEST_SECONDS)),
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
            self._run(self._meet_siblings(), timeout_s)
            return self._run(self._enter("the query starts", Deadline(timeout_s)), timeout_s)
        except BaseException:
            if self._settings.leave_on_close:
                with contextlib.suppress(KafkaGroupError, TimeoutError):
                    self.leave()
            raise

    def rejoin(self, timeout_s: float) -> GroupAssignment:
        """Rejoin with all slots; raises as `join`."""
        reason = self.rebalance_needed() or "the query asks for it"
        return self._run(self._enter(reason, Deadline(timeout_s)), timeout_s)

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
        lost = self.lost()
        if lost is not None:
            return lost
        if any(slot.member.membership.state is State.REBALANCING for slot in self._slots):
            return "a member joined, left or changed its subscription"
        if any(slot.held for slot in self._slots):
            return "partitions were revoked while a micro-batch read them"
        return self._between.rejoin_failed or self._topics_changed

    def lost(self) -> str | None:
        """Return the reason why the group has removed slots, or None.

        It sends heartbeats first if the coordinator has not answered for longer than the session timeout: a process
        that was suspended has not noticed yet that its session has ended.

        Raises:
            FencedError: Another process has joined with a slot's instance id.
        """
        if (time.monotonic() - self._heard_at) * 1000 > self._settings.session_timeout_ms:
            with contextlib.suppress(RetriableError, TimeoutError):
                self._run(self._ask(Deadline(_REQUEST_SECONDS)), _REQUEST_SECONDS)
        self.check()
        if self._between.left is not None:
            return self._between.left
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

    # ---- the micro-batch under way

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Keep the generation as it is inside the block, unless the block itself rejoins.

        It first waits for a rejoin that is under way because a sibling waits.
        """
        self._client.run(self._between.begin_call())
        try:
            yield
        finally:
            if self._client.loop.alive:
                self._client.loop.call_soon(self._between.end_call)

    def reads(self, batch: BatchUnderWay) -> None:
        """Note the micro-batch under way: a rejoin outside of `undisturbed` claims its partitions."""
        self._between.under_way = batch

    # ---- offsets

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, None for a partition without one; wait for open transactions.

        The limit is `coordinator_timeout_ms`, unless another one is given.
        """
        timeout_s = self._settings.coordinator_timeout_ms / 1000 if timeout_s is None else timeout_s
        work = fetch_committed(self._client, self._settings.group, partitions, Deadline(timeout_s))
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
                self._run(self._hear(self._slots[number], used[number], problem.code), _CLOSE_SECONDS)
        for problem in problems.values():
            raise problem

    # ---- leaving and closing

    def detach(self) -> None:
        """Stop the heartbeats without leaving; other processes take the slots over before their sessions end."""
        self._run(self._stop_tasks(), _CLOSE_SECONDS)
        self._closed = True

    def leave(self) -> None:
        """Leave with all slots in one request, so that the group rebalances only once."""
        self._run(self._leave("the query ends", Deadline(_CLOSE_SECONDS)), _CLOSE_SECONDS)

    def close(self) -> None:
        """Leave the group if `leave_on_close` is set, and close all connections.

        It may be called twice, and after `detach`.
        """
        if not self._closed:
            self._closed = True
            if self._settings.leave_on_close:
                with contextlib.suppress(KafkaGroupError, TimeoutError):
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

    async def _enter(self, reason: str, deadline: Deadline) -> GroupAssignment:
        async with self._waiting_told():
            return await self._join_all(reason, deadline)

    @contextlib.asynccontextmanager
    async def _waiting_told(self) -> AsyncIterator[None]:
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

    async def _join_all(self, reason: str, deadline: Deadline) -> GroupAssignment:
        started = time.monotonic()
        cause, fresh = reason, self._assignment is None
        for _ in range(_MOST_ROUNDS):
            topics = await self._subscribed_topics(deadline)
            moved = await self._round(topics, reason, deadline)
            self._check_who_assigns()
            self._raise_failed_assignment()
            if moved:
                # Cooperative rebalancing (KIP-429): the leader assigns revoked partitions to their new owners only
                # after the previous owners have rejoined without them.
                reason = "partitions were revoked"
                continue
            stale = await self._stale(topics, deadline) if fresh else None
            if stale is None:
                break
            fresh = False
            reason = cause = stale
            if not any(slot.leading or slot.hands_over for slot in self._slots):
                # If a follower rejoins with unchanged metadata, the coordinator does not start a rebalance. So leave
                # first, which does. With cooperative assignors the metadata contains the generation, so it has changed,
                # and a partition without an owner may just be moving to this query.
                await self._leave(stale, deadline)
        self._start_tasks()
        before, self._assignment = self._assignment, self._collect()
        self._between.rejoin_failed = self._between.left = None
        self._warn_of_lost_claims(before, self._assignment)
        log.info(
            "rebalance group=%s generation=%d cause=%r took_ms=%d leading=%s assignor=%s partitions=%d slots=%d",
            self._settings.group,
            self._assignment.generation,
            cause,
            (time.monotonic() - started) * 1000,
            self._assignment.leading,
            self._assignment.assignor,
            sum(len(slot.partitions) for slot in self._assignment.slots),
            len(self._slots),
        )
        for slot in self._assignment.slots:
            log.info(
                "assigned group=%s generation=%d slot=%d member=%s partitions=%s standby=%s",
                self._settings.group,
                self._assignment.generation,
                slot.credentials.slot,
                slot.credentials.instance_id or slot.credentials.member_id,
                _brief([tp for tp in slot.partitions if tp not in slot.replicas]),
                _brief(list(slot.replicas)),
            )
        return self._assignment

    async def _round(self, topics: Sequence[str], reason: str, deadline: Deadline) -> bool:
        """Bring all slots into one generation; return whether another round must follow."""
        # Find the coordinator once before the slots join. If each slot looked for it, they would join at different
        # times and each would cause a rebalance.
        patience = min(deadline.left, self._settings.coordinator_timeout_ms / 1000)
        await self._client.coordinator(self._settings.group, Deadline(patience))
        self._topics_changed = self._rebalancing_since = None
        self._leader_unaware = False
        settled = asyncio.Event()
        lead_first = [slot for slot in self._slots if slot.leading] + [slot for slot in self._slots if not slot.leading]
        tasks = []
        try:
            for index, slot in enumerate(lead_first):
                tasks.append(asyncio.ensure_future(self._bring_in(slot, topics, settled, reason, deadline)))
                if index == 0 and slot.leading:
                    # A leader that rejoins starts a rebalance. Followers that rejoin before it would get the response
                    # of the old generation.
                    await asyncio.sleep(_LEADERS_HEAD_START)
            return any(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _bring_in(
        self, slot: Slot, topics: Sequence[str], settled: asyncio.Event, reason: str, deadline: Deadline
    ) -> bool:
        async def lead(joined: Joined) -> Mapping[str, bytes]:
            return await self._lead(slot, joined, deadline)

        moved = False
        while True:
            in_flight = self._between.under_way.ends.keys()
            state = await slot.member.join(slot.subscribe(topics, in_flight), lead, deadline, reason)
            moved |= slot.take(state, in_flight)
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
                pause = min(pause * 2, _LONGEST_POLL + _POLL_PER_SLOT * len(self._slots))
            if settled.is_set():
                return moved

    def _one_generation(self) -> bool:
        return len({slot.generation for slot in self._slots}) == 1

    async def _lead(self, slot: Slot, joined: Joined, deadline: Deadline) -> Mapping[str, bytes]:
        led = await leader.lead(self._client, self._settings.group, slot.assignor(joined.protocol), joined, deadline)
        self._led_topics = led.topics
        self._watched = topic_watch.states_of(led.snapshot, led.topics)
        self._led_generation = joined.generation
        return led.states

    async def _stale(self, topics: Sequence[str], deadline: Deadline) -> str | None:
        """Return why the assignment that the slots got back after a restart does not match, or None if it matches."""
        described = await describe(self._client, self._settings.group, deadline)
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
            self._led_topics = wanted
            self._watched = topic_watch.states_of(snapshot, wanted)
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

    async def _subscribed_topics(self, deadline: Deadline) -> tuple[str, ...]:
        if self._subscription.pattern is None:
            return topic_watch.topics_of(self._subscription, Snapshot(None, {}))
        snapshot = await self._client.metadata(None, deadline)
        topics = topic_watch.topics_of(self._subscription, snapshot)
        self._watched = topic_watch.states_of(snapshot, topics)
        return topics

    def _check_who_assigns(self) -> None:
        """Say that the brokers assign the partitions, if they do; see `broker_side`.

        Raises:
            InvalidConfigurationError: None of the strategies is one that the brokers can replace.
        """
        if self._slots[0].member.last_join.leader:
            self._brokers_assign = False
            return
        problem = broker_side.refusal(self._settings.group, self._strategies)
        if problem is not None:
            raise problem
        if not self._brokers_assign:
            log.warning("%s", broker_side.warning(self._settings.group, self._strategies))
        self._brokers_assign = True

    def _raise_failed_assignment(self) -> None:
        for slot in self._slots:
            reason = leader.failure_reason(slot.assignment)
            if reason is not None:
                raise AssignmentFailed(
                    f"The leader of group {self._settings.group} could not assign partitions: {reason}."
                )

    def _collect(self) -> GroupAssignment:
        joined = self._slots[0].member.last_join
        return GroupAssignment(
            generation=joined.generation,
            assignor=joined.protocol,
            leading=any(slot.leading for slot in self._slots),
            slots=tuple(slot.assigned() for slot in self._slots),
        )

    async def _hear(self, slot: Slot, used: SlotCredentials, code: int) -> None:
        # The error code of a commit means the same as that of a heartbeat, and arrives earlier.
        if used == slot.credentials():
            slot.member.hear(code)

    # ---- heartbeats

    def _start_tasks(self) -> None:
        if not self._tasks:
            self._heard_at = time.monotonic()
            self._tasks = [
                asyncio.ensure_future(self._forever(self._beat)),
                asyncio.ensure_future(self._forever(self._watch_topics)),
            ]
            if self._siblings is not None:
                rejoin = functools.partial(self._between.rejoin_for, self._siblings)
                self._tasks.append(asyncio.ensure_future(self._forever(rejoin)))

    async def _stop_tasks(self) -> None:
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

    async def _ask(self, deadline: Deadline) -> bool:
        """Send a heartbeat for every slot; return whether all were answered."""
        members = [slot.member for slot in self._slots if slot.member.membership.is_member]
        answered = all(await asyncio.gather(*(self._beat_one(member, deadline) for member in members)))
        if answered:
            self._heard_at = time.monotonic()
        return answered

    async def _beat(self) -> None:
        interval = self._settings.heartbeat_interval_ms / 1000
        answered = await self._ask(Deadline(interval))
        now = time.monotonic()
        silent = now - self._heard_at
        if silent * 1000 > self._settings.session_timeout_ms:
            log.warning(
                "heartbeat group=%s unanswered_s=%.0f: the session may have ended", self._settings.group, silent
            )
        self._warn_of_long_batch(now)
        await self._between.leave_if_overdue()
        await asyncio.sleep(interval if answered else min(interval, 0.5))

    async def _beat_one(self, member: Member, deadline: Deadline) -> bool:
        before = member.membership.state
        try:
            result = await member.heartbeat(deadline)
        except RetriableError as error:
            log.info("heartbeat group=%s member=%s failed: %s", self._settings.group, member, error)
            return False
        after = result.membership.state
        if after is not before and after in (State.REBALANCING, State.LOST, State.FENCED, State.FAILED):
            level = logging.INFO if after is State.REBALANCING else logging.WARNING
            log.log(level, "heartbeat group=%s member=%s now=%r", self._settings.group, member, after.value)
        return not result.back_off

    def _warn_of_long_batch(self, now: float) -> None:
        waiting = any(slot.member.membership.state is State.REBALANCING for slot in self._slots)
        if not waiting:
            self._rebalancing_since = None
            return
        limit = self._settings.rebalance_timeout_ms / 1000
        before = None if self._rebalancing_since is None else now - self._rebalancing_since
        if self._rebalancing_since is None:
            self._rebalancing_since = now
        elif before is not None and before > limit / 2:
            log.warning(
                "rebalance group=%s has waited %.0f s for this query's micro-batch; after %.0f s the group continues "
                "without its slots. Make micro-batches shorter, or raise kafka.max.poll.interval.ms.",
                self._settings.group,
                before,
                limit,
            )

    # ---- siblings

    async def _meet_siblings(self) -> None:
        if self._siblings is None:
            return
        try:
            there = await self._siblings.open()
        except OSError as error:
            log.warning("group=%s: other reads of this driver cannot find this one: %s", self._settings.group, error)
            self._siblings = None
            return
        if there:
            log.warning(
                "Two reads of group %s in this driver share its partitions: each record is read by one of them. If "
                "both need all records, set group.membership=false, which makes kafka.group.id a label, or give each "
                "read a group of its own.",
                self._settings.group,
            )

    def _warn_of_lost_claims(self, before: GroupAssignment | None, now: GroupAssignment) -> None:
        """Say which partitions of the micro-batch under way the leader has given to others all the same."""
        had = {tp for slot in before.slots for tp in (*slot.partitions, *slot.held)} if before is not None else set()
        has = {tp for slot in now.slots for tp in (*slot.partitions, *slot.held)}
        if moved := sorted((had - has) & self._between.under_way.ends.keys()):
            log.warning(
                "rebalance group=%s generation=%d: the group's leader has given %s to other members while a "
                "micro-batch of this query reads them. The micro-batch is finished and not committed there, so other "
                "members may read these records again.",
                self._settings.group,
                now.generation,
                _brief(moved),
            )

    # ---- topics

    async def _watch_topics(self) -> None:
        await asyncio.sleep(self._settings.metadata_max_age_ms / 1000)
        if self._topics_changed is not None or not await self._changed_topics():
            return
        # Topics are often changed in groups: collect the changes of `rebalance_batch_ms`, then trigger one rebalance.
        await asyncio.sleep(self._settings.rebalance_batch_ms / 1000)
        found = await self._changed_topics()
        if found and self._topics_changed is None:
            self._topics_changed = topic_watch.reason_of(found)
            log.info("topics group=%s changed=%r", self._settings.group, self._topics_changed)

    async def _changed_topics(self) -> list[str]:
        leading = self._watches_as_leader
        if not leading and self._subscription.pattern is None:
            return []  # Another application leads the group and watches the topics.
        before = self._watched
        try:
            snapshot = await self._client.metadata(
                None if self._subscription.pattern is not None else self._led_topics, Deadline(_REQUEST_SECONDS)
            )
        except RetriableError as error:
            log.warning("metadata group=%s failed: %s", self._settings.group, error)
            return []
        names = set(topic_watch.topics_of(self._subscription, snapshot))
        if not leading:
            # A follower compares only the names that match its pattern; the leader watches partitions and topic ids.
            return topic_watch.changes(
                {name: topic_watch.TopicState(0, None) for name in before},
                {name: topic_watch.TopicState(0, None) for name in names},
            )
        found = topic_watch.changes(before, topic_watch.states_of(snapshot, names | self._led_topics))
        return found if self._watched is before else []

    # ---- leaving

    async def _leave(self, reason: str, deadline: Deadline) -> None:
        await self._stop_tasks()
        await self._send_leave(reason, deadline)

    async def _send_leave(self, reason: str, deadline: Deadline) -> None:
        members = [slot.member for slot in self._slots if slot.member.may_be_known]
        if members:
            request = LeaveGroupRequest(
                group_id=self._settings.group,
                members=[
                    LeaveGroupRequest.MemberIdentity(
                        member_id=m.membership.member_id, group_instance_id=m.settings.instance_id, reason=reason
                    )
                    for m in members
                ],
            )
            coordinator = await self._client.coordinator(self._settings.group, deadline)
            connection = await self._client.connection(coordinator, deadline)
            await connection.send(request, max(0.001, deadline.left))
            log.info("leave group=%s slots=%d reason=%r", self._settings.group, len(members), reason)
        for slot in self._slots:
            slot.member.left()


def _with_held(assignment: Assignment) -> Assignment:
    """Return an assignment with the partitions that are held for the member: nobody else may have them."""
    own, held = without_held(assignment)
    return Assignment((*own.partitions, *held), own.user_data)


def _slots(numbers: Sequence[int]) -> str:
    return f"slot {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} slots"


def _brief(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions in a short form, for example `orders:0-3,7 payments:0`."""
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return " ".join(f"{topic}:{_runs(numbers)}" for topic, numbers in by_topic.items()) or "none"


def _runs(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
