"""One slot: what it tells its group; how a task acts as it, notices that it is lost, and gets new credentials.

**Holding** a slot means to be its member: `Slot` has the subscription metadata, the assignors and the assignment.

**Acting** as a slot needs its credentials only. A task attaches (`SlotSession`): it verifies them, reads, and
commits. With `commit.transactional` a task fences its earlier attempts when it begins: all attempts use the
transactional id of the slot. Without, each attempt commits the same offsets.

**Renewal**: with `commit=task` and `commit=sink`, tasks or the sink commit with credentials that they were given when
the batch was planned. If the slots join again in the middle of the batch, because the group has removed them or
another read of the driver waits in a join, the coordinator refuses these credentials. So whoever holds the slots
publishes for each partition of the batch who owns it now, as committed offsets of a separate group. Whoever is
refused a commit looks there. A partition that another member may have is published as lost. The keeper of a batch has
left if no task has committed for long: a task that comes then asks it to join again, in the same way.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, replace

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
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group import strategies
from kafka_source.group.leader import without_held
from kafka_source.group.member import Member, MemberSettings
from kafka_source.group.member_state import Membership, State
from kafka_source.group.model import GroupSettings, SlotAssignment
from kafka_source.group.requests import commit_offsets, fetch_entries, leave_group
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient, cached_client
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import format_partitions
from kafka_source.model.side_groups import ASKED, REJOINED, beyond, within

log = logging.getLogger(__name__)


class Slot:
    """A slot of a query.

    Args:
        number: The slot's number, from 0.
        client: The cluster's client.
        settings: The settings of all slots.
        assignors: The supported assignors in order of preference. The slot copies them, because an assignor object may
            keep state of one member.
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
        # Taken away from this slot, and given to nobody until it rejoins: its micro-batch still reads them.
        self.held: tuple[TopicPartition, ...] = ()
        self.protocols: tuple[tuple[str, bytes], ...] = ()
        self._rack = settings.rack
        self._rewinds = settings.rewinds
        self._assignors = {assignor.name: copy.deepcopy(assignor) for assignor in assignors}
        self._cooperative = is_cooperative(assignors)
        self._claimed: frozenset[TopicPartition] = frozenset()
        # The generation in which this slot was a member when it joined last; None: it was none.
        self.assigned_in: int | None = None
        # Told as metadata: where it has changed, the rejoin of a follower starts a rebalance, too.
        self.told_generation = NO_GENERATION

    @property
    def leading(self) -> bool:
        """Whether this slot was the leader when it last joined."""
        return self.member.joined is not None and self.member.joined.leading

    @property
    def generation(self) -> int:
        """The generation in which this slot last joined."""
        return self.member.membership.generation

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
        """Return this slot's assignor of the name that the group chose."""
        return self._assignors[name]

    def record_throughput(self, measures: Measures) -> None:
        """Let the assignors tell this to the leader of the next rebalance."""
        for assignor in self._assignors.values():
            assignor.on_measures(measures)

    def subscribe(
        self, topics: Sequence[str], in_flight: Collection[TopicPartition] = frozenset()
    ) -> Sequence[tuple[str, bytes]]:
        """Return the assignors' names and this slot's metadata for them, for JoinGroup.

        Args:
            topics: The topics to subscribe to.
            in_flight: The partitions of the batch in flight. The slot claims those that it has, under every
                strategy; see `leader`.
        """
        # Claim partitions only while this slot is a member: after it was removed, others may own them.
        known = self.member.membership.is_member
        self.assigned_in = self.generation if known else None
        wanted = frozenset(topics)
        claimed = tuple(sorted(tp for tp in (*self.assignment.partitions, *self.held) if known and tp in in_flight))
        owned = tuple(tp for tp in self.assignment.partitions if known and self._cooperative and tp.topic in wanted)
        # Partitions in flight stay claimed even if the query's pattern does not match their topic any more.
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
        """Continue as the member that another process has joined as."""
        self.member.membership = Membership(State.STABLE, credentials.member_id, credentials.generation)
        self.member.id_before = credentials.member_id
        self.assignment = Assignment(credentials.partitions)

    def store_assignment(self, state: bytes, in_flight: Collection[TopicPartition] = frozenset()) -> bool:
        """Store the new assignment; return whether partitions were revoked, so that another rebalance must follow.

        Revoked partitions of the batch in flight are `held`: the slot commits them before it rejoins.

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
            # What an eager strategy took away without holding it has an owner already.
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
            # Under a redundant strategy a partition has several owners, so there is nothing to hold back.
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
        membership, settings = self.member.membership, self.member.settings
        replicas = self._replicas()
        return SlotCredentials(
            settings.group,
            membership.generation,
            membership.member_id,
            settings.instance_id,
            self.number,
            tuple(tp for tp in _sorted(self.assignment.partitions) if tp not in replicas),
        )

    async def handle_commit_error(self, used: SlotCredentials, code: int) -> None:
        """Update the membership with the error code of a commit; it means what that of a heartbeat means.

        Args:
            used: The credentials of the commit; those of an earlier generation say nothing about this one.
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
    """Leave the group with these slots in one request, so that it rebalances once.

    Raises:
        RetriableError: The coordinator could not be reached in time. The slots stay until their sessions end.
    """
    members = [slot.member for slot in slots if slot.member.may_be_known]
    if members:
        leaving = [(member.membership.member_id, member.settings.instance_id) for member in members]
        await leave_group(client, group, leaving, reason, deadline)
        log.info("leave group=%s slots=%d reason=%r", group, len(members), reason)
    for slot in slots:
        slot.member.note_left()


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Return whether members keep their partitions during a rebalance, which needs all assignors to be cooperative."""
    return all(RebalanceProtocol.COOPERATIVE in assignor.protocols for assignor in assignors)


def _sorted(partitions: Sequence[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(*tp) for tp in partitions))


_REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
_LOOK_AGAIN_SECONDS = 0.2


async def publish_owners(
    client: KafkaClient,
    group: str,
    publisher: str,
    ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, SlotCredentials],
    deadline: Deadline,
) -> None:
    """Publish who owns the partitions of a batch now.

    Args:
        client: The cluster's client.
        group: The group in which the driver has joined again.
        publisher: The driver's name, different after each start of the query.
        ends: The next offset after the batch, by partition.
        owners: The credentials of the slot that owns each partition; without those that another member has.
        deadline: The time limit.
    """
    entries = {}
    for tp, end in ends.items():
        owner = owners.get(tp)
        identity = None if owner is None else (owner.generation, owner.member_id, owner.instance_id)
        entries[tp] = CommitOffset(beyond(end), metadata=json.dumps(identity))
    await commit_offsets(client, SlotCredentials.without_membership(REJOINED.of(group, publisher)), entries, deadline)


async def is_renewal_asked(
    client: KafkaClient,
    group: str,
    publisher: str,
    partitions: Collection[TopicPartition],
    since: int,
    deadline: Deadline,
) -> bool:
    """Return whether a task of a batch has asked for new credentials; see `Renewal`.

    Args:
        client: The cluster's client.
        group: The group id.
        publisher: The name of the batch's keeper.
        partitions: The partitions of the batch.
        since: The generation of the credentials that are refused now; those who asked for later ones have got them.
        deadline: The time limit.
    """
    asked = await fetch_entries(client, ASKED.of(group, publisher), partitions, deadline)
    return any(within(entry.offset) >= since for entry in asked.values())


@dataclass(frozen=True, slots=True)
class Renewal:
    """How a committer of a batch gets new credentials after its own were refused.

    Attributes:
        group: The group whose offsets are committed.
        publisher: The driver's name.
        ranges: The first offset to commit over and the next offset after the batch, by partition.
        stream: The stream's id: offsets with its note are the stream's own commits. None: a batch.
    """

    group: str
    publisher: str
    ranges: Mapping[TopicPartition, tuple[int, int]]
    stream: str | None

    async def wait(
        self, client: KafkaClient, error: FencedError, refused: Set[tuple[int, str]], deadline: Deadline
    ) -> dict[TopicPartition, SlotCredentials]:
        """Wait until the driver has joined again, and return the credentials with which each partition is committed.

        Args:
            client: The cluster's client.
            error: The refusal. FENCED_INSTANCE_ID is one too: the slot has joined again already, if it was not another
                process with its instance id.
            refused: The generations and member ids that the coordinator has refused.
            deadline: The time limit.

        Raises:
            FencedError: Another member has partitions of the batch, or has committed offsets inside of it; or the
                driver has not joined again in time.
        """
        if error.code not in _REMOVED:
            raise error
        # The driver of a stream joins again by itself.
        has_asked = self.stream is not None
        while True:
            entries = await fetch_entries(client, REJOINED.of(self.group, self.publisher), self.ranges, deadline)
            owners = {
                tp: json.loads(one.metadata) for tp, one in entries.items() if within(one.offset) == self.ranges[tp][1]
            }
            if lost := sorted(tp for tp, owner in owners.items() if owner is None):
                raise _lost(
                    error, f"another member may have been assigned {format_partitions(lost)}, or has its instance id"
                )
            if read := await self._read_by_others(client, deadline):
                raise _lost(error, f"another member has read records of {format_partitions(read)}")
            # Where the brokers assign, one slot has a new epoch and another one keeps its own.
            if owners.keys() == self.ranges.keys() and not refused >= {(o[0], o[1]) for o in owners.values()}:
                return {tp: SlotCredentials(self.group, *owner) for tp, owner in owners.items()}
            if not has_asked:
                await self._ask(client, max(generation for generation, _ in refused), deadline)
                has_asked = True
            if deadline.left <= _LOOK_AGAIN_SECONDS:
                raise _lost(error, f"no driver has joined for it again within {deadline.seconds:.0f} s")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def _ask(self, client: KafkaClient, generation: int, deadline: Deadline) -> None:
        """Ask the keeper of the batch to join again: it has left if no task had committed for long."""
        entries = {tp: CommitOffset(beyond(generation)) for tp in self.ranges}
        without_membership = SlotCredentials.without_membership(ASKED.of(self.group, self.publisher))
        await commit_offsets(client, without_membership, entries, deadline)

    async def check_not_committed(self, client: KafkaClient, deadline: Deadline) -> None:
        """Raise FencedError if a task of a batch has been committed already; a stream may read a batch again.

        Nothing else stops a second action that runs while the slots of the first one are still in their group.
        """
        if self.stream is not None:
            return
        committed = await fetch_entries(client, self.group, self.ranges, deadline)
        if self.ranges.keys() == {
            tp for tp, entry in committed.items() if OffsetNote.parse(entry.metadata).stream == self.publisher
        }:
            raise FencedError(
                f"The records of {format_partitions(sorted(self.ranges))} up to the end of this batch are committed in "
                f"group {self.group} already, by an earlier action or by an earlier attempt of this task. With "
                "commit=task a DataFrame can be read once. To read it more than once, use kafkagroup.pinned or "
                "commit=none."
            )

    async def _read_by_others(self, client: KafkaClient, deadline: Deadline) -> list[TopicPartition]:
        committed = await fetch_entries(client, self.group, self.ranges, deadline)
        return sorted(
            tp
            for tp, entry in committed.items()
            if entry.offset > self.ranges[tp][0]
            and (self.stream is None or OffsetNote.parse(entry.metadata).stream != self.stream)
        )


def _lost(error: FencedError, why: str) -> FencedError:
    return FencedError(
        f"{error} Since then {why}. Nothing of this batch was committed. Start the query again; it continues at the "
        "group's offsets.",
        code=error.code,
    )


def group_by_owner(
    owners: Mapping[TopicPartition, SlotCredentials],
) -> list[tuple[SlotCredentials, list[TopicPartition]]]:
    """Return what each of the owners has to commit; where the brokers assign, no member commits for another one."""
    found: dict[str, tuple[SlotCredentials, list[TopicPartition]]] = {}
    for tp, owner in sorted(owners.items()):
        found.setdefault(owner.member_id, (owner, []))[1].append(tp)
    return list(found.values())


Parts = list[tuple[SlotCredentials, Mapping[TopicPartition, int | CommitOffset]]]
"""The offsets that each of several members commits."""

# How long a task tries to act as its slot, and to commit.
_TASK_SECONDS = 30.0
# Seconds that one heartbeat of a task may take. A frozen coordinator never answers, another one takes its place.
_HEARTBEAT_SECONDS = 5.0


class SlotSession:
    """The session of a task as its slot, created by `attach_all`.

    Args:
        client: The cluster's client.
        credentials: Those of the input partition.
        renewal: How to get new credentials if the slot has joined again since; None: the task ends then.
    """

    def __init__(self, client: KafkaClient, credentials: SlotCredentials, renewal: Renewal | None = None) -> None:
        self._client = client
        self._credentials = credentials
        self._renewal = renewal
        self._member = _member_of(client, credentials)
        # The owners of the task's partitions after the slot has joined again.
        self._owners: dict[TopicPartition, SlotCredentials] = {}
        self._refused = {(credentials.generation, credentials.member_id)}

    @classmethod
    def attach_all(
        cls,
        config: Settings,
        slots: Sequence[SlotCredentials],
        timeout_s: float = _TASK_SECONDS,
        renewal: Renewal | None = None,
    ) -> Future[list[SlotSession | KafkaGroupError]]:
        """Begin to act as slots; send a heartbeat for each to verify the credentials, all at the same time.

        Args:
            config: Kafka client settings.
            slots: The credentials of the slots.
            timeout_s: The time limit for the heartbeats.
            renewal: How the sessions get new credentials if their slots have joined again; None: they do not.

        Returns:
            The future of each slot's session, or of its error. FencedError: the coordinator rejects the credentials,
            because the group has a new generation, or the slot another owner. RetriableError: the coordinator cannot
            be reached.
        """
        client = cached_client(config, "task")
        sessions = [cls(client, one, renewal) for one in slots]

        async def outcome(session: SlotSession) -> SlotSession | KafkaGroupError:
            try:
                await session._attach(Deadline(timeout_s))
            except KafkaGroupError as error:
                return error
            return session

        async def outcomes() -> list[SlotSession | KafkaGroupError]:
            return await asyncio.gather(*map(outcome, sessions))

        return client.loop.spawn(outcomes())

    @property
    def credentials(self) -> SlotCredentials:
        """The current credentials of the slot."""
        membership = self._member.membership
        return replace(self._credentials, generation=membership.generation, member_id=membership.member_id)

    def check(self) -> None:
        """Raise FencedError if this task is known to have lost the slot; sends no request."""
        self._raise_if_lost()

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | CommitOffset],
        timeout_s: float = _TASK_SECONDS,
        *,
        has_looked: bool = True,
    ) -> None:
        """Commit the next offsets to read, without a transaction; `has_looked` is that of `commit_offsets`.

        Raises:
            FencedError: This task has lost the slot; nothing is committed.
            UnknownTopicError: Nobody `has_looked`, and the coordinator does not say that the topics are the same.
            UnknownOutcomeError: The coordinator has not answered in time.
        """
        deadline = Deadline(timeout_s)

        def commit(parts: Parts) -> None:
            for used, part in parts:
                work = commit_offsets(self._client, used, part, deadline, has_looked=has_looked)
                self._client.run(work, timeout_s + 1)

        self.commit_by(commit, offsets, timeout_s)

    def commit_by(
        self, commit: Callable[[Parts], object], offsets: Mapping[TopicPartition, int | CommitOffset], timeout_s: float
    ) -> None:
        """Call `commit` as this slot; if it is refused and the slot has joined again meanwhile, call it again.

        Args:
            commit: Commits the offsets of one or several members; raises FencedError if the coordinator refuses them.
            offsets: The next offset to read, by partition.
            timeout_s: For how many seconds to wait for new credentials.

        Raises:
            FencedError: This task has lost the slot.
        """
        self._raise_if_lost()
        deadline = Deadline(timeout_s)
        while True:
            try:
                commit(self._parts(offsets))
            except FencedError as error:
                self._client.run(self._renew(error, deadline), timeout_s + 1)
            else:
                return

    def _parts(self, offsets: Mapping[TopicPartition, int | CommitOffset]) -> Parts:
        if not self._owners:
            return [(self.credentials, offsets)]
        return [
            (owner, {tp: offsets[tp] for tp in part if tp in offsets}) for owner, part in group_by_owner(self._owners)
        ]

    async def _attach(self, deadline: Deadline) -> None:
        if self._renewal is not None:
            await self._renewal.check_not_committed(self._client, deadline)
        try:
            await self._heartbeat(deadline)
            self._raise_if_lost()
        except FencedError as error:
            await self._renew(error, deadline)

    async def _heartbeat(self, deadline: Deadline) -> None:
        """Send a heartbeat of the slot's member until the coordinator has judged it."""

        async def ask() -> None:
            result = await self._member.heartbeat(Deadline(min(deadline.left, _HEARTBEAT_SECONDS)))
            if result.back_off:
                raise ConnectionLost(f"The coordinator of group {self._credentials.group} is not ready.")

        await self._client.retrying(ask, deadline)

    async def _renew(self, error: FencedError, deadline: Deadline) -> None:
        """Wait until the slot has joined again, and act with its new credentials; else raise the error."""
        if self._renewal is None or deadline.over:
            raise error
        self._owners = await self._renewal.wait(self._client, error, self._refused, deadline)
        self._refused |= {(owner.generation, owner.member_id) for owner in self._owners.values()}
        log.info(
            "commit group=%s slot=%d: the slot has joined again since the batch was planned",
            self._credentials.group,
            self._credentials.slot,
        )
        self._member = _member_of(self._client, self._owners[min(self._owners)])

    def _raise_if_lost(self) -> None:
        state = self._member.membership.state
        if state not in (State.LOST, State.FENCED, State.FAILED):
            return
        c = self._credentials
        who = f"Slot {c.slot} of group {c.group} ({c.instance_id or c.member_id})"
        if state is State.FENCED:
            raise FencedError(
                f"{who} is now held by another process: a newer attempt of this task, a restarted query, or another "
                "query with the same kafka.group.instance.id.",
                code=ErrorCode.FENCED_INSTANCE_ID,
            )
        # Without a member id the coordinator does not know the member; with one it is a member of a later generation.
        known = bool(self._member.membership.member_id)
        raise FencedError(
            f"{who} is no longer a member of generation {c.generation}: the group has rebalanced, or the slot sent no "
            "heartbeat for longer than kafka.session.timeout.ms. Its partitions may be assigned to another member.",
            code=ErrorCode.ILLEGAL_GENERATION if known else ErrorCode.UNKNOWN_MEMBER_ID,
        )


def _member_of(client: KafkaClient, credentials: SlotCredentials) -> Member:
    return Member(
        client,
        MemberSettings(group=credentials.group, instance_id=credentials.instance_id),
        Membership(State.STABLE, credentials.member_id, credentials.generation),
    )
