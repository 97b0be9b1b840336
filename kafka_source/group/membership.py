"""All slots of one query together: the driver joins, leads, keeps and leaves the group here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from assignors import AssignmentError, Assignor, TopicPartition, WireFormatError, decode_assignment
from kafka_source.client_config import Settings
from kafka_source.errors import (
    ApplicationRecoverableError,
    AssignmentFailed,
    FencedError,
    KafkaGroupError,
    RetriableError,
)
from kafka_source.group import leader, topic_watch
from kafka_source.group.committed_offsets import commit_offsets, fetch_committed
from kafka_source.group.description import STABLE, describe
from kafka_source.group.member import Joined, Member
from kafka_source.group.member_state import State
from kafka_source.group.model import GroupAssignment, GroupSettings, TopicFilter
from kafka_source.group.slot import Slot
from kafka_source.kafka_client import Deadline, KafkaClient, Snapshot
from kafka_source.kafka_client.messages import LeaveGroupRequest
from kafka_source.model.commit_offset import CommitOffset

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_MOST_FOLLOW_UPS = 10
_REQUEST_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_COORDINATOR_SECONDS = 60.0
_LEADERS_HEAD_START = 0.02
_FIRST_LOOK = 0.05
_LONGEST_LOOK = 0.25
_LOOK_PER_SLOT = 0.004


class GroupMembership:
    """A query's slots as members of a group. For ordinary code: an event loop on its own thread does the work.

    Heartbeats for all slots go over one connection; each slot has its own for joining, where requests are parked.
    Members rejoin only when `rejoin` is called, so that a rebalance never happens in the middle of a micro-batch.

    Args:
        config: Settings of the Kafka clients.
        settings: Of the group.
        subscription: What all slots want.
        assignors: The strategies to offer, best first.
    """

    def __init__(
        self,
        config: Settings,
        settings: GroupSettings,
        subscription: TopicFilter,
        assignors: Sequence[Assignor],
    ) -> None:
        if not assignors:
            raise ValueError("a group needs an assignor")
        self._settings = settings
        self._subscription = subscription
        self._client = KafkaClient(config, client_id=settings.client_id)
        self._slots = [Slot(number, self._client, settings, assignors) for number in range(settings.slots)]
        self._tasks: list[asyncio.Task[None]] = []
        self._assignment: GroupAssignment | None = None
        self._watched: dict[str, topic_watch.TopicState] = {}
        self._led_topics: frozenset[str] = frozenset()
        self._led_generation = -1
        self._topics_changed: str | None = None
        self._heard_at = time.monotonic()
        self._rebalancing_since: float | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"GroupMembership({self._settings.group!r}, slots={len(self._slots)})"

    # ---- joining

    def join(self, timeout_s: float) -> GroupAssignment:
        """Joins with all slots, leads if one is elected, and starts the heartbeats.

        Raises:
            FencedError: Another process has a slot's instance id.
            InvalidConfigurationError: The group refuses us; the error names the setting.
            AssignmentFailed: The group's leader could not assign, with its reason.
            BootstrapError: No broker answers.
            RetriableError: It did not succeed in time.
        """
        try:
            return self._run(self._enter("the query starts", Deadline(timeout_s)), timeout_s)
        except BaseException:
            if self._settings.leave_on_close:
                with contextlib.suppress(KafkaGroupError, TimeoutError):
                    self.leave()
            raise

    def rejoin(self, timeout_s: float) -> GroupAssignment:
        """Takes part in a rebalance; errors as in `join`."""
        reason = self.rebalance_needed() or "the query asks for it"
        return self._run(self._enter(reason, Deadline(timeout_s)), timeout_s)

    @property
    def assignment(self) -> GroupAssignment:
        """What the slots got last.

        Raises:
            ApplicationRecoverableError: They have not joined.
        """
        if self._assignment is None:
            raise ApplicationRecoverableError(f"The slots have not joined group {self._settings.group}.")
        return self._assignment

    def rebalance_needed(self) -> str | None:
        """Why to rejoin before the next micro-batch, or None.

        Raises:
            FencedError: Another process has taken a slot's place: rejoining would be a fight.
        """
        lost = self.lost()
        if lost is not None:
            return lost
        if any(slot.member.membership.state is State.REBALANCING for slot in self._slots):
            return "a member joined, left or changed its subscription"
        return self._topics_changed

    def lost(self) -> str | None:
        """Why the slots are no longer the group's, or None.

        Asks the group if it has not answered for as long as a session: a process that was suspended does not know yet.

        Raises:
            FencedError: Another process has taken a slot's place.
        """
        if (time.monotonic() - self._heard_at) * 1000 > self._settings.session_timeout_ms:
            with contextlib.suppress(RetriableError, TimeoutError):
                self._run(self._ask(Deadline(_REQUEST_SECONDS)), _REQUEST_SECONDS)
        self.check()
        lost = [slot.number for slot in self._slots if slot.member.membership.state is State.LOST]
        return f"the group has given up {_slots(lost)}: no heartbeat came within the session timeout" if lost else None

    def check(self) -> None:
        """Raises why the group refuses one of the slots, if it does.

        Raises:
            FencedError: Another process has taken its place.
            KafkaGroupError: By the code of the refusal; AuthenticationError if a right was taken away.
        """
        for slot in self._slots:
            slot.member.check()

    # ---- offsets

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float = _REQUEST_SECONDS
    ) -> dict[TopicPartition, int | None]:
        """The group's committed offsets, None where there is none; open transactions are waited for."""
        work = fetch_committed(self._client, self._settings.group, partitions, Deadline(timeout_s))
        return self._run(work, timeout_s)

    def commit(
        self,
        offsets: Mapping[int, Mapping[TopicPartition, int | CommitOffset]],
        timeout_s: float = _REQUEST_SECONDS,
    ) -> None:
        """Commits without a transaction, each slot its own partitions.

        Args:
            offsets: By slot number, the offsets to read next.
            timeout_s: For all of it.

        Raises:
            FencedError: A slot is no longer a member of this generation; what is its was not committed.
            UnknownTopicError: A topic does not exist; the offsets of the other topics are committed.
            UnknownOutcomeError: No answer in time.
        """
        self._run(self._commit(offsets, Deadline(timeout_s)), timeout_s)

    # ---- the end

    def detach(self) -> None:
        """Stops the heartbeats without leaving: other processes go on as the slots before their sessions end."""
        self._run(self._stop_tasks(), _CLOSE_SECONDS)
        self._closed = True

    def leave(self) -> None:
        """Leaves with all slots in one request, so that the group rebalances once."""
        self._run(self._leave("the query ends", Deadline(_CLOSE_SECONDS)), _CLOSE_SECONDS)

    def close(self) -> None:
        """Ends everything; leaves first if the settings say so. May be called twice, and after `detach`."""
        if not self._closed:
            self._closed = True
            if self._settings.leave_on_close:
                with contextlib.suppress(KafkaGroupError, TimeoutError):
                    self.leave()
            else:
                self._run(self._stop_tasks(), _CLOSE_SECONDS)
        self._client.close()

    # ---- on the loop

    def _run(self, work: Coroutine[Any, Any, _T], timeout_s: float) -> _T:
        # The work keeps its own deadline and knows why it is late; this is for what has none.
        return self._client.run(work, timeout_s + _CLOSE_SECONDS)

    async def _enter(self, reason: str, deadline: Deadline) -> GroupAssignment:
        started = time.monotonic()
        cause, fresh = reason, self._assignment is None
        for _ in range(_MOST_FOLLOW_UPS):
            topics = await self._subscribed_topics(deadline)
            moved = await self._round(topics, reason, deadline)
            self._raise_failed_assignment()
            if moved:
                # Cooperative: what was taken from us can be given to others only now (KIP-429).
                reason = "partitions were revoked"
                continue
            stale = await self._stale(topics, deadline) if fresh else None
            if stale is None:
                break
            fresh = False
            reason = cause = stale
            if not any(slot.leading or slot.hands_over for slot in self._slots):
                # A follower that joins again with what the coordinator knows already changes nothing. Where partitions
                # are handed over it says its generation, so it does; and what nobody has may be on its way to us.
                await self._leave(stale, deadline)
        self._start_tasks()
        self._assignment = self._collect()
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
        """Brings all slots into one generation; returns whether another round must follow."""
        # Once for all: slots that look for it one by one would drop in one by one, a rebalance each.
        await self._client.coordinator(self._settings.group, Deadline(min(deadline.left, _COORDINATOR_SECONDS)))
        self._topics_changed = self._rebalancing_since = None
        settled = asyncio.Event()
        lead_first = [slot for slot in self._slots if slot.leading] + [slot for slot in self._slots if not slot.leading]
        tasks = []
        try:
            for index, slot in enumerate(lead_first):
                tasks.append(asyncio.ensure_future(self._bring_in(slot, topics, settled, reason, deadline)))
                if index == 0 and slot.leading:
                    # A leader that rejoins starts a rebalance; followers before it would be answered from the old one.
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
            state = await slot.member.join(slot.subscribe(topics), lead, deadline, reason)
            moved |= slot.take(state)
            if all(s.member.membership.state is State.STABLE for s in self._slots) and self._one_generation():
                settled.set()
            pause = _FIRST_LOOK
            while not settled.is_set():
                # Others of our slots may wait for this one to join again: look, and look less often with time.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(settled.wait(), pause)
                    break
                with contextlib.suppress(RetriableError):
                    await slot.member.heartbeat(deadline)
                if slot.member.membership.state is not State.STABLE:
                    break
                pause = min(pause * 2, _LONGEST_LOOK + _LOOK_PER_SLOT * len(self._slots))
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
        """Why the assignment that the slots came back to does not fit them, or None."""
        described = await describe(self._client, self._settings.group, deadline)
        if described.state != STABLE or self._led_generation == self._slots[0].generation:
            return None
        try:
            group = leader.subscriptions(d.member for d in described.members)
            held = {d.member.member_id: decode_assignment(d.state) for d in described.members}
        except (AssignmentError, WireFormatError):
            return None  # Not ours to judge: the leader made it.
        leading = any(slot.leading for slot in self._slots)
        wanted = frozenset(leader.topics_of(group))
        snapshot = await self._client.metadata(wanted, deadline)
        if leading:
            self._led_topics = wanted
            self._watched = topic_watch.states_of(snapshot, wanted)
            return leader.stale(snapshot.for_assignor(wanted), group, held)
        # Another application leads, and watches what it leads; but only we know what we want now.
        ours = frozenset(topics)
        given = {tp.topic for slot in self._slots for tp in slot.assignment.partitions}
        anybody = {tp.topic for assignment in held.values() for tp in assignment.partitions}
        if given - ours:
            return f"topic {min(given - ours)} is no longer subscribed to"
        unknown = {name for name in ours - anybody if name in snapshot.topics}
        return f"topic {min(unknown)} is assigned to nobody" if unknown else None

    async def _subscribed_topics(self, deadline: Deadline) -> tuple[str, ...]:
        if self._subscription.pattern is None:
            return topic_watch.topics_of(self._subscription, Snapshot(None, {}))
        snapshot = await self._client.metadata(None, deadline)
        topics = topic_watch.topics_of(self._subscription, snapshot)
        self._watched = topic_watch.states_of(snapshot, topics)
        return topics

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

    async def _commit(
        self, offsets: Mapping[int, Mapping[TopicPartition, int | CommitOffset]], deadline: Deadline
    ) -> None:
        await asyncio.gather(
            *(self._commit_one(self._slots[number], of_slot, deadline) for number, of_slot in offsets.items())
        )

    async def _commit_one(
        self, slot: Slot, offsets: Mapping[TopicPartition, int | CommitOffset], deadline: Deadline
    ) -> None:
        used = slot.credentials()
        try:
            await commit_offsets(self._client, used, offsets, deadline, fail_on_unknown_topic=True)
        except FencedError as error:
            # A commit tells what a heartbeat would, only sooner.
            if error.code is not None and used == slot.credentials():
                slot.member.hear(error.code)
            raise

    # ---- heartbeats

    def _start_tasks(self) -> None:
        if not self._tasks:
            self._heard_at = time.monotonic()
            self._tasks = [
                asyncio.ensure_future(self._forever(self._beat)),
                asyncio.ensure_future(self._forever(self._look)),
            ]

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
                log.exception("group=%s: background work failed; it goes on", self._settings.group)
                await asyncio.sleep(1.0)

    async def _ask(self, deadline: Deadline) -> bool:
        """A heartbeat of every slot; returns whether all were answered."""
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
                "rebalance group=%s has waited %.0f s for this query's micro-batch; after %.0f s the group goes on "
                "without its slots. Make micro-batches shorter, or raise kafka.max.poll.interval.ms.",
                self._settings.group,
                before,
                limit,
            )

    # ---- topics

    async def _look(self) -> None:
        await asyncio.sleep(self._settings.metadata_max_age_ms / 1000)
        if self._topics_changed is not None or not await self._changed_topics():
            return
        # Changes come in bursts: collect what comes within the batch time, then ask for one rebalance.
        await asyncio.sleep(self._settings.rebalance_batch_ms / 1000)
        found = await self._changed_topics()
        if found and self._topics_changed is None:
            self._topics_changed = topic_watch.reason_of(found)
            log.info("topics group=%s changed=%r", self._settings.group, self._topics_changed)

    async def _changed_topics(self) -> list[str]:
        leading = any(slot.leading for slot in self._slots)
        if not leading and self._subscription.pattern is None:
            return []  # The leader, another application, watches.
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
            # Only which topics match is a follower's business.
            return topic_watch.changes(
                {name: topic_watch.TopicState(0, None) for name in before},
                {name: topic_watch.TopicState(0, None) for name in names},
            )
        found = topic_watch.changes(before, topic_watch.states_of(snapshot, names | self._led_topics))
        return found if self._watched is before else []

    # ---- leaving

    async def _leave(self, reason: str, deadline: Deadline) -> None:
        await self._stop_tasks()
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


def _slots(numbers: Sequence[int]) -> str:
    return f"slot {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} slots"


def _brief(partitions: Sequence[TopicPartition]) -> str:
    """`orders:0-3,7 payments:0`."""
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
