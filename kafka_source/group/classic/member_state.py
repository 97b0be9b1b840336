"""The effect of a coordinator's response on a member: join again, find the coordinator, lost, fenced, failed. Pure.

    UNJOINED       join                                  -> JOINING
    JOINING        JoinGroup answered                    -> AWAITING_SYNC
    AWAITING_SYNC  SyncGroup answered                    -> STABLE
    AWAITING_SYNC  another rebalance, or member unknown  -> JOINING
    STABLE         heartbeat: a rebalance is due         -> REBALANCING
    STABLE, REBALANCING  session or generation lost      -> LOST
    REBALANCING, LOST    rejoin                          -> JOINING
    any state      another process has the instance id   -> FENCED
    any state      the group refuses the member          -> FAILED
    any state      leave                                 -> LEFT

A member in REBALANCING is still a member, whose commits the coordinator accepts until the new generation starts. The
transitions are those of AbstractCoordinator in the Java client, with one exception: if the coordinator is lost before
it has answered SyncGroup, SyncGroup is sent again ("Handling Coordinator Failures", 4).
"""

from dataclasses import dataclass, replace
from enum import Enum

from kafka_source.error_codes import NONE, ErrorCode

NO_GENERATION = -1
NO_MEMBER_ID = ""


class State(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    AWAITING_SYNC = "awaiting sync"
    STABLE = "stable"
    REBALANCING = "rebalancing"
    LOST = "lost"
    FENCED = "fenced"
    FAILED = "failed"
    LEFT = "left"


class Action(Enum):
    """The action that follows an event."""

    JOIN = "send JoinGroup"
    SYNC = "send SyncGroup"
    WORK = "work, and send heartbeats"
    STOP = "stop: the error says why"


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """The status of one member.

    Attributes:
        state: The member's state.
        member_id: The id that the coordinator gave the member; "" before the first join.
        generation: The generation in which the member last joined; -1 before the first join.
        failures: The number of retriable failures in a row; the back-off grows with it.
    """

    state: State = State.UNJOINED
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    failures: int = 0

    @property
    def is_member(self) -> bool:
        """Whether the coordinator is known to accept heartbeats and commits of this member."""
        return self.state in (State.STABLE, State.REBALANCING)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an event.

    Attributes:
        status: The member's status after the event.
        action: The next action.
        find_coordinator: Whether to look up the coordinator again before the action.
        back_off: Whether to wait before the action; the pause grows with `status.failures`.
        code: The error code, if the event stops the member or removes it from the group; else 0.
    """

    status: MemberStatus
    action: Action
    find_coordinator: bool = False
    back_off: bool = False
    code: int = NONE


# ---- events


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The owner of the member wants to join or rejoin."""


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    """The response to JoinGroup.

    Without an error it has the member id and the generation, with the error MEMBER_ID_REQUIRED only the member id.
    """

    code: int
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    """The response to SyncGroup."""

    code: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """The response to a heartbeat, or to a commit, which has the same error codes."""

    code: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to the coordinator was lost, or the coordinator did not answer in time."""


@dataclass(frozen=True, slots=True)
class Left:
    """The member has left the group."""


Event = Rejoin | JoinAnswered | SyncAnswered | HeartbeatAnswered | Disconnected | Left


def step(member: MemberStatus, event: Event) -> Step:
    """Return the status after an event, and the next action.

    Raises:
        ValueError: The event is not possible in this state.
    """
    if isinstance(event, Left):
        return Step(MemberStatus(State.LEFT), Action.STOP)
    if isinstance(event, Disconnected):
        return _disconnected(member)
    if isinstance(event, Rejoin):
        return _rejoin(member)
    if isinstance(event, JoinAnswered):
        _expect(member, event, State.JOINING)
        return _join_answered(member, event)
    if isinstance(event, SyncAnswered):
        _expect(member, event, State.AWAITING_SYNC)
        return _sync_answered(member, event.code)
    return _heartbeat_answered(member, event.code)


def _rejoin(member: MemberStatus) -> Step:
    if member.state is State.FENCED:
        return Step(member, Action.STOP, code=ErrorCode.FENCED_INSTANCE_ID)
    known = member.member_id if member.state is not State.LEFT else NO_MEMBER_ID
    return Step(MemberStatus(State.JOINING, known, member.generation), Action.JOIN)


def _join_answered(member: MemberStatus, answer: JoinAnswered) -> Step:
    code = answer.code
    if code == NONE:
        return Step(MemberStatus(State.AWAITING_SYNC, answer.member_id, answer.generation), Action.SYNC)
    if code == ErrorCode.MEMBER_ID_REQUIRED:
        return Step(replace(member, member_id=answer.member_id), Action.JOIN)
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return _again(replace(member, member_id=NO_MEMBER_ID, generation=NO_GENERATION), Action.JOIN)
    if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        return _again(member, Action.JOIN)
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        return _again(member, Action.JOIN, find=True)
    return _stop(member, code)


def _sync_answered(member: MemberStatus, code: int) -> Step:
    if code == NONE:
        return Step(MemberStatus(State.STABLE, member.member_id, member.generation), Action.WORK)
    if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
        return Step(replace(member, state=State.JOINING, failures=0), Action.JOIN)
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return Step(MemberStatus(State.JOINING), Action.JOIN)
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return _again(member, Action.SYNC)
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        return _again(member, Action.SYNC, find=True)
    return _stop(member, code)


def _heartbeat_answered(member: MemberStatus, code: int) -> Step:
    if not member.is_member:
        # The heartbeat was sent before the member rejoined, left or was fenced; its response changes nothing.
        return Step(member, _action_of(member.state))
    if code == NONE:
        return Step(replace(member, failures=0), Action.WORK)
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return Step(replace(member, state=State.REBALANCING, failures=0), Action.WORK)
    if code == ErrorCode.ILLEGAL_GENERATION:
        return Step(replace(member, state=State.LOST), Action.WORK, code=code)
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        return Step(MemberStatus(State.LOST), Action.WORK, code=code)
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return _again(member, Action.WORK)
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        return _again(member, Action.WORK, find=True)
    return _stop(member, code)


def _disconnected(member: MemberStatus) -> Step:
    # A delayed JoinGroup is lost with its connection. It is sent again with the same member id or instance id, so it
    # replaces the lost request and does not add a member.
    return _again(member, _action_of(member.state), find=True)


def _action_of(state: State) -> Action:
    if state is State.JOINING:
        return Action.JOIN
    if state is State.AWAITING_SYNC:
        return Action.SYNC
    return Action.STOP if state in (State.FENCED, State.FAILED, State.LEFT) else Action.WORK


def _again(member: MemberStatus, action: Action, *, find: bool = False) -> Step:
    return Step(replace(member, failures=member.failures + 1), action, find_coordinator=find, back_off=True)


def _stop(member: MemberStatus, code: int) -> Step:
    state = State.FENCED if code == ErrorCode.FENCED_INSTANCE_ID else State.FAILED
    return Step(replace(member, state=state), Action.STOP, code=code)


def _expect(member: MemberStatus, event: Event, state: State) -> None:
    if member.state is not state:
        raise ValueError(f"the event {type(event).__name__} is not possible in the state {member.state.value}")
