"""A member of a group of any kind: for leader election, worker pools, and other ways to distribute work.

Kafka's group protocol does not depend on topics: each member sends metadata, and one member is elected as the leader
and returns a state for each member. The application defines these bytes, under its own protocol type.
"""

import asyncio
import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from kafka_source.client_config import Settings
from kafka_source.errors import KafkaGroupError, RetriableError
from kafka_source.group.classic.member import Joined, Member, MemberSettings
from kafka_source.group.classic.member_state import State
from kafka_source.group.requests import describe
from kafka_source.kafka_client import Deadline, KafkaClient

log = logging.getLogger(__name__)

_JOIN_MARGIN_SECONDS = 30.0
_LEAVE_SECONDS = 5.0
_DESCRIBE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class MemberState:
    """The state of a member in one generation of its group.

    Attributes:
        generation: The group's generation, which only increases, so that it can serve as a fencing token.
        member_id: The id of this member.
        leading: Whether this member is the group's leader.
        state: The bytes that the leader returned for this member.
    """

    generation: int
    member_id: str
    leading: bool
    state: bytes


Lead = Callable[[str, Mapping[str, bytes]], Mapping[str, bytes]]
"""The leader's function: returns the state of each member id, given the protocol's name and each member's metadata."""


class GenericMember:
    """A context manager that joins a group, sends heartbeats, rejoins when the group rebalances, and leaves at the end.

    Args:
        config: Kafka client settings.
        settings: Group id, protocol type, instance id and timeouts.
        protocols: The supported protocols in order of preference, each with this member's metadata for it.
        lead: Called in a thread if this member leads. After an error, which is logged, every member has an empty state.
        heartbeat_interval_ms: The time between heartbeats.
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

    def __enter__(self) -> "GenericMember":
        self._life = self._client.loop.spawn(self._live())
        atexit.register(self.close)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> MemberState | None:
        """The state in the current generation; None while the group rebalances.

        Also None when the coordinator was silent for the session timeout, because the member may have been removed.
        """
        with self._changed:
            silent = time.monotonic() - self._heard_at
            return self._state if silent * 1000 < self._settings.session_timeout_ms else None

    def wait(self, timeout_s: float, after: int = -1) -> MemberState | None:
        """Wait for a generation later than `after` and return the state; None if no such generation starts in time.

        Raises:
            FencedError: Another process has joined with the same instance id.
            InvalidConfigurationError: The group refuses this member.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or (self._state is not None and self._state.generation > after), timeout_s
            )
            if self._failure is not None:
                raise self._failure
            return self._state if self._state is not None and self._state.generation > after else None

    def close(self) -> None:
        """Leave the group; a second call is allowed."""
        atexit.unregister(self.close)
        self._set(None)
        if self._life is not None and self._client.loop.alive:
            self._life.cancel()
            self._life = None
            self._client.run(self._member.leave(Deadline(_LEAVE_SECONDS), "the member ends"), _LEAVE_SECONDS + 1)
        self._client.close()

    async def _live(self) -> None:
        failures, reason = 0, "the member starts"
        if self._settings.instance_id is not None:
            # The join reports a coordinator that refuses or does not answer.
            with contextlib.suppress(KafkaGroupError):
                self._member.remember_member_id(
                    await describe(self._client, self._settings.group, Deadline(_DESCRIBE_SECONDS))
                )
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
        """Take part in one generation, from the join until the group rebalances."""
        patience = Deadline(self._settings.rebalance_timeout_ms / 1000 + _JOIN_MARGIN_SECONDS)
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
        while self._member.status.state is State.STABLE:
            await asyncio.sleep(self._interval)
            asked_at = time.monotonic()
            try:
                await self._member.heartbeat(Deadline(self._interval))
            except RetriableError as error:
                log.info("heartbeat group=%s: %s", self._settings.group, error)
                continue
            if self._member.status.is_member:
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
