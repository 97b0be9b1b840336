"""Watches, in the leader, whether the assignment still balances the group's work, and asks for a rebalance if not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assignors import Assignment, Assignor, Measures, TopicPartition
from kafka_source.group.leader import Led, partitions_of
from kafka_source.group.slot import Slot
from kafka_source.group.work import EndOffsets, WorkLookup
from kafka_source.kafka_client import KafkaClient

log = logging.getLogger(__name__)

LOOKS = 5
"""How often the leader looks at the balance in the interval between two rebalances that it may ask for."""

_IN_A_ROW = 2
_MOST_PATIENCE = 16
# Seconds between two looks whether this query leads a group whose strategy weighs work.
_IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Decides when the leader asks for a rebalance because the balance has drifted. Pure.

    It asks if that was worth it in two looks in a row, and the last rebalance is at least the interval ago. If a
    rebalance that it asked for has moved nothing, the interval doubles, up to 16 times, until one moves something.

    Attributes:
        interval: The least number of seconds after a rebalance.
        since: When the last rebalance was, in seconds.
        asked: Whether the next rebalance is one that it asked for.
        seen: In how many looks in a row a rebalance was worth it.
        factor: By what the interval is multiplied.
    """

    interval: float
    since: float
    asked: bool = False
    seen: int = 0
    factor: int = 1

    def rebalanced(self, at: float, *, moved: bool) -> Patience:
        """Return the state after a rebalance of the group.

        Args:
            at: The time in seconds.
            moved: Whether a partition has a new owner.
        """
        factor = min(self.factor * 2, _MOST_PATIENCE) if self.asked and not moved else 1
        return Patience(self.interval, at, factor=factor)

    def looked(self, at: float, *, worth: bool) -> Patience:
        """Return the state after a look; `asked` becomes true if it is time to ask."""
        seen = self.seen + 1 if worth else 0
        due = at - self.since >= self.interval * self.factor
        return replace(self, seen=seen, asked=self.asked or (due and seen >= _IN_A_ROW))


@dataclass(frozen=True, slots=True)
class _Assigned:
    """What this query has assigned as the leader, with which strategy, and in which generation."""

    led: Led
    strategy: Assignor
    generation: int


class BalanceWatch:
    """The work of the group, as far as its leader has to know it. Its methods run on the membership's event loop.

    Args:
        client: The cluster's client.
        group: The group id.
        slots: The slots of the query.
        end_offsets: Looks up the ends of partitions; None: lags are unknown, and there is nothing to watch.

    Attributes:
        lookup: Looks up lags and rates; None: they are unknown.
        reason: Why the group should rebalance; None: it should not.
    """

    def __init__(self, client: KafkaClient, group: str, slots: Sequence[Slot], end_offsets: EndOffsets | None) -> None:
        self.lookup = None if end_offsets is None else WorkLookup(client, group, end_offsets)
        self.reason: str | None = None
        self._group, self._slots = group, slots
        self._assigned: _Assigned | None = None
        self._patience: Patience | None = None

    def measured(self, speed: float | None, rates: Mapping[TopicPartition, float]) -> None:
        """Note what the query has measured, for the leader of the next rebalance.

        Args:
            speed: The records per second that the query reads with all slots while it is behind; None: unknown.
            rates: The records per second that are written to its partitions.
        """
        of_slot = Measures(None if speed is None else speed / len(self._slots), rates)
        for slot in self._slots:
            slot.measured(of_slot)

    def led(self, strategy: Assignor, led: Led, generation: int) -> None:
        """Note what was assigned, to judge it later."""
        before, self._assigned = self._assigned, None
        interval = strategy.rebalance_interval()
        if interval is None or led.failed is not None:
            return
        moved = before is None or _owners(before.led.plan) != _owners(led.plan)
        patience = self._patience or Patience(interval, time.monotonic())
        self._patience = patience.rebalanced(time.monotonic(), moved=moved)
        self._assigned = _Assigned(led, strategy, generation)

    async def look(self) -> None:
        """Wait until it is time for a look, and look, if this query leads the group; then `reason` may be set."""
        assigned, patience = self._assigned, self._patience
        if assigned is None or patience is None or self.lookup is None or not self._leads(assigned):
            await asyncio.sleep(_IDLE_SECONDS)
            return
        await asyncio.sleep(patience.interval / LOOKS)
        if self._assigned is not assigned or not self._leads(assigned):
            return
        led = assigned.led
        cluster = led.snapshot.for_assignor(led.topics)
        cluster = replace(cluster, work=await self.lookup.look(partitions_of(cluster)))
        # In a thread, as the assignment itself: the event loop has to send heartbeats.
        reason = await asyncio.get_running_loop().run_in_executor(
            None, assigned.strategy.should_rebalance, cluster, led.group, led.plan
        )
        if self._assigned is not assigned:
            return
        self._patience = patience.looked(time.monotonic(), worth=reason is not None)
        if reason is not None and self._patience.asked and self.reason is None:
            self.reason = reason
            log.info("balance group=%s generation=%d: %s", self._group, assigned.generation, reason)

    def _leads(self, assigned: _Assigned) -> bool:
        return any(slot.leading and slot.generation == assigned.generation for slot in self._slots)


def _owners(plan: Mapping[str, Assignment]) -> dict[TopicPartition, str]:
    return {tp: member for member, assignment in plan.items() for tp in assignment.partitions}
