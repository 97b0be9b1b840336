"""Work of slots between Spark's calls: heartbeats, rejoins for other reads of the driver, leaving when overdue.

Slots rejoin in Spark's calls, between micro-batches, with three exceptions. If another read of the same driver and
group waits in a join, Spark cannot call this read, so this read's slots rejoin immediately. Slots that the group has
removed in a micro-batch rejoin immediately if the batch's tasks or sink need new credentials (`commits.rights`). If
Spark has not called for `max.poll.interval.ms`, the slots leave, so that other members get their partitions (KIP-62).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from assignors.model import TopicPartition
from kafka_source.errors import KafkaGroupError, RetriableError
from kafka_source.group.classic.member import Member, RebalanceTimeout
from kafka_source.group.classic.member_state import State
from kafka_source.group.classic.slot import Slot
from kafka_source.group.membership import warn_of_overdue
from kafka_source.group.model import BatchInFlight, GroupAssignment, GroupSettings
from kafka_source.group.rebalance_log import Reason
from kafka_source.group.requests import REBALANCING, GroupDescription, describe, fetch_committed, if_allowed
from kafka_source.group.siblings import Siblings
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import RebalanceCause

log = logging.getLogger(__name__)

# The longest pause, in seconds, after a heartbeat that was not answered.
_HEARTBEAT_RETRY_SECONDS = 0.5


class Heartbeats:
    """Sends the heartbeats of all slots, on the event loop of the membership.

    Args:
        settings: The group id, the interval and the timeouts.
        slots: The slots, whose members record the responses.
    """

    def __init__(self, settings: GroupSettings, slots: Sequence[Slot]) -> None:
        self._settings = settings
        self._slots = slots
        self._heard_at = time.monotonic()
        self._rebalancing_since: float | None = None

    @property
    def session_may_have_ended(self) -> bool:
        """Whether the last answered heartbeats were sent longer ago than the session timeout."""
        return (time.monotonic() - self._heard_at) * 1000 > self._settings.session_timeout_ms

    def note_joined(self) -> None:
        """Record that the slots are members from now on."""
        self._heard_at = time.monotonic()

    def note_rejoin(self) -> None:
        """Note that the slots rejoin, so no rebalance waits for them any longer."""
        self._rebalancing_since = None

    async def send(self, deadline: Deadline) -> bool:
        """Send a heartbeat for every slot; return whether all were answered."""
        members = [slot.member for slot in self._slots if slot.member.status.is_member]
        # The coordinator's session begins when it handles the request, not when the answer arrives.
        sent_at = time.monotonic()
        answered = all(await asyncio.gather(*(self._send_one(member, deadline) for member in members)))
        if answered:
            self._heard_at = sent_at
        return answered

    async def beat(self, then: Callable[[], Awaitable[None]]) -> None:
        """Send one heartbeat for every slot, await `then`, and wait until the next heartbeats are due."""
        interval = self._settings.heartbeat_interval_ms / 1000
        answered = await self.send(Deadline(interval))
        if self.session_may_have_ended:
            log.warning(
                "heartbeat group=%s unanswered_s=%.0f: the session may have ended",
                self._settings.group,
                time.monotonic() - self._heard_at,
            )
        self._warn_of_long_batch(time.monotonic())
        await then()
        await asyncio.sleep(interval if answered else min(interval, _HEARTBEAT_RETRY_SECONDS))

    async def _send_one(self, member: Member, deadline: Deadline) -> bool:
        before = member.status.state
        try:
            result = await member.heartbeat(deadline)
        except RetriableError as error:
            log.info("heartbeat group=%s member=%s failed: %s", self._settings.group, member, error)
            return False
        after = result.status.state
        if after is not before and after in (State.REBALANCING, State.LOST, State.FENCED, State.FAILED):
            level = logging.INFO if after is State.REBALANCING else logging.WARNING
            log.log(level, "heartbeat group=%s member=%s now=%r", self._settings.group, member, after.value)
        return not result.back_off

    def _warn_of_long_batch(self, now: float) -> None:
        if not any(slot.member.status.state is State.REBALANCING for slot in self._slots):
            self._rebalancing_since = None
            return
        if self._rebalancing_since is None:
            self._rebalancing_since = now
        limit = self._settings.rebalance_timeout_ms / 1000
        waited = now - self._rebalancing_since
        if waited > limit / 2:
            log.warning(
                "rebalance group=%s has waited %.0f s for this query's micro-batch; after %.0f s the group continues "
                "without the query's slots. Make micro-batches shorter, or raise kafka.max.poll.interval.ms.",
                self._settings.group,
                waited,
                limit,
            )


_FOR_SIBLING = Reason(RebalanceCause.SIBLING, "another read of this driver waits for it")
_AFTER_LOSS = Reason(RebalanceCause.LOST, "the group has removed slots in the middle of a batch")
_REQUEST_SECONDS = 30.0
# Seconds between two checks whether the slots have to rejoin, while a sibling waits in a join.
_POLL_SECONDS = 0.1
# Seconds that a rejoin may take beyond the rebalance timeout before it is tried again.
_REJOIN_MARGIN_SECONDS = 30.0


class BackgroundRejoiner:
    """Rejoins and leaves on the membership's event loop. The slots never leave before the end of Spark's first call.

    Args:
        client: The cluster's client.
        settings: The group's settings.
        slots: The slots of the query.
        ask: Sends a heartbeat for each slot.
        enter: Rejoins with all slots; its arguments are the reason and the deadline.
        leave: Removes all slots from the group; its argument is the reason.

    Attributes:
        in_flight: The micro-batch whose partitions the slots claim when they rejoin for a sibling.
        rejoin_failed: Why the last rejoin for a sibling has failed; None: no failure.
        left: The reason why the slots have left; None: the slots have not left, or have rejoined.
        lost_batch: The last batch that was published as lost; None: there is none.
    """

    def __init__(
        self,
        client: KafkaClient,
        settings: GroupSettings,
        slots: Sequence[Slot],
        *,
        ask: Callable[[], Awaitable[object]],
        enter: Callable[[Reason, Deadline], Awaitable[GroupAssignment]],
        leave: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self.in_flight = BatchInFlight()
        self.rejoin_failed: str | None = None
        self.left: str | None = None
        self._client, self._settings, self._slots = client, settings, slots
        self._ask, self._enter, self._leave = ask, enter, leave
        self._calls = 0
        self._called_at: float | None = None
        self._busy: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self.lost_batch: BatchInFlight | None = None

    # ---- Spark's calls

    async def begin_call(self) -> None:
        """Wait for a rejoin or a leave that is under way; no other rejoin or leave begins until `end_call`."""
        self._calls += 1
        try:
            while self._busy is not None and not self._busy.done():
                await asyncio.wait((self._busy,))
        except BaseException:
            self.end_call()
            raise

    def end_call(self) -> None:
        """Note the end of a call."""
        self._calls -= 1
        self._called_at = time.monotonic()

    async def _run_alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Let Spark's next call wait for this work."""
        self._busy = asyncio.ensure_future(work)
        try:
            await self._busy
        finally:
            self._busy = None

    # ---- siblings

    async def rejoin_for(self, siblings: Siblings) -> None:
        """Wait until a sibling waits in a join, and rejoin if the group waits for these slots."""
        await siblings.wait_for_join()
        if not self._calls and not self._is_rebalancing:
            # The sibling has just sent JoinGroup. Do not wait for the next regular heartbeat.
            await self._ask()
        if self._is_rebalancing and await self._may_rejoin() and not self._calls:
            await self._run_alone(self._rejoin_and_publish(_FOR_SIBLING))
        await asyncio.sleep(_POLL_SECONDS)

    @property
    def _is_rebalancing(self) -> bool:
        return any(slot.member.status.state is State.REBALANCING for slot in self._slots)

    async def _may_rejoin(self) -> bool:
        """Return False if another process commits the batch in flight with credentials that a rejoin makes invalid."""
        batch = self.in_flight
        if batch.right is None or not batch.right.waits or not batch.ends:
            return True
        committed = await fetch_committed(
            self._client, self._settings.group, batch.ends, Deadline(_REQUEST_SECONDS), stable=False
        )
        finished = all((committed[tp] or 0) >= end for tp, end in batch.ends.items())
        if finished and self.in_flight is batch:
            self.in_flight = BatchInFlight()
        return finished

    async def _rejoin_and_publish(self, reason: Reason) -> None:
        """Rejoin, and publish the new credentials if the tasks or the sink of the batch need them."""
        batch, assignment = self.in_flight, await self._rejoin(reason)
        owners: dict[TopicPartition, SlotCredentials] = {}
        for slot in () if assignment is None else assignment.slots:
            owners |= dict.fromkeys((*slot.partitions, *slot.held), slot.credentials)
        await self._publish(batch, owners)

    async def _publish(self, batch: BatchInFlight, owners: Mapping[TopicPartition, SlotCredentials]) -> None:
        """Publish the slots that own the partitions of the batch; if no slot owns any of them, the batch is lost."""
        if batch.renewed is None:
            return
        self.lost_batch = None if owners else batch
        group, deadline = self._settings.group, Deadline(_REQUEST_SECONDS)
        try:
            await batch.renewed.publish(self._client, group, batch.ends, owners, deadline)
        except KafkaGroupError as error:
            log.warning("group=%s: the batch gets no new credentials: %s", group, error)

    async def _rejoin(self, reason: Reason) -> GroupAssignment | None:
        """Rejoin, however long the other members take; return None if the rejoin fails."""
        log.info("rejoin group=%s reason=%r", self._settings.group, reason.text)
        while True:
            try:
                seconds = self._settings.rebalance_timeout_ms / 1000 + _REJOIN_MARGIN_SECONDS
                return await self._enter(reason, Deadline(seconds))
            except RebalanceTimeout as error:
                log.warning("%s The query keeps waiting.", error)
            except Exception as error:
                # Spark's next call rejoins, and raises the error if it persists; a keeper leaves the group. Until this
                # call, the slots send no heartbeats, and the group waits for slots that join or lead.
                self.rejoin_failed = f"a rejoin between two calls of Spark's failed: {error}"
                log.warning("group=%s: %s", self._settings.group, self.rejoin_failed)
                return None

    # ---- slots that were lost

    async def heartbeats_sent(self) -> None:
        """Rejoin or leave if the answers to the slots' heartbeats require it."""
        if any(slot.member.status.state in (State.LOST, State.FENCED) for slot in self._slots):
            self._lost.set()
        await self.leave_if_overdue()

    async def rejoin_lost(self) -> None:
        """Wait until slots are lost in a micro-batch that tasks or the sink commit; then rejoin for new credentials."""
        await self._lost.wait()
        self._lost.clear()
        batch = self.in_flight
        if not self._calls and batch.renewed is not None and batch is not self.lost_batch:
            await self.renew_credentials()

    async def renew_credentials(self) -> None:
        """Rejoin and publish new credentials for the batch in flight, unless other members own partitions of it."""
        await self._run_alone(self._rejoin_unless_owned(self.in_flight))

    async def _rejoin_unless_owned(self, batch: BatchInFlight) -> None:
        if any(slot.member.status.state is State.FENCED for slot in self._slots):
            log.warning("group=%s: another process has a slot of the batch", self._settings.group)
            await self._publish(batch, {})
        elif await self._owned_by_others(batch.ends, Deadline(self._settings.rebalance_timeout_ms / 1000)):
            log.warning("group=%s: other members have partitions of the lost batch", self._settings.group)
            await self._publish(batch, {})
        else:
            await self._rejoin_and_publish(_AFTER_LOSS)

    async def _owned_by_others(self, partitions: Collection[TopicPartition], deadline: Deadline) -> bool:
        """Wait for the end of a rebalance, and return whether other members own some of the partitions."""
        ours = {slot.member.status.member_id for slot in self._slots}
        while True:
            described = await self._describe(deadline)
            if described is None:
                return True
            if described.state not in REBALANCING or deadline.over:
                break
            await asyncio.sleep(_POLL_SECONDS)
        others = [d for d in described.members if d.member.member_id not in ours]
        return any(not d.assigned.isdisjoint(partitions) for d in others)

    # ---- progress

    async def leave_if_overdue(self) -> None:
        """Leave if Spark has not called for longer than `max.poll.interval.ms` and the group rebalances.

        A query that is alone in its group stays, because no other member waits for partitions, and the pauses between
        its triggers may be longer than this limit. A batch's keeper, which Spark never calls, has its own limit.
        """
        if self._called_at is None or self._calls or self._busy is not None:
            return
        silent = time.monotonic() - self._called_at
        if silent <= self._settings.rebalance_timeout_ms / 1000:
            return
        if not any(slot.member.status.is_member for slot in self._slots):
            return
        if not self._is_rebalancing and not (self.in_flight.ends and await self._has_other_members()):
            return
        if self._calls:
            return  # Spark has called since.
        self.left = warn_of_overdue(self._settings, len(self._slots), silent)
        await self._run_alone(self._leave("max.poll.interval.ms has expired"))
        await self._publish(self.in_flight, {})

    async def _has_other_members(self) -> bool:
        described = await self._describe(Deadline(_REQUEST_SECONDS))
        ours = {slot.member.status.member_id for slot in self._slots}
        return described is not None and any(d.member.member_id not in ours for d in described.members)

    async def _describe(self, deadline: Deadline) -> GroupDescription | None:
        group = self._settings.group
        return await if_allowed(describe(self._client, group, deadline), group)
