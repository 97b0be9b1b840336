"""A task in an executor that acts as its slot: attach (stream) or take over (batch), check, commit, leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType

from assignors import (
    Assignment,
    Assignor,
    ClusterMetadata,
    GroupSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, KafkaGroupError, RetriableError
from kafka_source.group import leader
from kafka_source.group.claims import without_held
from kafka_source.group.committed_offsets import commit_offsets
from kafka_source.group.description import describe_either
from kafka_source.group.member import Joined, Member, MemberSettings
from kafka_source.group.member_state import Membership, State
from kafka_source.group.model import GroupSettings
from kafka_source.group.renewal import Renewal, by_owner
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient, cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials

log = logging.getLogger(__name__)

Parts = list[tuple[SlotCredentials, Mapping[TopicPartition, int | CommitOffset]]]
"""The offsets that each of several members commits."""

_SECONDS = 30.0
_LEAVE_SECONDS = 5.0
# Seconds that one heartbeat of a task may take. A frozen coordinator never answers, another one takes its place.
_TRY_SECONDS = 5.0
# How many generations later than planned a slot is looked for. Each read of the driver that joins makes one or two.
_MOST_GENERATIONS = 50
# Seconds after which a JoinGroup without a response is assumed to be held until the other members rejoin.
_PARKED_AFTER = 2.0


class SlotSession:
    """The session of a task as its slot, created by `attach_all` or `take_over`.

    As a context manager it stops its heartbeats at the end of the block, and does not leave the group.
    """

    def __init__(
        self,
        client: KafkaClient,
        credentials: SlotCredentials,
        member: Member,
        *,
        taken_over: bool,
        assignors: Sequence[Assignor] = (),
        renewal: Renewal | None = None,
    ) -> None:
        self.taken_over = taken_over
        self._renewal = renewal
        # The owners of the task's partitions after the slot was lost and the driver has joined again.
        self._owners: dict[TopicPartition, SlotCredentials] = {}
        self._refused = {credentials.member_id}
        self._assignors = assignors
        self._client = client
        self._credentials = credentials
        self._member = member
        self._tasks: list[asyncio.Task[None]] = []
        # The JoinGroup of a take-over that the coordinator holds until the next generation starts. Its response brings
        # new credentials.
        self._parked: asyncio.Task[None] | None = None

    @classmethod
    def attach_all(
        cls,
        config: Settings,
        slots: Sequence[SlotCredentials],
        timeout_s: float = _SECONDS,
        renewal: Renewal | None = None,
    ) -> Future[list[SlotSession | KafkaGroupError]]:
        """Begin to act as slots for which the driver sends heartbeats; send one for each to verify the credentials.

        The heartbeats are under way at the same time.

        Args:
            config: Kafka client settings.
            slots: The credentials of the slots.
            timeout_s: The time limit for the heartbeats.
            renewal: How the sessions get new credentials if the group has removed their slots; None: they do not.

        Returns:
            The future of each slot's session, or of its error. FencedError: the coordinator rejects the credentials,
            because the group has a new generation, or the slot another owner. RetriableError: the coordinator cannot
            be reached.
        """
        client = cached_client(config, "task")
        settings = {group: GroupSettings(group) for group in {one.group for one in slots}}
        sessions = [
            cls(client, one, member_of(client, one, settings[one.group]), taken_over=False, renewal=renewal)
            for one in slots
        ]

        async def outcome(session: SlotSession) -> SlotSession | KafkaGroupError:
            try:
                try:
                    await session._verify(Deadline(timeout_s))
                except FencedError as error:
                    await session._renew(error, Deadline(timeout_s))
            except KafkaGroupError as error:
                return error
            return session

        async def outcomes() -> list[SlotSession | KafkaGroupError]:
            return await asyncio.gather(*map(outcome, sessions))

        return client.loop.spawn(outcomes())

    @classmethod
    def take_over(
        cls,
        config: Settings,
        settings: GroupSettings,
        credentials: SlotCredentials,
        assignors: Sequence[Assignor],
        timeout_s: float = _SECONDS,
    ) -> SlotSession:
        """Join as a slot for which no process sends heartbeats any more, and send its heartbeats from now on.

        The task joins with the slot's instance id: the coordinator assigns a new member id in the same generation and
        fences every earlier holder. If the group is already preparing a rebalance, because another slot has left, the
        coordinator would hold JoinGroup until all members have joined. Then the task keeps the slot's credentials: the
        coordinator accepts them until the new generation starts.

        Args:
            config: Kafka client settings.
            settings: Those with which the slot has joined.
            credentials: The slot's credentials from the planner.
            assignors: The query's strategies; one of them assigns if the slot leads a generation.
            timeout_s: The time limit.

        Raises:
            FencedError: The group has a new generation since the batch was planned, or the slot another owner.
            RetriableError: The coordinator cannot be reached.
        """
        client = cached_client(config, "task")
        member = member_of(client, credentials, settings)
        session = cls(client, credentials, member, taken_over=True, assignors=assignors)
        client.run(session._take(settings, Deadline(timeout_s)), timeout_s + 1)
        return session

    @property
    def credentials(self) -> SlotCredentials:
        """The current credentials of the slot."""
        membership = self._member.membership
        return replace(self._credentials, generation=membership.generation, member_id=membership.member_id)

    def check(self) -> None:
        """Raise FencedError if this task is known to have lost the slot; sends no request."""
        self._raise_if_gone()

    def commit(self, offsets: Mapping[TopicPartition, int | CommitOffset], timeout_s: float = _SECONDS) -> None:
        """Commit the next offsets to read, without a transaction.

        Raises:
            FencedError: This task has lost the slot; nothing is committed.
            UnknownOutcomeError: The coordinator has not answered in time.
        """
        deadline = Deadline(timeout_s)

        def commit(parts: Parts) -> None:
            for used, part in parts:
                self._client.run(commit_offsets(self._client, used, part, deadline), timeout_s + 1)

        self.commit_by(commit, offsets, timeout_s)

    def commit_by(
        self, work: Callable[[Parts], object], offsets: Mapping[TopicPartition, int | CommitOffset], timeout_s: float
    ) -> None:
        """Call `work` with the slot's credentials; if they are rejected and have changed meanwhile, call it once more.

        Args:
            work: Commits; raises FencedError if the coordinator rejects the credentials.
            offsets: What to commit.
            timeout_s: For how many seconds to wait for new credentials.

        Raises:
            FencedError: This task has lost the slot.
        """
        self._raise_if_gone()
        used = self.credentials
        try:
            work(self._parts(offsets))
        except FencedError as error:
            if self._renewal is not None:
                self._client.run(self._renew(error, Deadline(timeout_s)), timeout_s + 1)
            else:
                self._client.run(self._answered(), _SECONDS + 1)
                self._client.run(self._catch_up(Deadline(_SECONDS)), _SECONDS + 1)
                self._raise_if_gone()
                if self.credentials == used:
                    raise
            # The held JoinGroup of the take-over was answered meanwhile, or the slot was brought along into a later
            # generation.
            work(self._parts(offsets))

    def _parts(self, offsets: Mapping[TopicPartition, int | CommitOffset]) -> Parts:
        if not self._owners:
            return [(self.credentials, offsets)]
        return [(owner, {tp: offsets[tp] for tp in part if tp in offsets}) for owner, part in by_owner(self._owners)]

    async def _renew(self, error: FencedError, deadline: Deadline) -> None:
        """Wait for the driver to join again, and act with its new credentials; else raise the error."""
        if self._renewal is None:
            raise error
        self._owners = await self._renewal.wait(self._client, error, self._refused, deadline)
        self._refused |= {owner.member_id for owner in self._owners.values()}
        log.info(
            "commit group=%s slot=%d: the slot was lost, and its driver has joined again",
            self._credentials.group,
            self._credentials.slot,
        )
        first = self._owners[min(self._owners)]
        self._member = member_of(self._client, first, GroupSettings(first.group))

    def leave(self) -> None:
        """Leave the group with this slot."""
        self._client.run(self._leave(), _LEAVE_SECONDS + 1)

    def close(self) -> None:
        """Stop the heartbeats; the slot stays a member until its session ends."""
        self._client.loop.call_soon(self._stop)

    def __enter__(self) -> SlotSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- on the event loop

    def _stop(self) -> None:
        while self._tasks:
            self._tasks.pop().cancel()
        self._member.close()

    async def _verify(self, deadline: Deadline) -> None:
        await self._heartbeat(deadline)
        self._raise_if_gone()

    async def _heartbeat(self, deadline: Deadline, member: Member | None = None) -> None:
        """Send a heartbeat of the slot's member, or of another one, until the coordinator has judged it."""
        member = self._member if member is None else member

        async def ask() -> None:
            result = await member.heartbeat(Deadline(min(deadline.left, _TRY_SECONDS)))
            if result.back_off:
                raise ConnectionLost(f"The coordinator of group {self._credentials.group} is not ready.")

        await self._client.retrying(ask, deadline)

    async def _take(self, settings: GroupSettings, deadline: Deadline) -> None:
        await self._heartbeat(deadline)
        if self._may_follow:
            await self._follow(deadline)
        state = self._member.membership.state
        if state is State.FENCED:
            # Usually an earlier attempt of this task has taken the slot over: continue with its member id.
            await self._adopt(deadline)
            state = self._member.membership.state
        if state is State.STABLE:
            await self._join(deadline)
        self._raise_if_gone()
        self._tasks.append(asyncio.ensure_future(self._beat(settings.heartbeat_interval_ms / 1000)))

    @property
    def _may_follow(self) -> bool:
        """Whether the slot may be in a later generation with the member id of the plan; see `_follow`."""
        membership = self._member.membership
        kept = membership.member_id == self._credentials.member_id
        return self.taken_over and membership.state is State.LOST and kept

    async def _follow(self, deadline: Deadline) -> None:
        """Find the generation into which `slot_keeper` has brought the slot while it waited for its task.

        The slot is still the same member only if it was kept without a gap, and `slot_keeper` leaves with a slot that
        does not keep its partitions. A coordinator tells the generation only in its response to JoinGroup, which it may
        hold back, so this asks for one after another.
        """
        planned, member_id = self._member.membership.generation, self._member.membership.member_id
        for generation in range(planned + 1, planned + 1 + _MOST_GENERATIONS):
            found = Membership(State.STABLE, member_id, generation)
            probe = Member(self._client, self._member.settings, found)
            await self._heartbeat(deadline, probe)
            if probe.membership.is_member:
                self._member.membership = probe.membership
                return
            if not probe.membership.member_id:
                return

    async def _catch_up(self, deadline: Deadline) -> None:
        """Look whether the slot has been brought along, after its credentials were refused."""
        if self.taken_over:
            with contextlib.suppress(RetriableError):
                await self._heartbeat(deadline)
                if self._may_follow:
                    await self._follow(deadline)

    async def _adopt(self, deadline: Deadline) -> None:
        """Use the member id that the coordinator has for this slot; fails if its generation cannot be found."""
        described = await describe_either(self._client, self._credentials.group, deadline)
        member_id = described.member_id_of(self._credentials.instance_id)
        if member_id is None:
            raise self._moved_on()
        self._member.membership = Membership(State.STABLE, member_id, self._member.membership.generation)
        await self._heartbeat(deadline)
        if self._member.membership.state is State.LOST and self._member.membership.member_id:
            # The earlier attempt has found the slot in a later generation.
            await self._follow(deadline)

    async def _join(self, deadline: Deadline) -> None:
        # Join with the instance id and without a member id: the coordinator then gives the slot a new member id.
        joining = Member(self._client, self._member.settings)
        joining.id_before = self.credentials.member_id
        # The coordinator answers a JoinGroup that it holds when the rebalance timeout expires, at the latest.
        answered = Deadline(self._member.settings.rebalance_timeout_ms / 1000 + _SECONDS)
        task = asyncio.ensure_future(self._join_as(joining, answered))
        try:
            done, _ = await asyncio.wait([task], timeout=_PARKED_AFTER)
            if done:
                task.result()
                return
            # Another slot has left between our heartbeat and our JoinGroup, so the coordinator holds the request. It
            # has already given the slot a new member id, and accepts that id until the next generation starts. Then it
            # answers.
            log.info(
                "take over group=%s slot=%d: JoinGroup waits for the next generation",
                self._credentials.group,
                self._credentials.slot,
            )
            await self._adopt(deadline)
        except BaseException:
            # Else it would join some day, as a member without heartbeats that holds the slot's partitions.
            task.cancel()
            joining.close()
            raise
        self._parked = task
        self._tasks.append(task)

    async def _answered(self) -> None:
        if self._parked is not None:
            await asyncio.wait([self._parked], timeout=_SECONDS)

    async def _join_as(self, joining: Member, deadline: Deadline) -> None:
        async def lead(joined: Joined) -> Mapping[str, bytes]:
            # A take-over keeps the assignment (KIP-814), so this is called only for a new generation, which starts when
            # all other slots have left or joined.
            return await lead_for_tasks(self._client, self._credentials.group, self._assignors, joined, deadline)

        try:
            state = await joining.join(claiming(self.credentials), lead, deadline, "a task takes its slot over")
        except KafkaGroupError as error:
            log.warning("take over group=%s slot=%d: %s", self._credentials.group, self._credentials.slot, error)
            raise
        self._member = joining
        if joining.membership.generation != self._credentials.generation:
            self._check_still_ours(state)

    def _check_still_ours(self, state: bytes) -> None:
        """Accept a later generation than the planned one only if this slot still owns the planned partitions."""
        assignment, held = without_held(decode_assignment(state))
        if not set(self._credentials.partitions) <= {*assignment.partitions, *held}:
            self._member.membership = replace(self._member.membership, state=State.LOST)
            raise self._moved_on()

    async def _beat(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await self._member.heartbeat(Deadline(interval))
                if self._may_follow:
                    await self._follow(Deadline(interval))
            except KafkaGroupError as error:
                # Authentication that fails now may succeed later. If it does not, the session ends and the coordinator
                # rejects the commit.
                log.info(
                    "heartbeat group=%s slot=%d failed: %s", self._credentials.group, self._credentials.slot, error
                )
                continue
            if not self._member.membership.is_member and not self._between_generations:
                log.warning(
                    "heartbeat group=%s slot=%d now=%r",
                    self._credentials.group,
                    self._credentials.slot,
                    self._member.membership.state.value,
                )
                return

    @property
    def _between_generations(self) -> bool:
        """Whether the generation of the take-over has ended and the response to the held JoinGroup is outstanding."""
        lost = self._member.membership.state is State.LOST
        return lost and self._parked is not None and not self._parked.done()

    async def _leave(self) -> None:
        self._stop()
        await self._member.leave(Deadline(_LEAVE_SECONDS), "the task is done")

    def _raise_if_gone(self) -> None:
        state = self._member.membership.state
        if state in (State.LOST, State.FENCED, State.FAILED) and not self._between_generations:
            raise self._moved_on(state)

    def _moved_on(self, state: State = State.LOST) -> FencedError:
        c = self._credentials
        who = f"Slot {c.slot} of group {c.group} ({c.instance_id or c.member_id})"
        if state is State.FENCED:
            return FencedError(
                f"{who} is now held by another process: a newer attempt of this task, a restarted query, or another "
                "query with the same kafka.group.instance.id.",
                code=ErrorCode.FENCED_INSTANCE_ID,
            )
        # Without a member id the coordinator does not know the member; with one it is a member of a later generation.
        known = bool(self._member.membership.member_id)
        return FencedError(
            f"{who} is no longer a member of generation {c.generation}: the group has rebalanced, or the slot sent no "
            "heartbeat for longer than kafka.session.timeout.ms. Its partitions may be assigned to another member.",
            code=ErrorCode.ILLEGAL_GENERATION if known else ErrorCode.UNKNOWN_MEMBER_ID,
        )


def claiming(credentials: SlotCredentials) -> tuple[tuple[str, bytes], ...]:
    """Return the metadata for a take-over: the slot's own metadata, with the partitions that it owns."""
    return tuple(
        (
            name,
            encode_subscription(
                replace(decode_subscription(metadata), owned=credentials.partitions, generation=credentials.generation)
            ),
        )
        for name, metadata in credentials.protocols
    )


async def lead_for_tasks(
    client: KafkaClient, group: str, assignors: Sequence[Assignor], joined: Joined, deadline: Deadline
) -> Mapping[str, bytes]:
    """Return each member's assignment, by member id: all keep what their tasks read, the rest goes to the others.

    Args:
        client: The cluster's client.
        group: The group id.
        assignors: The strategies that the slot has offered; the group has chosen one of them.
        joined: The leader's response to JoinGroup.
        deadline: The time limit.
    """
    strategy = {assignor.name: assignor for assignor in assignors}[joined.protocol]
    return (await leader.lead(client, group, KeepsOwned(strategy), joined, deadline)).states


class KeepsOwned(Assignor):
    """Keeps each member's partitions, and assigns only the other partitions, to members that own none.

    It is for the rare generation that starts while tasks read their planned partitions.

    Args:
        other: The assignor for the other partitions; this assignor has its name.
    """

    def __init__(self, other: Assignor) -> None:
        self.name = other.name  # type: ignore[misc]
        self.redundant = other.redundant  # type: ignore[misc]
        self._other = other

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """See `Assignor.assign`."""
        claims = Counter(tp for subscription in group.values() for tp in set(subscription.owned))
        kept = {
            member: [
                tp
                for tp in subscription.owned
                if (claims[tp] == 1 or self.redundant) and tp.partition < cluster.partitions.get(tp.topic, 0)
            ]
            for member, subscription in group.items()
        }
        taken = {tp for partitions in kept.values() for tp in partitions}
        idle = {member: subscription for member, subscription in group.items() if not kept[member]}
        rest = self._other.assign(cluster, idle) if idle else {}
        return {
            member: Assignment((*kept[member], *(tp for tp in rest[member].partitions if tp not in taken)))
            if member in rest
            else Assignment(tuple(kept[member]))
            for member in group
        }


def member_of(client: KafkaClient, credentials: SlotCredentials, settings: GroupSettings) -> Member:
    """Return a member that continues as the slot with these credentials."""
    return Member(
        client,
        MemberSettings(
            group=credentials.group,
            instance_id=credentials.instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
        ),
        Membership(State.STABLE, credentials.member_id, credentials.generation),
    )
