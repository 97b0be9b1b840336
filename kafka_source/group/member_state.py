"""The life of one member of a group: states, what can happen, and what to do next. Pure; `member` does the talking.

    UNJOINED --join--> JOINING --sync--> AWAITING_SYNC --> STABLE --heartbeat says so--> REBALANCING
        ^                 ^                   |              |                                |
        +--- id unknown --+---- rebalance ----+              +--- session or generation gone -> LOST
                          +<---------------------------------------- rejoin -------------------+
    From anywhere: FENCED (another process has the instance id), FAILED (the group refuses us), LEFT.

A member in REBALANCING is still one: its credentials serve for commits until the group's new generation begins.
Errors are Kafka's codes; the rules are those of AbstractCoordinator in the Java client, but for one: where the
coordinator is lost before SyncGroup is answered, SyncGroup is sent again ("Handling Coordinator Failures", 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafka_source.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

NO_GENERATION = -1
NO_MEMBER_ID = ""


class State(Enum):
    """Where a member stands."""

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
    """What to do next."""

    JOIN = "send JoinGroup"
    SYNC = "send SyncGroup"
    WORK = "work, and send heartbeats"
    STOP = "stop: the error says why"


@dataclass(frozen=True, slots=True)
class Membership:
    """One member.

    Attributes:
        state: Where it stands.
        member_id: Given by the coordinator; "" before.
        generation: The group's, when this member last got one; -1 before.
        failures: Tries that failed in a row for reasons that pass; the back-off grows with them.
    """

    state: State = State.UNJOINED
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    failures: int = 0

    @property
    def is_member(self) -> bool:
        """Whether its credentials serve: heartbeats and commits are taken."""
        return self.state in (State.STABLE, State.REBALANCING)


@dataclass(frozen=True, slots=True)
class Step:
    """What an event leads to.

    Attributes:
        membership: The member after it.
        action: What to do next.
        find_coordinator: Forget the coordinator first.
        back_off: Wait first, longer with `membership.failures`.
        code: The error that ended it, with `Action.STOP`.
    """

    membership: Membership
    action: Action
    find_coordinator: bool = False
    back_off: bool = False
    code: int = NONE


# ---- events


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The owner wants in, or in again."""


@dataclass(frozen=True, slots=True)
class JoinAnswered:
    """JoinGroup's answer: an error code (0: none), and with none or MEMBER_ID_REQUIRED our id, with none the rest."""

    code: int
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class SyncAnswered:
    """SyncGroup's answer."""

    code: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """The answer to a heartbeat, or to a commit, which tells the same."""

    code: int


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The coordinator was lost, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Left:
    """The member has left the group."""


Event = Rejoin | JoinAnswered | SyncAnswered | HeartbeatAnswered | Disconnected | Left


def step(member: Membership, event: Event) -> Step:
    """What `event` makes of `member`, and what to do next.

    Raises:
        ValueError: The event cannot happen in this state.
    """
    if isinstance(event, Left):
        return Step(Membership(State.LEFT), Action.STOP)
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


def _rejoin(member: Membership) -> Step:
    if member.state is State.FENCED:
        return Step(member, Action.STOP, code=FENCED_INSTANCE_ID)
    known = member.member_id if member.state is not State.LEFT else NO_MEMBER_ID
    return Step(Membership(State.JOINING, known, member.generation), Action.JOIN)


def _join_answered(member: Membership, answer: JoinAnswered) -> Step:
    code = answer.code
    if code == NONE:
        return Step(Membership(State.AWAITING_SYNC, answer.member_id, answer.generation), Action.SYNC)
    if code == MEMBER_ID_REQUIRED:
        return Step(replace(member, member_id=answer.member_id), Action.JOIN)
    if code == UNKNOWN_MEMBER_ID:
        return _again(replace(member, member_id=NO_MEMBER_ID, generation=NO_GENERATION), Action.JOIN)
    if code in (REBALANCE_IN_PROGRESS, COORDINATOR_LOAD_IN_PROGRESS):
        return _again(member, Action.JOIN)
    if code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
        return _again(member, Action.JOIN, find=True)
    return _stop(member, code)


def _sync_answered(member: Membership, code: int) -> Step:
    if code == NONE:
        return Step(Membership(State.STABLE, member.member_id, member.generation), Action.WORK)
    if code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
        return Step(replace(member, state=State.JOINING, failures=0), Action.JOIN)
    if code == UNKNOWN_MEMBER_ID:
        return Step(Membership(State.JOINING), Action.JOIN)
    if code == COORDINATOR_LOAD_IN_PROGRESS:
        return _again(member, Action.SYNC)
    if code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
        return _again(member, Action.SYNC, find=True)
    return _stop(member, code)


def _heartbeat_answered(member: Membership, code: int) -> Step:
    if not member.is_member:
        # An answer that was under way when the member rejoined, left or was fenced says nothing new.
        return Step(member, _action_of(member.state))
    if code == NONE:
        return Step(replace(member, failures=0), Action.WORK)
    if code == REBALANCE_IN_PROGRESS:
        return Step(replace(member, state=State.REBALANCING, failures=0), Action.WORK)
    if code == ILLEGAL_GENERATION:
        return Step(replace(member, state=State.LOST), Action.WORK, code=code)
    if code == UNKNOWN_MEMBER_ID:
        return Step(Membership(State.LOST), Action.WORK, code=code)
    if code == COORDINATOR_LOAD_IN_PROGRESS:
        return _again(member, Action.WORK)
    if code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
        return _again(member, Action.WORK, find=True)
    return _stop(member, code)


def _disconnected(member: Membership) -> Step:
    # A parked JoinGroup is lost with its connection; with the same member or instance id it takes its own place.
    return _again(member, _action_of(member.state), find=True)


def _action_of(state: State) -> Action:
    if state is State.JOINING:
        return Action.JOIN
    if state is State.AWAITING_SYNC:
        return Action.SYNC
    return Action.STOP if state in (State.FENCED, State.FAILED, State.LEFT) else Action.WORK


def _again(member: Membership, action: Action, *, find: bool = False) -> Step:
    return Step(replace(member, failures=member.failures + 1), action, find_coordinator=find, back_off=True)


def _stop(member: Membership, code: int) -> Step:
    state = State.FENCED if code == FENCED_INSTANCE_ID else State.FAILED
    return Step(replace(member, state=state), Action.STOP, code=code)


def _expect(member: Membership, event: Event, state: State) -> None:
    if member.state is not state:
        raise ValueError(f"{type(event).__name__} came to a member that is {member.state.value}")
