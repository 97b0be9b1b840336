"""What a heartbeat's answer means in the consumer protocol (KIP-848): states, epochs, partitions to release. Pure.

    UNJOINED         join                               -> JOINING
    JOINING          answered with an epoch             -> MEMBER
    MEMBER           the coordinator fences its epoch   -> LOST
    LOST             join                               -> JOINING
    JOINING          the coordinator fences its epoch   -> JOINING, after a heartbeat that leaves
    JOINING, MEMBER  the group refuses the member       -> FAILED
    any state        leave                              -> LEFT

The only request is ConsumerGroupHeartbeat. The answer has the partitions that the member may have now (`target`). The
member's own partitions (`owned`) follow when the query is ready: the member takes new partitions and, after the
micro-batch is committed, releases partitions that the target lacks. A heartbeat lists the member's partitions. The
coordinator then gives released partitions to other members, and gives the member its next epoch.

The rules are those of Java's ConsumerMembershipManager and HeartbeatRequestState, and of franz-go:

- The member id is the client's own (KIP-1082), and stays the same for the life of the member, even after a fence.
- If responses were lost, brokers before 4.2 may have raised a joining member's epoch twice. Such a broker then fences
  epoch 0 until the member's session ends. So the member, which has no partitions yet, leaves before it joins again.
- A heartbeat with epoch 0 joins, with all fields and no partitions. After a heartbeat that failed or was not answered,
  all fields and the current partitions are sent until the epoch has changed twice. The coordinator may handle the late
  heartbeat after the next heartbeat, and assign partitions in a response that is lost. The coordinator accepts
  heartbeats in the current and the previous epoch, and repeats an assignment only if a heartbeat has all fields.
- A member without partitions and without a target sends an empty list in every heartbeat.
- Between a response that changes the target and the query's reaction, heartbeats do not list partitions. The
  coordinator could count a late empty list as a release of partitions that the member is about to take.
- While the query releases partitions, heartbeats omit owned partitions, so that none counts as released too early.
- A heartbeat interval that is not positive is ignored.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from kafka_source.error_codes import NONE, ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_EPOCH_OF_STATIC = -2
"""The epoch with which a static member leaves and announces its return."""

DEFAULT_INTERVAL_MS = 5_000


class State(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    MEMBER = "member"
    LOST = "lost"
    FAILED = "failed"
    LEFT = "left"


@dataclass(frozen=True, slots=True, order=True)
class IdPartition:
    """A partition of a topic id."""

    topic_id: uuid.UUID
    partition: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a heartbeat states about a member, besides its partitions.

    Attributes:
        topics: The names of the topics, sorted.
        rebalance_timeout_ms: How long the coordinator waits for this member to release partitions.
        assignor: The brokers' assignor that the member requests; None: the group's assignor.
        rack: `client.rack`.
    """

    topics: tuple[str, ...]
    rebalance_timeout_ms: int
    assignor: str | None = None
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The fields of one heartbeat; None: not changed since the last heartbeat."""

    epoch: int
    subscription: Subscription | None
    owned: tuple[IdPartition, ...] | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a heartbeat.

    Attributes:
        code: Kafka's error code.
        epoch: The member's epoch, if there is no error.
        interval_ms: The time until the next heartbeat.
        target: The assigned partitions; None: not changed.
    """

    code: int
    epoch: int = JOIN_EPOCH
    interval_ms: int = DEFAULT_INTERVAL_MS
    target: frozenset[IdPartition] | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A member.

    Attributes:
        member_id: The member's id, which the client makes.
        state: The member's state.
        epoch: The member's epoch; 0 before the first answer and after a fence.
        target: The assigned partitions, as of the last answer.
        owned: The partitions that the member has.
        reported: The partitions in the last heartbeat that was answered after the target changed; None: there is none.
        reconciled: Whether the query has acted on the current target; until it has, heartbeats list no partitions.
        subscribed: The subscription of the last answered heartbeat; None: the next heartbeat has to send it.
        interval_ms: The time between heartbeats, as the coordinator wants it.
        failures: The number of heartbeats in a row that failed or were not answered.
        previous_epoch: The previous epoch, in which a coordinator still accepts heartbeats.
        unanswered_epoch: The epoch of the last heartbeat that failed or was not answered; None: there is none.
        code: The error code that removed or stopped the member, or that fences it while it joins; else 0.
    """

    member_id: str
    state: State = State.UNJOINED
    epoch: int = JOIN_EPOCH
    target: frozenset[IdPartition] = frozenset()
    owned: frozenset[IdPartition] = frozenset()
    reported: frozenset[IdPartition] | None = frozenset()
    reconciled: bool = True
    subscribed: Subscription | None = None
    interval_ms: int = DEFAULT_INTERVAL_MS
    failures: int = 0
    previous_epoch: int = JOIN_EPOCH
    unanswered_epoch: int | None = None
    code: int = NONE

    @property
    def in_group(self) -> bool:
        """Whether the coordinator is known to have this member."""
        return self.state is State.MEMBER

    @property
    def late(self) -> bool:
        """Whether the coordinator may still handle a heartbeat that has had no answer."""
        return self.unanswered_epoch is not None and self.unanswered_epoch >= self.previous_epoch

    @property
    def revoking(self) -> frozenset[IdPartition]:
        """The partitions to release."""
        return self.owned - self.target if self.in_group else frozenset()

    @property
    def has_news(self) -> bool:
        """Whether a heartbeat is due immediately, because the member's partitions are not reported yet."""
        return self.in_group and self.reconciled and self.owned != self.reported and not self.revoking


def join(member: Member) -> Member:
    """Return the joining member, which has no partitions; after a loss it keeps its id."""
    return replace(
        Member(member.member_id), state=State.JOINING, interval_ms=member.interval_ms, failures=member.failures
    )


def heartbeat(member: Member, subscription: Subscription) -> Heartbeat:
    """Return the next heartbeat of a member in JOINING or MEMBER."""
    if member.code == ErrorCode.FENCED_MEMBER_EPOCH:
        return Heartbeat(LEAVE_EPOCH, None, None)
    all_fields = member.epoch == JOIN_EPOCH or member.failures > 0 or (member.late and member.reconciled)
    says_owned = all_fields or not (member.owned or member.target) or member.has_news
    return Heartbeat(
        member.epoch,
        None if member.subscribed == subscription and not all_fields else subscription,
        tuple(sorted(member.owned)) if says_owned else None,
    )


def answered(member: Member, sent: Heartbeat, answer: Answer) -> Member:
    """Return the member after the response to a heartbeat."""
    if sent.epoch == LEAVE_EPOCH and answer.code in (NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        return join(member)
    if answer.code != NONE:
        return _failed(member, answer.code)
    interval = answer.interval_ms if answer.interval_ms > 0 else member.interval_ms
    target = member.target if answer.target is None else answer.target
    reported = member.reported if sent.owned is None else frozenset(sent.owned)
    return replace(
        member,
        state=State.MEMBER,
        epoch=answer.epoch,
        target=target,
        # The coordinator may have offered partitions and withdrawn them before the member has taken them. If so, the
        # member's partitions are unchanged, and the coordinator waits for a heartbeat that lists them.
        reported=reported if target == member.target else None,
        reconciled=member.reconciled and target == member.target,
        subscribed=sent.subscription or member.subscribed,
        interval_ms=interval,
        failures=0,
        previous_epoch=member.previous_epoch if answer.epoch == member.epoch else member.epoch,
        code=NONE,
    )


def unanswered(member: Member) -> Member:
    """Return the member after an unanswered heartbeat, on which the coordinator may have acted."""
    return replace(member, failures=member.failures + 1, unanswered_epoch=member.epoch)


def ask_again(member: Member) -> Member:
    """Return the member, whose heartbeats now have all fields, so that the coordinator repeats its whole assignment."""
    return replace(member, unanswered_epoch=member.epoch)


def reconcile(member: Member, topics: Collection[uuid.UUID]) -> Member:
    """Return the member with exactly its target partitions.

    Args:
        member: The member. The offsets of its revoked partitions are committed.
        topics: The ids of the topics with known names. Partitions of topics with unknown names are taken later.
    """
    if not member.in_group:
        return member
    owned = frozenset(one for one in member.target if one.topic_id in topics)
    return replace(member, owned=owned, reconciled=True)


def left(member: Member) -> Member:
    """Return the member that has left the group, or is about to leave."""
    return replace(Member(member.member_id), state=State.LEFT, interval_ms=member.interval_ms)


def lost(member: Member, code: int) -> Member:
    """Return the member after the group has removed it: without partitions."""
    return replace(Member(member.member_id), state=State.LOST, interval_ms=member.interval_ms, code=code)


_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH)
_TRANSIENT = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)


def _failed(member: Member, code: int) -> Member:
    if code in _TRANSIENT:
        return replace(unanswered(member), code=code if code == ErrorCode.UNRELEASED_INSTANCE_ID else NONE)
    if code == ErrorCode.FENCED_MEMBER_EPOCH and member.state is State.JOINING:
        return replace(unanswered(member), code=code)
    # A group that has lost its last member may no longer exist, or may be a classic group now.
    if code in _FENCED or (code == ErrorCode.GROUP_ID_NOT_FOUND and member.in_group):
        return lost(member, code)
    return replace(member, state=State.FAILED, code=code)
