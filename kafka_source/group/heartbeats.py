"""The heartbeats of a query's slots: what the coordinator answers, and what is said when it is silent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from kafka_source.errors import RetriableError
from kafka_source.group.member import Member
from kafka_source.group.member_state import State
from kafka_source.group.model import GroupSettings
from kafka_source.group.slot import Slot
from kafka_source.kafka_client import Deadline

log = logging.getLogger(__name__)

# The longest pause, in seconds, after a heartbeat that was not answered.
_RETRY_SECONDS = 0.5


class Heartbeats:
    """Sends the heartbeats of all slots; belongs to the event loop of the membership.

    Args:
        settings: The group id, the interval and the timeouts.
        slots: The slots, whose members keep what the answers say.
    """

    def __init__(self, settings: GroupSettings, slots: Sequence[Slot]) -> None:
        self._settings = settings
        self._slots = slots
        self._heard_at = time.monotonic()
        self._rebalancing_since: float | None = None

    @property
    def session_may_have_ended(self) -> bool:
        """Whether the coordinator has not answered for longer than the session timeout."""
        return (time.monotonic() - self._heard_at) * 1000 > self._settings.session_timeout_ms

    def joined(self) -> None:
        """Note that the slots are members from now on."""
        self._heard_at = time.monotonic()

    def rejoining(self) -> None:
        """Note that the slots rejoin: no rebalance waits for them any longer."""
        self._rebalancing_since = None

    async def send(self, deadline: Deadline) -> bool:
        """Send a heartbeat for every slot; return whether all were answered."""
        members = [slot.member for slot in self._slots if slot.member.membership.is_member]
        answered = all(await asyncio.gather(*(self._send_one(member, deadline) for member in members)))
        if answered:
            self._heard_at = time.monotonic()
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
        await asyncio.sleep(interval if answered else min(interval, _RETRY_SECONDS))

    async def _send_one(self, member: Member, deadline: Deadline) -> bool:
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
        if not any(slot.member.membership.state is State.REBALANCING for slot in self._slots):
            self._rebalancing_since = None
            return
        if self._rebalancing_since is None:
            self._rebalancing_since = now
        limit = self._settings.rebalance_timeout_ms / 1000
        waited = now - self._rebalancing_since
        if waited > limit / 2:
            log.warning(
                "rebalance group=%s has waited %.0f s for this query's micro-batch; after %.0f s the group continues "
                "without its slots. Make micro-batches shorter, or raise kafka.max.poll.interval.ms.",
                self._settings.group,
                waited,
                limit,
            )
