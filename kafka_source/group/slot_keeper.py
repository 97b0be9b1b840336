"""The heartbeats of slots that wait for their tasks, sent by a process beside the Spark driver.

The slots of a batch that commits (`commit=task`) belong to its tasks. Nobody else can send their heartbeats until Spark
starts the tasks, which may be hours after the first ones: the planner's process may end at any time, and a task that
has read its ranges does not know of the others. Without heartbeats the group removes a slot after its session, and the
task that comes later cannot commit any more, while earlier tasks have committed.

The process keeps a slot until its task takes it over or leaves with it. If another read of the driver waits in a join,
such as the other side of a union, the slots rejoin for it and claim their partitions (see `siblings`). The process ends
when no slot is left, and with the Spark driver; then it leaves with the slots that nobody needs any more.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import cast

from assignors import Assignor, decode_assignment
from kafka_source.client_config import Settings
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group.claims import without_held
from kafka_source.group.member import Joined, Member, RebalanceTimeout
from kafka_source.group.member_state import State
from kafka_source.group.model import GroupSettings
from kafka_source.group.siblings import Siblings
from kafka_source.group.slot_session import claiming, lead_for_tasks, member_of
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials
from kafka_source.runtime import logs, spark_processes
from kafka_source.runtime.spark_processes import is_alive

log = logging.getLogger(__name__)

_LEAVE_SECONDS = 5.0
# Seconds between two looks whether the slots have to rejoin, while a sibling waits in a join.
_POLL_SECONDS = 0.1
# Seconds that a rejoin may take beyond the rebalance timeout, until it is tried again.
_MARGIN_SECONDS = 30.0
_KEPT = (State.STABLE, State.REBALANCING, State.JOINING, State.AWAITING_SYNC)


def keep_waiting_slots(
    config: Settings,
    settings: GroupSettings,
    slots: Sequence[SlotCredentials],
    assignors: Sequence[Assignor],
    servers: str,
    driver: int,
) -> None:
    """Start the process that keeps these slots in their group until their tasks act as them.

    Args:
        config: Kafka client settings.
        settings: Those with which the slots have joined.
        slots: The credentials that the tasks have.
        assignors: The query's strategies.
        servers: `bootstrap.servers`, by which reads of one group find each other.
        driver: The id of the Spark driver's process.
    """
    if not slots:
        return
    try:
        spark_processes.start_side_process(
            __name__, [str(driver)], (config, settings, list(slots), list(assignors), servers)
        )
    except OSError as error:
        log.warning(
            "group=%s: nobody sends heartbeats for slots that wait for their tasks, so each of them has to start "
            "within kafka.session.timeout.ms=%d: %s",
            settings.group,
            settings.session_timeout_ms,
            error,
        )


@dataclass(slots=True)
class _Waiting:
    """A slot that waits for its task; `credentials` are those of the generation in which it last joined."""

    credentials: SlotCredentials
    member: Member


class SlotKeeper:
    """Keeps the slots of one batch in their group. It runs on the client's event loop.

    Args:
        client: The cluster's client.
        settings: Those with which the slots have joined.
        slots: The slots' credentials.
        assignors: The query's strategies; one of them assigns if a slot leads a generation.
        driver_runs: Whether the Spark driver still runs.
        siblings: Where to meet the other reads of this driver and group; None: nowhere.
    """

    def __init__(
        self,
        client: KafkaClient,
        settings: GroupSettings,
        slots: Sequence[SlotCredentials],
        assignors: Sequence[Assignor],
        driver_runs: Callable[[], bool],
        siblings: Siblings | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._assignors = assignors
        self._driver_runs = driver_runs
        self._siblings = siblings
        self._interval = settings.heartbeat_interval_ms / 1000
        self._waiting = [_Waiting(slot, member_of(client, slot, settings)) for slot in slots]

    async def run(self) -> None:
        """Send heartbeats until no slot waits, or for `max.poll.interval.ms` after the last task began or ended."""
        rejoining = asyncio.ensure_future(self._rejoin_for_siblings())
        try:
            await self._keep()
        finally:
            rejoining.cancel()
            await asyncio.gather(rejoining, return_exceptions=True)

    async def _keep(self) -> None:
        progress = time.monotonic()
        while self._waiting:
            before = len(self._waiting)
            await self._send_heartbeats()
            if len(self._waiting) < before:
                progress = time.monotonic()
            if not self._driver_runs():
                await self._leave("the Spark driver has ended")
                return
            if (time.monotonic() - progress) * 1000 > self._settings.rebalance_timeout_ms:
                log.warning(
                    "group=%s slots=%d: no task has begun or ended for longer than kafka.max.poll.interval.ms=%d, so "
                    "nobody sends heartbeats for the slots that wait. Tasks that begin after "
                    "kafka.session.timeout.ms=%d cannot commit any more.",
                    self._settings.group,
                    len(self._waiting),
                    self._settings.rebalance_timeout_ms,
                    self._settings.session_timeout_ms,
                )
                return
            await asyncio.sleep(self._interval)

    async def _send_heartbeats(self) -> None:
        async def beat(member: Member) -> None:
            try:
                await member.heartbeat(Deadline(self._interval))
            except KafkaGroupError as error:
                log.info("heartbeat group=%s failed: %s", self._settings.group, error)

        await asyncio.gather(*(beat(one.member) for one in self._waiting if one.member.membership.is_member))
        # A task that takes its slot over gets another member id, and one that has ended leaves with the slot.
        self._waiting = [one for one in self._waiting if one.member.membership.state in _KEPT]

    async def _leave(self, reason: str) -> None:
        deadline = Deadline(_LEAVE_SECONDS)
        await asyncio.gather(*(one.member.leave(deadline, reason) for one in self._waiting))

    # ---- siblings

    async def _rejoin_for_siblings(self) -> None:
        if self._siblings is None:
            return
        joins: set[asyncio.Task[None]] = set()
        try:
            await self._siblings.open()
            while True:
                await self._siblings.asked()
                await self._send_heartbeats()
                for one in self._waiting:
                    if one.member.membership.state is State.REBALANCING:
                        # Not one after another: the group holds each JoinGroup until all slots have sent theirs.
                        task = asyncio.ensure_future(self._rejoin(one))
                        joins.add(task)
                        task.add_done_callback(joins.discard)
                await asyncio.sleep(_POLL_SECONDS)
        except OSError as error:
            log.warning("group=%s: other reads of this driver cannot find this one: %s", self._settings.group, error)
        finally:
            for task in joins:
                task.cancel()
            self._siblings.close()

    async def _rejoin(self, slot: _Waiting) -> None:
        """Rejoin with a slot, and leave if it does not keep its partitions: its task could not tell."""
        deadline = Deadline(self._settings.rebalance_timeout_ms / 1000 + _MARGIN_SECONDS)

        async def lead(joined: Joined) -> Mapping[str, bytes]:
            return await lead_for_tasks(self._client, self._settings.group, self._assignors, joined, deadline)

        try:
            reason = "another read of this driver waits for it"
            state = await slot.member.join(claiming(slot.credentials), lead, deadline, reason)
            assignment, held = without_held(decode_assignment(state))
        except RebalanceTimeout as error:
            log.warning("%s The slot keeps waiting.", error)
            await self._rejoin(slot)
            return
        except FencedError as error:
            log.info("rejoin group=%s slot=%d: its task has it: %s", self._settings.group, slot.credentials.slot, error)
            return
        except Exception as error:
            # The group waits for a slot that joins or leads, and nobody sends heartbeats for it then.
            log.warning("rejoin group=%s slot=%d failed: %s", self._settings.group, slot.credentials.slot, error)
            await slot.member.leave(Deadline(_LEAVE_SECONDS), "its rejoin has failed")
            return
        slot.credentials = replace(slot.credentials, generation=slot.member.membership.generation)
        if not set(slot.credentials.partitions) <= {*assignment.partitions, *held}:
            log.warning(
                "group=%s slot=%d: the group's leader has given partitions of a batch that waits for its tasks to "
                "other members. The task of this slot cannot commit.",
                self._settings.group,
                slot.credentials.slot,
            )
            await slot.member.leave(Deadline(_LEAVE_SECONDS), "its partitions were given to others")


def main(driver: str) -> None:
    """Keep the slots of the message from `keep_waiting_slots`."""
    logs.set_up_logging()
    config, settings, slots, assignors, servers = cast(
        "tuple[Settings, GroupSettings, list[SlotCredentials], list[Assignor], str]",
        spark_processes.side_process_message(),
    )
    siblings = Siblings.find(settings.group, servers, int(driver))
    with closing(KafkaClient(config, client_id=settings.client_id)) as client:
        client.run(SlotKeeper(client, settings, slots, assignors, lambda: is_alive(int(driver)), siblings).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
