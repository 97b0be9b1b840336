"""A member of a group of any kind: leader election, worker pools, whatever shares work out among processes.

The group protocol is not about topics: each member says something (metadata), one is elected to lead and answers to
each (state). Here both are bytes of the application's own, under a protocol type of its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError, RetriableError
from kafka_source.group.member import Joined, Member, MemberSettings
from kafka_source.group.member_state import State
from kafka_source.kafka_client import Deadline, KafkaClient

log = logging.getLogger(__name__)

_MARGIN = 30.0
_LEAVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member has to go by in one generation.

    Attributes:
        generation: The group's; it only grows, so it can fence what an earlier holder still does.
        member_id: This member's.
        leading: Whether this member leads.
        state: What the leader said to this member.
    """

    generation: int
    member_id: str
    leading: bool
    state: bytes


Lead = Callable[[str, Mapping[str, bytes]], Mapping[str, bytes]]
"""The leader's work: the protocol's name and every member's metadata in, every member's state out, by member id."""


class GenericMember:
    """Joins when the block is entered, keeps the membership alive, rejoins by itself, and leaves at the block's end.

    Args:
        config: Settings of the Kafka clients.
        settings: Group, protocol type, instance id and times.
        protocols: The protocols it knows, best first, and what it says about itself in each.
        lead: Called in a thread if this member leads. What it raises is logged, and every member gets no state.
        heartbeat_interval_ms: Time between heartbeats.
    """

    def __init__(
        self,
        config: Settings,
        settings: MemberSettings,
        protocols: Mapping[str, bytes],
        lead: Lead,
        heartbeat_interval_ms: int = 3_000,
    ) -> None:
        self._settings = settings
        self._protocols = tuple(protocols.items())
        self._lead_by = lead
        self._interval = heartbeat_interval_ms / 1000
        self._client = KafkaClient(config, client_id=f"kafkagroup-{settings.protocol_type}")
        self._member = Member(self._client, settings)
        self._changed = threading.Condition()
        self._state: MemberState | None = None
        self._heard_at = 0.0
        self._failure: KafkaGroupError | None = None
        self._life: Future[None] | None = None

    def __enter__(self) -> GenericMember:
        self._life = self._client.loop.spawn(self._live())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def state(self) -> MemberState | None:
        """What holds now; None while the group rebalances, and when its coordinator has been silent for so long that
        others may have been given our part.
        """
        with self._changed:
            silent = time.monotonic() - self._heard_at
            return self._state if silent * 1000 < self._settings.session_timeout_ms else None

    def wait(self, timeout_s: float, after: int = -1) -> MemberState | None:
        """The state of a generation later than `after`, once it is there; None if it does not come in time.

        Raises:
            FencedError: Another process has the instance id.
            InvalidConfigurationError: The group refuses us.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or (self._state is not None and self._state.generation > after), timeout_s
            )
            if self._failure is not None:
                raise self._failure
            return self._state if self._state is not None and self._state.generation > after else None

    def close(self) -> None:
        """Leaves the group; may be called twice."""
        self._set(None)
        if self._life is not None:
            self._life.cancel()
            self._life = None
            self._client.run(self._member.leave(Deadline(_LEAVE_SECONDS), "the member ends"), _LEAVE_SECONDS + 1)
        self._client.close()

    async def _live(self) -> None:
        failures, reason = 0, "the member starts"
        while True:
            try:
                await self._take_part(reason)
                failures, reason = 0, "the group rebalances"
            except RetriableError as error:
                log.warning("group=%s: %s", self._settings.group, error)
                await asyncio.sleep(self._client.settings.retry.pause(failures))
                failures += 1
            except KafkaGroupError as error:
                self._set(None, error)
                return

    async def _take_part(self, reason: str) -> None:
        """One generation, from the join until the group rebalances."""
        patience = Deadline(self._settings.rebalance_timeout_ms / 1000 + _MARGIN)
        state = await self._member.join(self._protocols, self._lead, patience, reason)
        joined = self._member.last_join
        self._set(MemberState(joined.generation, joined.member_id, joined.leading, state))
        log.info(
            "joined group=%s generation=%d member=%s leading=%s",
            self._settings.group,
            joined.generation,
            joined.member_id,
            joined.leading,
        )
        while self._member.membership.state is State.STABLE:
            await asyncio.sleep(self._interval)
            asked_at = time.monotonic()
            try:
                await self._member.heartbeat(Deadline(self._interval))
            except RetriableError as error:
                log.info("heartbeat group=%s: %s", self._settings.group, error)
                continue
            if self._member.membership.is_member:
                self._heard_at = asked_at
        self._set(None)

    async def _lead(self, joined: Joined) -> Mapping[str, bytes]:
        said = {member.member_id: member.metadata for member in joined.members}
        try:
            loop = asyncio.get_running_loop()
            answers = await loop.run_in_executor(None, self._lead_by, joined.protocol, said)
        except Exception:
            log.exception("lead group=%s generation=%d failed", self._settings.group, joined.generation)
            return {}
        return {member_id: answers.get(member_id, b"") for member_id in said}

    def _set(self, state: MemberState | None, failure: KafkaGroupError | None = None) -> None:
        with self._changed:
            self._state, self._heard_at = state, time.monotonic()
            self._failure = failure or self._failure
            self._changed.notify_all()
