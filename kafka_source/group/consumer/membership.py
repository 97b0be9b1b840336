"""All slots of a query as members of the consumer protocol (KIP-848): joins, heartbeats, newer epochs, leaves.

The methods are those of `group.membership`, so that a query does not know which protocol its group has. The differences
from the classic protocol:

- The brokers assign partitions. There is no leader, and no rebalance for which members wait.
- Partitions move one by one. If no batch in flight reads a revoked partition, the slot releases it immediately,
  otherwise at the batch's end. Only the partition's next owner waits. An assigned partition is taken immediately.
- Each slot has an epoch of its own, which a heartbeat may raise at any time, even in the middle of a batch. A commit
  with the previous epoch is refused, and repeated with the new epoch.
"""

import asyncio
import contextlib
import functools
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import KafkaGroupError, RetriableError
from kafka_source.group.consumer.member_state import State, Subscription
from kafka_source.group.consumer.slot import ConsumerSlot
from kafka_source.group.membership import CLOSE_SECONDS, REQUEST_SECONDS, BackgroundTasks, Membership, warn_of_overdue
from kafka_source.group.model import BatchInFlight, GroupAssignment, GroupSettings, TopicFilter
from kafka_source.group.rebalance_log import OtherMembers, Reason, log_assignment, rebalance_of
from kafka_source.group.requests import describe, describe_consumer_protocol, if_allowed
from kafka_source.group.topics import topics_of
from kafka_source.group.unread import Look, UnreadWatch, existing, read_as_assigned_by_brokers
from kafka_source.kafka_client import ConnectionLost, Deadline, Snapshot
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import Rebalance, RebalanceCause

log = logging.getLogger(__name__)

_T = TypeVar("_T")

ASSIGNOR = "brokers"
"""The name of the strategy in log lines about a group whose partitions the brokers assign."""

# Seconds between two heartbeats of a slot that waits for its first assignment, or for the answer to its release.
_POLL_SECONDS = 0.2
# Seconds for which the first join waits for partitions of the target that all other members have released.
_SHARE_SECONDS = 20.0
# Seconds for which a static member waits until the session of a killed process with its instance id ends. This time is
# the longest session that brokers allow by default (group.consumer.max.session.timeout.ms).
_UNRELEASED_SECONDS = 60.0
# Intervals without a response after which a heartbeat checks whether the slots are still members.
_SILENT_INTERVALS = 3
_MAX_KEPT = 32
# The approximate size of a description for each topic of a member, in bytes.
_BYTES_OF_TOPIC = 40


class ConsumerMembership(Membership):
    """The membership of all slots of a query in the consumer protocol.

    Args:
        config: Kafka client settings.
        settings: The group id, the slots and the timeouts.
        subscription: The topics to which all slots subscribe. A pattern is resolved here, and not by the brokers, whose
            regular expressions have another syntax (RE2).
        recovers: Whether slots that the group has removed rejoin during a batch that the sink commits.
    """

    def __init__(
        self, config: Settings, settings: GroupSettings, subscription: TopicFilter, *, recovers: bool = True
    ) -> None:
        super().__init__(config, settings)
        self._subscription, self._recovers = subscription, recovers
        self._slots = [ConsumerSlot(number, self._client, settings) for number in range(settings.slots)]
        self._told = Subscription((), settings.rebalance_timeout_ms, settings.remote_assignor, settings.rack)
        self._names: dict[uuid.UUID, str] = {}
        self._looked_up_at = 0.0
        self._rebalances: deque[Rebalance] = deque(maxlen=_MAX_KEPT)
        self._in_flight = BatchInFlight()
        # The epochs that tasks and the sink of the batch in flight know. Each task requests its slot's credentials, and
        # an epoch may rise between two requests.
        self._known_epochs: set[tuple[int, ...]] = set()
        self._calls, self._called_at = 0, time.monotonic()
        self._heard_at = time.monotonic()
        self._left: str | None = None
        self._joining = asyncio.Lock()
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *(functools.partial(self._live, slot) for slot in self._slots),
            self._watch_batch,
            UnreadWatch(settings, self._look_for_unread, self._ask_again).watch,
        ]
        if subscription.pattern is not None:
            works.append(self._watch_topics)
        self._tasks = BackgroundTasks(settings.group, works)

    # ---- joining

    def join(self, timeout_s: float) -> GroupAssignment:
        """Join with all slots; see `Membership.join`."""
        try:
            return self._run(
                self._join(Reason(RebalanceCause.START, "the query starts"), Deadline(timeout_s)), timeout_s
            )
        except BaseException:
            with contextlib.suppress(ConnectionLost):
                self.leave()
            raise

    def rejoin(self, timeout_s: float) -> GroupAssignment:
        """Take and release partitions as the brokers' latest assignment says, and rejoin with slots that were lost."""
        lost = self.lost()
        reason = Reason(RebalanceCause.MEMBERS, "the brokers have assigned other partitions")
        if lost is not None:
            reason = Reason(RebalanceCause.LOST, lost)
        return self._run(self._join(reason, Deadline(timeout_s)), timeout_s)

    @property
    def credentials(self) -> tuple[SlotCredentials, ...]:
        """The slots' credentials, with the current epochs; later epochs are published (`_publish`)."""
        found = self._credentials()
        self._known_epochs.add(tuple(one.generation for one in found))
        return found

    def _credentials(self) -> tuple[SlotCredentials, ...]:
        return tuple(slot.credentials(self._names) for slot in self._slots)

    def ask_for_newer_credentials(self, used: tuple[SlotCredentials, ...]) -> bool:
        """Return whether a refused commit may succeed now; see `Membership.ask_for_newer_credentials`.

        A heartbeat may have raised an epoch. If its answer was lost, the next heartbeat shows the new epoch.
        """
        is_answered = self.ask()
        if self.lost() is not None:
            return False
        if self._credentials() != used:
            return True
        if not is_answered:
            raise RetriableError(
                f"The coordinator of group {self._settings.group} has refused a commit and answers no heartbeat, which "
                "would show whether the slots have a newer epoch. The commit is tried again."
            )
        return False

    def rebalance_needed(self) -> str | None:
        """Return the change that `rejoin` would make; see `Membership.rebalance_needed`."""
        self.check()
        if any(slot.member.state is State.LOST for slot in self._slots):
            return "the group has removed slots"
        revoking = sum(len(slot.member.revoking) for slot in self._slots)
        if revoking:
            return f"the brokers take {revoking} partitions away"
        has_more = any(slot.can_take(self._names) for slot in self._slots)
        return "the brokers have assigned more partitions" if has_more else None

    def take_rebalances(self) -> tuple[Rebalance, ...]:
        """Return the changes of the slots' partitions since the last call, the newest 32 at most."""
        taken = []
        # The event loop may add a rebalance at the same time.
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._rebalances.popleft())
        return tuple(taken)

    removed_because = "no heartbeat came in time or partitions were not given up within max.poll.interval.ms"

    def _session_may_have_ended(self) -> bool:
        interval = max(slot.member.interval_ms for slot in self._slots) / 1000
        return time.monotonic() - self._heard_at > _SILENT_INTERVALS * interval

    def _reason_left(self) -> str | None:
        return self._left

    def _lost_slots(self) -> Sequence[int]:
        return [slot.number for slot in self._slots if slot.member.state is State.LOST]

    def check(self) -> None:
        """Raise the error if the group has refused one of the slots."""
        for slot in self._slots:
            problem = slot.problem()
            if problem is not None:
                raise problem

    # ---- the batch in flight

    def set_batch_in_flight(self, batch: BatchInFlight) -> None:
        """Record the batch in flight, whose partitions the slots keep until the next batch."""
        self._in_flight = batch
        if not batch.ends:
            self._known_epochs.clear()

    def record_throughput(self, speed: float | None, rates: Mapping[TopicPartition, float]) -> None:
        """Ignore the query's measures, because the brokers' assignors do not weigh work."""

    # ---- offsets

    def _credentials_of(self, slot: int) -> SlotCredentials:
        return self._slots[slot].credentials(self._names)

    # ---- leaving and closing

    def leave(self) -> None:
        """Leave with all slots; if the coordinator cannot be reached, the slots stay until their sessions end."""
        self._run(self._stop(comes_back=False), CLOSE_SECONDS)

    def detach(self, kept: Collection[int] | None = None) -> None:
        """Do nothing, because only batches pass their slots on, and batches do not use this protocol."""

    def close(self) -> None:
        """Leave the group, and close all connections; static members with the user's ids announce their return."""
        if not self._closed and self._client.loop.alive:
            self._closed = True
            with contextlib.suppress(ConnectionLost):
                self._run(self._stop(comes_back=not self._settings.leave_on_close), CLOSE_SECONDS)
        self._client.close(self._looks)

    # ---- on the event loop

    async def _begin_call(self) -> None:
        self._calls += 1
        try:
            # Wait until a join with lost slots that is under way has ended.
            async with self._joining:
                pass
        except BaseException:
            self._calls -= 1
            raise

    def _end_call(self) -> None:
        self._calls -= 1
        self._called_at = time.monotonic()
        self._reconcile(self._slots)

    async def _join(self, reason: Reason, deadline: Deadline) -> GroupAssignment:
        """Join with all slots; release and take partitions as the brokers have assigned."""
        async with self._joining:
            return await self._join_alone(reason, deadline)

    async def _join_alone(self, reason: Reason, deadline: Deadline) -> GroupAssignment:
        started, is_first = _target_changed_at(self._slots), self._assignment is None
        if is_first:
            await self._look_up_topics(deadline)
            await OtherMembers(self._client, self._settings).look_up(self._told.topics, timeout_s=deadline.left)
        if reason.cause is RebalanceCause.MEMBERS and self._has_lost():
            # A heartbeat has just shown the loss. Other members may have read partitions that the slots get back.
            reason = Reason(RebalanceCause.LOST, "the group has removed slots")
        for slot in self._slots:
            slot.rejoin()
        self._left = None
        unreleased = Deadline(min(_UNRELEASED_SECONDS, deadline.left))
        while joining := [slot for slot in self._slots if slot.member.state is State.JOINING]:
            results = await asyncio.gather(
                *(slot.beat(self._told, deadline) for slot in joining), return_exceptions=True
            )
            self.check()
            problem = next((result for result in results if isinstance(result, BaseException)), None)
            if problem is not None and not (isinstance(problem, RetriableError) and not deadline.over):
                raise problem
            waits = [slot for slot in joining if slot.member.state is State.JOINING]
            if waits and unreleased.over and waits[0].member.code == ErrorCode.UNRELEASED_INSTANCE_ID:
                raise waits[0].refusal(ErrorCode.UNRELEASED_INSTANCE_ID)
            if waits:
                await asyncio.sleep(self._client.settings.retry.pause(min(slot.member.failures for slot in waits)))
        self._heard_at = time.monotonic()
        self._tasks.start()
        waits_for_share = is_first or reason.cause is RebalanceCause.LOST
        await self._settle(Deadline(min(_SHARE_SECONDS, deadline.left)) if waits_for_share else None)
        self._note(reason, time.monotonic() - started)
        return self.assignment

    async def _settle(self, patience: Deadline | None) -> None:
        """Take and release partitions until the target is unchanged.

        Args:
            patience: How long a first join waits for the assignment, because brokers assign with a delay (KIP-1263) and
                first answer with an empty assignment; None: do not wait.
        """
        while True:
            await self._record_topic_names(self._slots)
            await asyncio.gather(*(slot.quiet() for slot in self._slots))
            self._reconcile_slots(self._slots)
            news = [slot for slot in self._slots if slot.member.has_news]
            if news and await self._beat_all(Deadline(REQUEST_SECONDS), news):
                continue
            # If the coordinator is unreachable, the next regular heartbeats report it.
            if patience is None or patience.over or await self._has_its_share(patience):
                return
            await asyncio.sleep(_POLL_SECONDS)
            await self._beat_all(Deadline(REQUEST_SECONDS))

    async def _has_its_share(self, patience: Deadline) -> bool:
        """Return whether the slots have all partitions of their targets that no other member has."""
        group = self._settings.group
        try:
            found = await describe_consumer_protocol(self._client, group, patience)
        except KafkaGroupError as error:
            # For example the user lacks the right to describe the group, or the other members' topics.
            log.info("describe group=%s: %s", group, error)
            return True
        if found is None:
            return False
        ours = {slot.member.member_id: slot for slot in self._slots}
        members = {member.member_id: member for member in found.members}
        if found.group_epoch != found.assignment_epoch or not ours.keys() <= members.keys():
            return False
        others = [member for member in found.members if member.member_id not in ours]
        if any(member.member_epoch < found.assignment_epoch for member in others):
            # Another member may release partitions of these slots' targets after its batch. Brokers before 4.3 do not
            # return the partitions that a member has to release (KAFKA-20431).
            return True
        taken = {
            (topic.topic_id, number)
            for member in others
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        }
        for member_id, slot in ours.items():
            has = {(one.topic_id, one.partition) for one in slot.member.owned}
            meant = {
                (topic.topic_id, number)
                for topic in members[member_id].target_assignment.topic_partitions
                for number in topic.partitions
            }
            if meant - has - taken:
                return False
        return True

    async def _beat_all(self, deadline: Deadline, slots: Iterable[ConsumerSlot] | None = None) -> bool:
        """Send a heartbeat for each of these slots (None: for all slots); return whether all were answered."""
        works = [self._beat(slot, deadline) for slot in (self._slots if slots is None else slots)]
        return all(await asyncio.gather(*works))

    async def _beat(self, slot: ConsumerSlot, deadline: Deadline) -> bool:
        """Send one heartbeat; return whether it was answered without a retriable error."""
        before = slot.member.state
        # The coordinator's session begins when it handles the request, not when the answer arrives.
        sent_at = time.monotonic()
        try:
            await slot.beat(self._told, deadline)
        except RetriableError as error:
            log.info("heartbeat group=%s slot=%d failed: %s", self._settings.group, slot.number, error)
            return False
        except KafkaGroupError as error:
            log.warning("heartbeat group=%s slot=%d failed: %s", self._settings.group, slot.number, error)
            return False
        after = slot.member.state
        if after is not before and after in (State.LOST, State.FAILED):
            log.warning("heartbeat group=%s slot=%d now=%r", self._settings.group, slot.number, after.value)
        if slot.member.failures:
            return False
        self._heard_at = sent_at
        return True

    async def _live(self, slot: ConsumerSlot) -> None:
        """Send one heartbeat of a slot, act on the answer, and wait until the slot's next heartbeat is due."""
        interval = slot.member.interval_ms / 1000
        was_answered = await self._beat(slot, Deadline(interval))
        # Most heartbeats change nothing. Only this slot is checked, because a check of hundreds of slots after each
        # heartbeat costs more than the heartbeats.
        if not slot.settled:
            await self._record_topic_names([slot])
            self._reconcile([slot])
        pause = interval if was_answered else min(interval, self._client.settings.retry.pause(slot.member.failures))
        # `wait_for` would create a task for each wait.
        timer = asyncio.get_running_loop().call_later(pause, slot.wake.set)
        try:
            await slot.wake.wait()
        finally:
            timer.cancel()
        slot.wake.clear()

    def _reconcile(self, slots: Sequence[ConsumerSlot]) -> None:
        """Take and release partitions outside of Spark's calls."""
        if self._calls or self._assignment is None:
            return
        changed_at = _target_changed_at(slots)
        if self._reconcile_slots(slots):
            reason = Reason(RebalanceCause.MEMBERS, "the brokers have assigned other partitions")
            self._note(reason, time.monotonic() - changed_at)

    def _reconcile_slots(self, slots: Sequence[ConsumerSlot]) -> bool:
        changed = [slot.reconcile(self._names, self._in_flight.ends) for slot in slots]
        return any(changed)

    def _note(self, reason: Reason, seconds: float) -> None:
        """Keep the current partitions of the slots as their assignment."""
        before = self._assignment
        slots = tuple(slot.assignment(self._names) for slot in self._slots)
        has = [(slot.partitions, slot.topic_ids) for slot in slots]
        is_lost = reason.cause is RebalanceCause.LOST
        if before is not None and not is_lost and has == [(slot.partitions, slot.topic_ids) for slot in before.slots]:
            return
        last = -1 if before is None else before.generation
        generation = max(last + 1, *(slot.credentials.generation for slot in slots))
        now = GroupAssignment(generation, ASSIGNOR, leading=False, slots=slots)
        self._assignment = now
        at_ms = round(time.time() * 1000)
        self._rebalances.append(rebalance_of(before, now, reason, seconds, at_ms, members=None, known=None))
        log_assignment(self._settings.group, before, now, self._in_flight.ends)

    # ---- topics

    async def _look_up_topics(self, deadline: Deadline) -> None:
        """Resolve the subscription, and learn the topics' ids and names."""
        pattern = self._subscription.pattern
        names = None if pattern is not None else list(self._subscription.topics)
        snapshot = await self._client.retrying(lambda: self._client.metadata(names, deadline), deadline)
        self._learn(snapshot)
        # In a thread, because a pattern may take long, and the event loop has to send heartbeats.
        topics = await asyncio.get_running_loop().run_in_executor(None, topics_of, self._subscription, snapshot)
        self._told = replace(self._told, topics=topics)

    def _learn(self, snapshot: Snapshot) -> None:
        self._names |= {topic.topic_id: topic.name for topic in snapshot.topics.values() if topic.topic_id is not None}
        self._looked_up_at = time.monotonic()

    async def _record_topic_names(self, slots: Sequence[ConsumerSlot]) -> None:
        """Learn the names of assigned topics that are new; partitions of a topic without a known name wait."""
        unknown = {one.topic_id for slot in slots for one in slot.member.target} - self._names.keys()
        if not unknown or time.monotonic() - self._looked_up_at < _POLL_SECONDS:
            return
        self._looked_up_at = time.monotonic()
        try:
            self._learn(await self._client.metadata(list(self._told.topics), Deadline(REQUEST_SECONDS)))
        except RetriableError as error:
            log.info("metadata group=%s failed: %s", self._settings.group, error)

    async def _watch_topics(self) -> None:
        """Wait for the next lookup, and subscribe to the topics that match the pattern now."""
        await asyncio.sleep(self._settings.metadata_max_age_ms / 1000)
        before = self._told
        await self._look_up_topics(Deadline(REQUEST_SECONDS))
        if self._told != before:
            log.info("topics group=%s subscribed=%s", self._settings.group, ",".join(self._told.topics))
            for slot in self._slots:
                slot.wake.set()

    async def _look_for_unread(self) -> tuple[Look | None, int]:
        """Describe the group for `UnreadWatch`."""
        deadline = Deadline(REQUEST_SECONDS)
        group = self._settings.group
        described = await if_allowed(describe_consumer_protocol(self._looks, group, deadline), group)
        if described is None:
            return None, 0
        size = _BYTES_OF_TOPIC * sum(
            len(one.subscribed_topic_names)
            + len(one.assignment.topic_partitions)
            + len(one.target_assignment.topic_partitions)
            for one in described.members
        )
        topics = self._told.topics
        snapshot = await self._looks.metadata(topics, deadline)
        if self._calls or not all(slot.member.in_group and slot.settled for slot in self._slots):
            return None, size
        own = {slot.member.member_id: slot.partitions(self._names) for slot in self._slots}
        read = read_as_assigned_by_brokers(described, own)
        return None if read is None else Look(described.group_epoch, existing(snapshot, topics), read), size

    def _ask_again(self, reason: str) -> None:
        for slot in self._slots:
            slot.ask_again()

    # ---- the batch in flight, between Spark's calls

    async def _watch_batch(self) -> None:
        """Watch the batch in flight: leave if it takes too long; rejoin after a loss; publish epochs for its sink."""
        await asyncio.sleep(_POLL_SECONDS)
        batch = self._in_flight
        if self._calls or not batch.ends:
            return
        if self._left is None and self._is_overdue():
            await self._leave_if_others_wait(batch)
        if batch.renewed is None or self._left is not None:
            return
        if self._has_lost():
            await self._recover(batch)
        elif self._known_epochs != {tuple(slot.member.epoch for slot in self._slots)}:
            await self._publish(batch)

    def _is_overdue(self) -> bool:
        return (time.monotonic() - self._called_at) * 1000 > self._settings.rebalance_timeout_ms

    def _has_lost(self) -> bool:
        return any(slot.member.state is State.LOST for slot in self._slots)

    async def _leave_if_others_wait(self, batch: BatchInFlight) -> None:
        """Leave after `max.poll.interval.ms` if the group has other members (KIP-62); a query that is alone stays."""
        # Spark may call, and the call may end, before the response.
        if not await self._are_owned_elsewhere(None) or self._calls or not self._is_overdue():
            return
        silent = time.monotonic() - self._called_at
        self._left = warn_of_overdue(self._settings, len(self._slots), silent)
        await self._leave_with_all(comes_back=False)
        await self._publish(batch, lost=True)

    async def _recover(self, batch: BatchInFlight) -> None:
        """Rejoin with lost slots, and publish their credentials, unless other members have the partitions."""
        others_have = not self._recovers or await self._are_owned_elsewhere(batch.ends.keys())
        if self._calls or not self._has_lost():
            # Spark has called before the answer came, and that call joins again.
            return
        if others_have:
            log.warning("group=%s: other members may have partitions of the lost batch", self._settings.group)
            self._left = "other members may have partitions of the batch"
            await self._publish(batch, lost=True)
            return
        reason = Reason(RebalanceCause.LOST, "the group has removed slots in the middle of a batch")
        await self._join(reason, Deadline(self._settings.rebalance_timeout_ms / 1000))
        await self._publish(batch)

    async def _are_owned_elsewhere(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Return whether other members have some of these partitions; None: return whether any other member exists."""
        group = self._settings.group
        found = describe(self._client, group, Deadline(REQUEST_SECONDS))
        if (described := await if_allowed(found, group)) is None:
            # If the description is missing, assume that other members own given partitions. With None, assume that none
            # exist.
            return partitions is not None
        ours = {slot.member.member_id for slot in self._slots}
        others = [d for d in described.members if d.member.member_id not in ours]
        return any(partitions is None or not d.assigned.isdisjoint(partitions) for d in others)

    async def _publish(self, batch: BatchInFlight, *, lost: bool = False) -> None:
        """Publish the current credentials, or that the batch is lost, for the sink's commit. See `commits.rights`."""
        if batch.renewed is None:
            return
        owners = () if lost else self._credentials()
        owned_by = {tp: one for one in owners for tp in one.partitions}
        group, deadline = self._settings.group, Deadline(REQUEST_SECONDS)
        try:
            await batch.renewed.publish(self._client, group, batch.ends, owned_by, deadline)
            self._known_epochs = {tuple(one.generation for one in owners)}
        except KafkaGroupError as error:
            log.warning("group=%s: the batch gets no new credentials: %s", group, error)

    # ---- leaving

    async def _stop(self, *, comes_back: bool) -> None:
        await self._tasks.stop()
        await self._leave_with_all(comes_back=comes_back)

    async def _leave_with_all(self, *, comes_back: bool) -> None:
        deadline = Deadline(CLOSE_SECONDS)
        works = (slot.leave(deadline, comes_back=comes_back) for slot in self._slots)
        problems = [one for one in await asyncio.gather(*works, return_exceptions=True) if one is not None]
        if problems:
            log.warning(
                "leave group=%s failed: slots stay until their sessions end: %s", self._settings.group, problems[0]
            )


def _target_changed_at(slots: Iterable[ConsumerSlot]) -> float:
    """Return the time since which a slot has to take or release partitions; the current time if no slot has to."""
    return min((slot.changed_at for slot in slots if slot.changed_at is not None), default=time.monotonic())
