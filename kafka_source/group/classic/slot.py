"""One slot: its subscription, its assignment, its credentials. How a task acts as a slot is in `commits.rights`."""

import copy
import logging
from collections.abc import Collection, Sequence

from assignors import (
    NO_GENERATION,
    Assignment,
    Assignor,
    Measures,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_subscription,
)
from kafka_source.group.classic import strategies
from kafka_source.group.classic.leader import without_held
from kafka_source.group.classic.member import Member, MemberSettings
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.model import GroupSettings, SlotAssignment
from kafka_source.group.requests import leave_group
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.credentials import SlotCredentials

log = logging.getLogger(__name__)


class Slot:
    """A slot of a query.

    Args:
        number: The slot's number, from 0.
        client: The cluster's client.
        settings: The settings of all slots.
        assignors: The supported assignors in order of preference. The slot copies assignors, because they have state.
    """

    def __init__(
        self, number: int, client: KafkaClient, settings: GroupSettings, assignors: Sequence[Assignor]
    ) -> None:
        self.number = number
        self.member = Member(
            client,
            MemberSettings(
                group=settings.group,
                instance_id=settings.instance_id(number),
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.rebalance_timeout_ms,
            ),
        )
        self.assignment = Assignment(())
        # Revoked partitions that no member has until this slot rejoins, because its micro-batch still reads them.
        self.held: tuple[TopicPartition, ...] = ()
        self.protocols: tuple[tuple[str, bytes], ...] = ()
        self._rack = settings.rack
        self._rewinds = settings.rewinds
        self._assignors = {assignor.name: copy.deepcopy(assignor) for assignor in assignors}
        self._cooperative = is_cooperative(assignors)
        self._claimed: frozenset[TopicPartition] = frozenset()
        # The generation of which this slot was a member before its last JoinGroup; None: it was no member.
        self.assigned_in: int | None = None
        # The generation in the metadata. If this number has changed, a follower's rejoin starts a rebalance too.
        self.told_generation = NO_GENERATION

    @property
    def leading(self) -> bool:
        """Whether this slot was the leader when it last joined."""
        return self.member.joined is not None and self.member.joined.leading

    @property
    def generation(self) -> int:
        """The generation in which this slot last joined."""
        return self.member.status.generation

    @property
    def hands_over(self) -> bool:
        """Whether a partition moves in two rebalances, as with a cooperative assignor (KIP-429)."""
        assignor = self._assignor_in_use
        return assignor is not None and RebalanceProtocol.COOPERATIVE in assignor.protocols

    @property
    def has_copies(self) -> bool:
        """Whether the strategy gives a partition to several members, or is unknown."""
        assignor = self._assignor_in_use
        return assignor is None or assignor.redundant

    def assignor(self, name: str) -> Assignor:
        """Return this slot's assignor with the name that the group chose."""
        return self._assignors[name]

    def record_throughput(self, measures: Measures) -> None:
        """Let the assignors send the measures to the leader of the next rebalance."""
        for assignor in self._assignors.values():
            assignor.on_measures(measures)

    def subscribe(
        self, topics: Sequence[str], in_flight: Collection[TopicPartition] = frozenset()
    ) -> Sequence[tuple[str, bytes]]:
        """Return, for JoinGroup, each assignor's name with this slot's metadata for it.

        Args:
            topics: The topics to subscribe to.
            in_flight: The partitions of the batch in flight. The slot claims those that it was assigned; see `leader`.
        """
        # Claim partitions only while this slot is a member, because after its removal other members may own them.
        known = self.member.status.is_member
        self.assigned_in = self.generation if known else None
        wanted = frozenset(topics)
        claimed = tuple(sorted(tp for tp in (*self.assignment.partitions, *self.held) if known and tp in in_flight))
        owned = tuple(tp for tp in self.assignment.partitions if known and self._cooperative and tp.topic in wanted)
        # Partitions in flight stay claimed even if the query's pattern no longer matches their topic.
        owned = (*owned, *sorted(set(claimed).difference(owned)))
        self._claimed = frozenset(owned)
        self.protocols = tuple(
            (name, self._metadata(assignor, topics, owned, claimed, known=known))
            for name, assignor in self._assignors.items()
        )
        if self._rewinds:
            self.protocols += strategies.rewind_offers(self._assignors)
        return self.protocols

    def resume(self, credentials: SlotCredentials) -> None:
        """Continue as the member with which another process has joined."""
        self.member.status = MemberStatus(State.STABLE, credentials.member_id, credentials.generation)
        self.member.id_before = credentials.member_id
        self.assignment = Assignment(credentials.partitions)

    def store_assignment(self, state: bytes, in_flight: Collection[TopicPartition] = frozenset()) -> bool:
        """Store the new assignment; return whether partitions were revoked, so that another rebalance must follow.

        Revoked partitions of the batch in flight are `held`: the slot commits their offsets before it rejoins.

        Raises:
            WireFormatError: The leader sent a malformed assignment.
        """
        self.assignment, held = without_held(decode_assignment(state))
        joined = self.member.joined
        assignor = self._assignor_in_use
        if joined is not None and assignor is not None:
            assignor.on_assignment(self.assignment, joined.generation)
        revoked = self._claimed - frozenset(self.assignment.partitions)
        if not self.hands_over:
            # Partitions that an eager strategy revoked, and that are not held, have a new owner already.
            self.held = held
            return False
        self.held = tuple(sorted(tp for tp in revoked if tp in in_flight))
        return bool(revoked.difference(self.held))

    def _metadata(
        self,
        assignor: Assignor,
        topics: Sequence[str],
        owned: Sequence[TopicPartition],
        claimed: Sequence[TopicPartition],
        *,
        known: bool,
    ) -> bytes:
        cooperative = RebalanceProtocol.COOPERATIVE in assignor.protocols
        if not cooperative:
            # Under a redundant strategy a partition has several owners, so no partition is held.
            owned = () if assignor.redundant else claimed
        subscription = Subscription(
            topics=tuple(topics),
            user_data=assignor.subscription_user_data(topics),
            owned=owned,
            generation=self.generation if known and (cooperative or owned) else self.told_generation,
            rack=self._rack,
        )
        return encode_subscription(subscription)

    @property
    def _assignor_in_use(self) -> Assignor | None:
        """The assignor that made the assignment; None before the first join."""
        joined = self.member.joined
        return None if joined is None else self._assignors.get(joined.protocol)

    def credentials(self) -> SlotCredentials:
        """Return the credentials with which a task acts as this slot."""
        status, settings = self.member.status, self.member.settings
        replicas = self._replicas()
        return SlotCredentials(
            settings.group,
            status.generation,
            status.member_id,
            settings.instance_id,
            self.number,
            tuple(tp for tp in _sorted(self.assignment.partitions) if tp not in replicas),
        )

    async def handle_commit_error(self, used: SlotCredentials, code: int) -> None:
        """Update the status with the error code of a commit, as after a heartbeat.

        Args:
            used: The credentials of the commit. An error of an earlier generation does not change the status.
            code: Kafka's error code.
        """
        if used == self.credentials():
            self.member.handle_error(code)

    def slot_assignment(self) -> SlotAssignment:
        """Return this slot's part of the group's assignment."""
        partitions = _sorted(self.assignment.partitions)
        return SlotAssignment(self.credentials(), partitions, self.assignment.user_data, self._replicas(), self.held)

    def _replicas(self) -> dict[TopicPartition, int]:
        assignor = self._assignor_in_use
        return {} if assignor is None else dict(assignor.replicas(self.assignment))


async def leave_slots(client: KafkaClient, group: str, slots: Sequence[Slot], reason: str, deadline: Deadline) -> None:
    """Leave the group with these slots in one request, so that the group rebalances once.

    Raises:
        RetriableError: The coordinator could not be reached in time. The slots stay until their sessions end.
    """
    members = [slot.member for slot in slots if slot.member.may_be_known]
    if members:
        leaving = [(member.status.member_id, member.settings.instance_id) for member in members]
        await leave_group(client, group, leaving, reason, deadline)
        log.info("leave group=%s slots=%d reason=%r", group, len(members), reason)
    for slot in slots:
        slot.member.note_left()


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Return whether all assignors are cooperative, so that members keep their partitions during a rebalance."""
    return all(RebalanceProtocol.COOPERATIVE in assignor.protocols for assignor in assignors)


def _sorted(partitions: Sequence[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(*tp) for tp in partitions))
