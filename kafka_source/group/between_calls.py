"""What the slots of a stream do while Spark does not call it: rejoin, and leave when they are overdue.

Slots rejoin in Spark's calls, between micro-batches. There are three exceptions. A read of the same driver and group
that waits in a join keeps Spark from calling this one, so the slots rejoin for it at once (see `siblings`). Slots that
the group has removed in the middle of a micro-batch rejoin at once if its tasks or its sink need new credentials for
their commits (see `renewal`). And if Spark has not called for `max.poll.interval.ms`, the slots leave, so that others
can have their partitions (KIP-62).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from assignors.model import TopicPartition
from kafka_source.errors import KafkaGroupError
from kafka_source.group.committed_offsets import fetch_committed
from kafka_source.group.description import REBALANCING, describe_either
from kafka_source.group.member import RebalanceTimeout
from kafka_source.group.member_state import State
from kafka_source.group.model import BatchUnderWay, GroupAssignment, GroupSettings
from kafka_source.group.rebalance_log import Reason
from kafka_source.group.renewal import publish_owners
from kafka_source.group.siblings import Siblings
from kafka_source.group.slot import Slot
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.driver_figures import RebalanceCause

log = logging.getLogger(__name__)

_FOR_SIBLING = Reason(RebalanceCause.SIBLING, "another read of this driver waits for it")
_AFTER_LOSS = Reason(RebalanceCause.LOST, "the group has removed slots in the middle of a batch")
_REQUEST_SECONDS = 30.0
# Seconds between two looks whether the slots have to rejoin, while a sibling waits in a join.
_POLL_SECONDS = 0.1
# Seconds that a rejoin may take beyond the rebalance timeout, until it is tried again.
_MARGIN_SECONDS = 30.0


class BetweenCalls:
    """It runs on the membership's event loop. Before the first call (`begin_call`) has ended, the slots never leave.

    Args:
        client: The cluster's client.
        settings: The group's.
        slots: The slots of the query.
        ask: Sends a heartbeat for each slot.
        enter: Rejoins with all slots, for a reason, within a deadline.
        leave: Leaves with all slots, for a reason.

    Attributes:
        under_way: The micro-batch whose partitions the slots claim when they rejoin for a sibling.
        rejoin_failed: Why a rejoin for a sibling has failed; None: it has not, or the slots have rejoined since then.
        left: Why the slots have left; None: they have not, or have rejoined since then.
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
        self.under_way = BatchUnderWay()
        self.rejoin_failed: str | None = None
        self.left: str | None = None
        self._client, self._settings, self._slots = client, settings, slots
        self._ask, self._enter, self._leave = ask, enter, leave
        self._calls = 0
        self._called_at: float | None = None
        self._busy: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self.lost_batch: BatchUnderWay | None = None

    # ---- Spark's calls

    async def begin_call(self) -> None:
        """Wait for a rejoin or a leave that is under way; no other one begins until `end_call`."""
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

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Let Spark's next call wait for this work."""
        self._busy = asyncio.ensure_future(work)
        try:
            await self._busy
        finally:
            self._busy = None

    # ---- siblings

    async def rejoin_for(self, siblings: Siblings) -> None:
        """Wait for a sibling that waits in a join, and rejoin if the group waits for these slots."""
        await siblings.asked()
        if not self._calls and not self._is_rebalancing:
            # The sibling has just sent JoinGroup. Do not wait for the next regular heartbeat.
            await self._ask()
        if self._is_rebalancing and await self._may_rejoin() and not self._calls:
            await self._alone(self._rejoin_and_publish(_FOR_SIBLING))
        await asyncio.sleep(_POLL_SECONDS)

    @property
    def _is_rebalancing(self) -> bool:
        return any(slot.member.membership.state is State.REBALANCING for slot in self._slots)

    async def _may_rejoin(self) -> bool:
        """Return whether nobody commits the micro-batch under way with credentials that a rejoin makes invalid."""
        batch = self.under_way
        if not batch.committed_elsewhere or not batch.ends:
            return True
        committed = await fetch_committed(
            self._client, self._settings.group, batch.ends, Deadline(_REQUEST_SECONDS), stable=False
        )
        finished = all((committed[tp] or 0) >= end for tp, end in batch.ends.items())
        if finished and self.under_way is batch:
            self.under_way = BatchUnderWay()
        return finished

    async def _rejoin_and_publish(self, reason: Reason) -> None:
        """Rejoin, and publish the new credentials to the tasks or the sink of the batch, if they need some."""
        batch, assignment = self.under_way, await self._rejoin(reason)
        owners: dict[TopicPartition, SlotCredentials] = {}
        for slot in () if assignment is None else assignment.slots:
            owners |= dict.fromkeys((*slot.partitions, *slot.held), slot.credentials)
        await self._publish(batch, owners)

    async def _publish(self, batch: BatchUnderWay, owners: Mapping[TopicPartition, SlotCredentials]) -> None:
        """Publish who owns the partitions of the batch; nobody: it is lost."""
        if batch.publisher is None or not batch.ends:
            return
        self.lost_batch = None if owners else batch
        group, deadline = self._settings.group, Deadline(_REQUEST_SECONDS)
        try:
            await publish_owners(self._client, group, batch.publisher, batch.ends, owners, deadline)
        except KafkaGroupError as error:
            log.warning("group=%s: the batch gets no new credentials: %s", group, error)

    async def _rejoin(self, reason: Reason) -> GroupAssignment | None:
        """Rejoin, however long the other members take; return None if that fails."""
        log.info("rejoin group=%s reason=%r", self._settings.group, reason.text)
        while True:
            try:
                return await self._enter(reason, Deadline(self._settings.rebalance_timeout_ms / 1000 + _MARGIN_SECONDS))
            except RebalanceTimeout as error:
                log.warning("%s The query keeps waiting.", error)
            except Exception as error:
                # Spark's next call rejoins, and raises the error if it remains; a keeper leaves. Until then the group
                # waits for slots that join or lead, and nobody sends heartbeats for them.
                self.rejoin_failed = f"a rejoin between two calls of Spark's failed: {error}"
                log.warning("group=%s: %s", self._settings.group, self.rejoin_failed)
                return None

    # ---- slots that were lost

    async def heartbeats_sent(self) -> None:
        """Look at the answers to the slots' heartbeats: rejoin or leave if that is due."""
        if any(slot.member.membership.state in (State.LOST, State.FENCED) for slot in self._slots):
            self._lost.set()
        await self.leave_if_overdue()

    async def rejoin_lost(self) -> None:
        """Wait until slots are lost in a micro-batch that tasks or the sink commit, and rejoin to renew credentials."""
        await self._lost.wait()
        self._lost.clear()
        batch = self.under_way
        if not self._calls and batch.ends and batch.publisher is not None and batch is not self.lost_batch:
            await self._alone(self._rejoin_if_nobody_has(batch))

    async def _rejoin_if_nobody_has(self, batch: BatchUnderWay) -> None:
        if any(slot.member.membership.state is State.FENCED for slot in self._slots):
            log.warning("group=%s: another process has a slot of the batch", self._settings.group)
            await self._publish(batch, {})
        elif await self._owned_by_others(batch.ends, Deadline(self._settings.rebalance_timeout_ms / 1000)):
            log.warning("group=%s: other members have partitions of the lost batch", self._settings.group)
            await self._publish(batch, {})
        else:
            await self._rejoin_and_publish(_AFTER_LOSS)

    async def _owned_by_others(self, partitions: Collection[TopicPartition], deadline: Deadline) -> bool:
        """Return whether other members have been assigned some of the partitions; wait for a rebalance of theirs."""
        ours = {slot.member.membership.member_id for slot in self._slots}
        while True:
            described = await describe_either(self._client, self._settings.group, deadline)
            if described.state not in REBALANCING or deadline.over:
                break
            await asyncio.sleep(_POLL_SECONDS)
        others = [d for d in described.members if d.member.member_id not in ours]
        return any(not d.assigned.isdisjoint(partitions) for d in others)

    # ---- progress

    async def leave_if_overdue(self) -> None:
        """Leave if Spark has not called for longer than `max.poll.interval.ms` and other members want the partitions.

        A query that is alone in its group stays: nobody gets anything by a rebalance, and its triggers may be further
        apart.
        """
        if self._called_at is None or self._calls or self._busy is not None:
            return
        silent = time.monotonic() - self._called_at
        if silent * 1000 <= self._settings.rebalance_timeout_ms:
            return
        if not any(slot.member.membership.is_member for slot in self._slots):
            return
        if not self._is_rebalancing and not (self.under_way.ends and await self._has_other_members()):
            return
        if self._calls:
            return  # Spark has called meanwhile.
        log.warning(
            "leave group=%s slots=%d: Spark has not asked for a micro-batch, or no task of a batch has committed, for "
            "%.0f s, longer than kafka.max.poll.interval.ms=%d. Other members get the partitions. Nothing of the batch "
            "in flight is committed; a stream rejoins when Spark asks again. If batches or the pauses between triggers "
            "may take this long, raise kafka.max.poll.interval.ms.",
            self._settings.group,
            len(self._slots),
            silent,
            self._settings.rebalance_timeout_ms,
        )
        self.left = f"they left after {silent:.0f} s without a call of Spark's or a commit (kafka.max.poll.interval.ms)"
        await self._alone(self._leave("max.poll.interval.ms has expired"))
        await self._publish(self.under_way, {})

    async def _has_other_members(self) -> bool:
        described = await describe_either(self._client, self._settings.group, Deadline(_REQUEST_SECONDS))
        ours = {slot.member.membership.member_id for slot in self._slots}
        return any(d.member.member_id not in ours for d in described.members)
