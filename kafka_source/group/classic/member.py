"""One member's JoinGroup, SyncGroup, Heartbeat and LeaveGroup, with their repetitions and errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kafka_source.error_codes import NONE, ErrorCode
from kafka_source.errors import (
    ApplicationRecoverableError,
    AuthenticationError,
    FencedError,
    KafkaGroupError,
    RetriableError,
    error_for_code,
)
from kafka_source.group.classic import member_state
from kafka_source.group.classic.member_state import NO_MEMBER_ID, Action, MemberStatus, State, Step, step
from kafka_source.group.classic.strategies import is_rewind
from kafka_source.group.model import CONSUMER, GroupMember
from kafka_source.group.requests import GroupDescription, describe, leave_group
from kafka_source.kafka_client import GROUP, Connection, ConnectionLost, Deadline, KafkaClient, to_coordinator
from kafka_source.kafka_client.messages.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest


def refusal(
    code: int, what: str, *, group: str, instance_id: str | None, protocols: tuple[str, ...], session_timeout_ms: int
) -> KafkaGroupError:
    """Return the error of a member that stops because of this error code.

    Args:
        code: Kafka's error code.
        what: The request as the beginning of a sentence: "Joining".
        group: The group id.
        instance_id: The member's `group.instance.id`, or None.
        protocols: The assignors that the member offered.
        session_timeout_ms: The session timeout that the member requested.
    """
    request = f"{what} group {group}" + (f" as {instance_id}" if instance_id else "") + " failed"
    reasons: dict[int, str] = {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
            f"its members do not all support one of {', '.join(protocols)}; members of a killed run stay until their "
            "kafka.session.timeout.ms is over"
        ),
        ErrorCode.INVALID_SESSION_TIMEOUT: (
            f"kafka.session.timeout.ms={session_timeout_ms} is not allowed by the brokers"
        ),
        ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the brokers allow",
        ErrorCode.INVALID_GROUP_ID: "the brokers do not accept this kafka.group.id",
        # The answer of Kafka 4.3 if the record of a group is too large; the broker logs a RecordTooLargeException.
        ErrorCode.UNKNOWN_SERVER_ERROR: (
            "the coordinator's log says why. If the group has thousands of members, its record in __consumer_offsets "
            "may be larger than the brokers' message.max.bytes: lower group.members, or raise message.max.bytes"
        ),
    }
    return error_for_code(code, request, reason=reasons.get(code, ""))


log = logging.getLogger(__name__)

# The coordinator holds a JoinGroup request up to the rebalance timeout. The response may take this many seconds longer.
_PARKED_MARGIN = 5.0
# The maximum number of characters of a protocol's name in an error.
_MAX_SHOWN = 100


class RebalanceTimeout(RetriableError):  # noqa: N818 - what happened, not a kind of error
    """Another member delays this member's join: it has not rejoined, or it has the same instance id."""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The settings with which a member joins; times in milliseconds."""

    group: str
    instance_id: str | None = None
    protocol_type: str = CONSUMER
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Joined:
    """A successful response to JoinGroup.

    Attributes:
        member_id: This member's id.
        generation: The group's new generation.
        protocol: The protocol that the group chose; for consumers the assignor.
        leader: The leader's member id; "" if the brokers assign the group's partitions (consumer protocol, KIP-848).
        members: All members if this member is the leader, else empty.
        skip_assignment: Whether a static leader has returned and the assignment stays unchanged, so that the leader
            must not compute a new assignment (KIP-814).
    """

    member_id: str
    generation: int
    protocol: str
    leader: str
    members: tuple[GroupMember, ...]
    skip_assignment: bool

    @property
    def leading(self) -> bool:
        """Whether this member is the leader."""
        return self.leader == self.member_id


Lead = Callable[[Joined], Awaitable[Mapping[str, bytes]]]
"""The leader's function: returns each member's state (for consumers its assignment), by member id."""


class Member:
    """A group member. It is not thread-safe, because all methods run on the client's event loop.

    Args:
        client: The cluster's client.
        settings: The group id and the settings of the member.
        status: The status of an existing member, to continue as this member; None: a new member.

    Attributes:
        id_before: The member id that the group had for the instance id before this member joined, if known. This id
            distinguishes two cases: the coordinator has lost the member's new id, or another process has the instance
            id. See `_classify_fenced`.
    """

    def __init__(self, client: KafkaClient, settings: MemberSettings, status: MemberStatus | None = None) -> None:
        self.settings = settings
        self.status = status or MemberStatus()
        self.joined: Joined | None = None
        self.state_bytes = b""
        self.join_sent = False
        self.id_before: str | None = None
        self._client = client
        self._own: Connection | None = None
        # Deadline by which a stale holder of the instance id must have expired; see `_classify_fenced`.
        self._holder_may_end: Deadline | None = None
        self._parked = False
        self._ended: Step | None = None
        self._offered: tuple[str, ...] = ()

    def __repr__(self) -> str:
        m = self.status
        return f"Member({self.settings.group!r}, {self.settings.instance_id!r}, {m.state.value}, {m.generation})"

    @property
    def last_join(self) -> Joined:
        """The response to this member's last JoinGroup.

        Raises:
            RuntimeError: The member has not joined yet.
        """
        if self.joined is None:
            raise RuntimeError(f"{self!r} has not joined its group yet")
        return self.joined

    def remember_member_id(self, described: GroupDescription | None) -> None:
        """Note the member id that the group has for the instance id, before the member joins for the first time."""
        if described is not None and self.settings.instance_id is not None and self.joined is None:
            self.id_before = described.member_id_of(self.settings.instance_id)

    async def join(
        self, protocols: Sequence[tuple[str, bytes]], lead: Lead, deadline: Deadline, reason: str = ""
    ) -> bytes:
        """Join or rejoin the group (JoinGroup and SyncGroup); return the state that the leader gave this member.

        Args:
            protocols: The supported protocols in order of preference, as name and metadata.
            lead: Called if this member is the leader and has to compute an assignment.
            deadline: The time limit for joining, with all retries.
            reason: The reason for the brokers' log (KIP-800).

        Raises:
            FencedError: Another process has joined with the same instance id.
            InvalidConfigurationError: The group refuses this member; the error names the setting.
            ApplicationRecoverableError: The coordinator has chosen a protocol that this member did not offer.
            RetriableError: The deadline has expired; this is the error of the last attempt.
        """
        # Errors name the strategies that the user has chosen.
        self._offered = tuple(name for name, _ in protocols if not is_rewind(name))
        next_step = step(self.status, member_state.Rejoin())
        states: Mapping[str, bytes] | None = None
        problem: RetriableError | None = None
        while True:
            self._note(next_step)
            if next_step.action is Action.WORK:
                return self.state_bytes
            if next_step.action is Action.STOP:
                raise self._stopped(next_step, "Joining")
            if next_step.find_coordinator:
                self._client.forget_coordinator(self.settings.group)
            if problem is not None and deadline.over:
                raise self._late(deadline, problem)
            if next_step.back_off:
                await self._back_off(deadline, next_step)
            problem = None
            try:
                if next_step.action is Action.JOIN:
                    states = None
                    next_step = await self._send_join(protocols, deadline, reason)
                else:
                    if states is None:
                        # If `lead` fails, `states` must stay None, so that the next try sends no empty assignment.
                        leads = self.last_join.leading and not self.last_join.skip_assignment
                        states = await lead(self.last_join) if leads else {}
                    next_step = await self._send_sync(states, deadline)
            except ConnectionLost as error:
                problem = error
                next_step = step(self.status, member_state.Disconnected())
            except RetriableError as error:
                if not deadline.over:
                    raise
                raise self._late(deadline, error) from None

    async def heartbeat(self, deadline: Deadline) -> Step:
        """Send one heartbeat over the shared connection to the coordinator.

        Returns:
            The step that the response leads to; `status` is updated accordingly.

        Raises:
            ConnectionLost: The coordinator cannot be reached.
        """
        request = HeartbeatRequest(
            group_id=self.settings.group,
            generation_id=self.status.generation,
            member_id=self.status.member_id,
            group_instance_id=self.settings.instance_id,
        )
        asked = self.status
        answer = await to_coordinator(self._client, GROUP, self.settings.group, request, deadline)
        # If the member has rejoined since the request, the response is of the previous generation and is ignored.
        if (asked.member_id, asked.generation) == (self.status.member_id, self.status.generation):
            return self.handle_error(answer.error_code)
        return Step(self.status, Action.WORK)

    def handle_error(self, code: int) -> Step:
        """Update the status with the error code of a heartbeat or a commit."""
        result = step(self.status, member_state.HeartbeatAnswered(code))
        self._note(result)
        if result.find_coordinator:
            self._client.forget_coordinator(self.settings.group)
        return result

    def check(self) -> None:
        """Raise the error, as `join` does, if the group has refused this member or fenced it."""
        if self._ended is not None:
            raise self._stopped(self._ended, "Staying in")

    def _note(self, result: Step) -> None:
        self.status = result.status
        if result.status.state not in (State.FENCED, State.FAILED):
            self._ended = None
        elif result.code != NONE:
            self._ended = result

    async def leave(self, deadline: Deadline, reason: str = "") -> None:
        """Leave the group, if the coordinator may know this member; log a warning if it is not reachable."""
        if self.may_be_known:
            identity = (self.status.member_id, self.settings.instance_id)
            try:
                await leave_group(self._client, self.settings.group, [identity], reason, deadline)
                log.info("leave group=%s member=%s reason=%r", self.settings.group, self._name, reason)
            except RetriableError as error:
                log.warning("leave group=%s member=%s failed: %s", self.settings.group, self._name, error)
        self.note_left()

    def note_left(self) -> None:
        """Record that the member has left the group, for example by a request that lists several members."""
        self._note(step(self.status, member_state.Left()))
        self.join_sent = False
        self.close()

    def close(self) -> None:
        """Close the member's own connection; the coordinator keeps the member until its session ends."""
        if self._own is not None:
            self._own.close()
            self._own = None

    @property
    def may_be_known(self) -> bool:
        """Whether the coordinator may know this member, so that it has to leave the group."""
        if self.status.state in (State.UNJOINED, State.LOST, State.FENCED, State.FAILED, State.LEFT):
            return False
        # While the coordinator delays the JoinGroup of a static member, the member is in the group already, although it
        # gets its id only with the response. Such a member can leave by its instance id.
        return bool(self.status.member_id or (self.join_sent and self.settings.instance_id))

    @property
    def _name(self) -> str:
        return self.settings.instance_id or self.status.member_id or "new"

    async def _send_join(self, protocols: Sequence[tuple[str, bytes]], deadline: Deadline, reason: str) -> Step:
        settings = self.settings
        request = JoinGroupRequest(
            group_id=settings.group,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.status.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=settings.protocol_type,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
            reason=reason or None,
        )
        self._parked = False
        connection = await self._connection(deadline)
        self.join_sent = self._parked = True
        # The coordinator holds the request until all members have joined or the rebalance timeout has expired.
        parked = settings.rebalance_timeout_ms / 1000 + _PARKED_MARGIN
        answer = await connection.send(request, max(0.001, min(parked, deadline.left)))
        self._parked = False
        if answer.error_code == NONE:
            chosen = answer.protocol_name or ""
            if chosen not in (name for name, _ in protocols):
                raise ApplicationRecoverableError(
                    f"The coordinator of group {settings.group} at {connection.endpoint} has answered JoinGroup with "
                    f"the protocol {chosen[:_MAX_SHOWN]!r}, which this member did not offer: it offered "
                    f"{', '.join(self._offered)}. No Kafka broker does this, so check the server at this address. "
                    "Nothing was assigned."
                )
            self.joined = Joined(
                answer.member_id,
                answer.generation_id,
                chosen,
                answer.leader,
                tuple(GroupMember(m.member_id, m.group_instance_id, bytes(m.metadata)) for m in answer.members),
                answer.skip_assignment,
            )
        else:
            log.debug("join group=%s member=%s code=%d", settings.group, self._name, answer.error_code)
        code = await self._classify_fenced(answer.error_code, connection, deadline)
        return step(self.status, member_state.JoinAnswered(code, answer.member_id or "", answer.generation_id))

    async def _send_sync(self, states: Mapping[str, bytes], deadline: Deadline) -> Step:
        request = SyncGroupRequest(
            group_id=self.settings.group,
            generation_id=self.status.generation,
            member_id=self.status.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=self.settings.protocol_type,
            protocol_name=self.last_join.protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=state)
                for member_id, state in states.items()
            ],
        )
        connection = await self._connection(deadline)
        # The coordinator holds the request only until the leader has sent the assignment. If that takes longer than the
        # request timeout, the request is repeated, as after a lost connection.
        seconds = min(self._client.settings.request_timeout, deadline.left)
        answer = await connection.send(request, max(0.001, seconds))
        if answer.error_code == NONE:
            self.state_bytes = bytes(answer.assignment)
            self.id_before = self.status.member_id
        code = await self._classify_fenced(answer.error_code, connection, deadline)
        return step(self.status, member_state.SyncAnswered(code))

    async def _classify_fenced(self, code: int, connection: Connection, deadline: Deadline) -> int:
        """Return the error code to act on: UNKNOWN_MEMBER_ID if the coordinator has only lost this member's id.

        COORDINATOR_LOAD_IN_PROGRESS (retry): the coordinator has moved, or the instance id's holder is still unknown.

        While a group rebalances, its coordinator stores the new member id of a static member only with the leader's
        assignment, after the response to JoinGroup. If the coordinator fails earlier, the next coordinator loads the
        group with a previous member id, and refuses the new id with FENCED_INSTANCE_ID, as if another process had
        joined. The next coordinator may be the same broker, over the same connection. The group's description
        distinguishes the two cases, because ids are unique: if it has `id_before`, a coordinator has loaded the group.
        """
        if code != ErrorCode.FENCED_INSTANCE_ID:
            # No other member has the instance id, or the holder's session begins again at another coordinator.
            self._holder_may_end = None
            return code
        if await self._client.is_replaced(self.settings.group, GROUP, connection.endpoint, deadline):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.status.member_id in (NO_MEMBER_ID, self.id_before):
            # This member has no new id that a coordinator can have lost.
            return code
        try:
            described = await describe(self._client, self.settings.group, deadline)
        except AuthenticationError:
            return code
        holder = described.member_id_of(self.settings.instance_id)
        if holder is None:
            # A coordinator describes only replicated state. After a load of the group the description may be older than
            # the state by which the coordinator has refused the request, so the request is sent again.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if holder != self.id_before:
            # The holder may be a previous process. If so, its session has ended at the previous coordinator, and ends
            # here too. Any other process is still a member after a session timeout.
            self._holder_may_end = self._holder_may_end or Deadline(self.settings.session_timeout_ms / 1000)
            return code if self._holder_may_end.over else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.warning(
            "join group=%s member=%s: the coordinator still has the previous member id; joining again",
            self.settings.group,
            self._name,
        )
        return ErrorCode.UNKNOWN_MEMBER_ID

    async def _connection(self, deadline: Deadline) -> Connection:
        """Return the member's own connection to the coordinator, because a JoinGroup would delay other requests."""
        coordinator = await self._client.coordinator(self.settings.group, deadline)
        if self._own is None or not self._own.usable or self._own.endpoint != coordinator.endpoint:
            self.close()
            # Another coordinator gives the holder of the instance id a new session.
            self._holder_may_end = None
            self._own = await self._client.dedicated(coordinator, deadline)
        return self._own

    async def _back_off(self, deadline: Deadline, failed: Step) -> None:
        pause = self._client.settings.retry.pause(failed.status.failures - 1)
        if deadline.left <= pause:
            failing = f"Joining group {self.settings.group} failed within {deadline.seconds:.0f} s"
            raise self._late(deadline, ConnectionLost(f"{failing}: its coordinator is not available."))
        await asyncio.sleep(pause)

    def _late(self, deadline: Deadline, problem: RetriableError) -> RetriableError:
        """Return the error of a join whose deadline has expired."""
        if self._holder_may_end is not None:
            return RebalanceTimeout(
                f"Joining group {self.settings.group} failed within {deadline.seconds:.0f} s: another member has its "
                f"instance id {self.settings.instance_id}. If that member's process has ended, its session ends within "
                f"{self.settings.session_timeout_ms / 1000:.0f} s; if it runs, give each query a "
                "kafka.group.instance.id of its own."
            )
        if self.status.state is State.JOINING and self._parked:
            return RebalanceTimeout(
                f"Group {self.settings.group} has been rebalancing for {deadline.seconds:.0f} s: other members have "
                "not rejoined yet. They have time until their rebalance timeout (max.poll.interval.ms) expires."
            )
        return problem

    def _stopped(self, stopped: Step, doing: str) -> Exception:
        if stopped.code == ErrorCode.FENCED_INSTANCE_ID:
            return FencedError(
                f"Another process has joined group {self.settings.group} as {self.settings.instance_id}. Each query "
                "needs a kafka.group.instance.id of its own; this query has stopped.",
                code=stopped.code,
            )
        return refusal(
            stopped.code,
            doing,
            group=self.settings.group,
            instance_id=self.settings.instance_id,
            protocols=self._offered,
            session_timeout_ms=self.settings.session_timeout_ms,
        )
