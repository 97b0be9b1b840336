"""An executor acting as its slot: attach (streaming) or take over (batch), check, commit, leave."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
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
    load,
)
from kafka_source.client_config import Settings
from kafka_source.error_codes import FENCED_INSTANCE_ID, ILLEGAL_GENERATION
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group import leader
from kafka_source.group.committed_offsets import commit_offsets
from kafka_source.group.description import describe
from kafka_source.group.member import Joined, Member, MemberSettings
from kafka_source.group.member_state import Membership, State
from kafka_source.group.model import GroupSettings
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient, cached_client
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.model.credentials import SlotCredentials

log = logging.getLogger(__name__)

_SECONDS = 30.0
_LEAVE_SECONDS = 5.0
_PARKED_AFTER = 2.0


class SlotSession:
    """A context manager; made by `attach` or `take_over`. On leaving the block heartbeats stop; it does not leave."""

    def __init__(self, client: KafkaClient, credentials: SlotCredentials, member: Member, *, taken_over: bool) -> None:
        self.taken_over = taken_over
        self._client = client
        self._credentials = credentials
        self._member = member
        self._tasks: list[asyncio.Task[None]] = []
        # A take-over that is parked; its answer, with the group's next generation, brings other credentials.
        self._parked: asyncio.Task[None] | None = None

    @classmethod
    def attach(cls, config: Settings, credentials: SlotCredentials, timeout_s: float = _SECONDS) -> SlotSession:
        """Act as a slot that the driver keeps alive: one heartbeat shows that the credentials are the group's.

        Raises:
            FencedError: They are not: the group has moved on.
            RetriableError: The coordinator cannot be reached.
        """
        client = cached_client(config, "task")
        member = _member(client, credentials, GroupSettings(credentials.group))
        session = cls(client, credentials, member, taken_over=False)
        client.run(session._verify(Deadline(timeout_s)), timeout_s + 1)
        return session

    @classmethod
    def take_over(
        cls, config: Settings, settings: GroupSettings, credentials: SlotCredentials, timeout_s: float = _SECONDS
    ) -> SlotSession:
        """Become a slot that nobody keeps alive any more, and keep it alive.

        The static take-over gives the slot a new member id in the same generation and fences every earlier holder.
        Where the group is rebalancing already (another slot has left) a join would be parked until all have joined:
        there the credentials are kept as they are, for they serve until the new generation begins.

        Raises:
            FencedError: The group has moved on since the plan was made.
            RetriableError: The coordinator cannot be reached.
        """
        client = cached_client(config, "task")
        member = _member(client, credentials, settings)
        session = cls(client, credentials, member, taken_over=True)
        client.run(session._take(settings, Deadline(timeout_s)), timeout_s + 1)
        return session

    @property
    def credentials(self) -> SlotCredentials:
        """The slot's, as they are now."""
        membership = self._member.membership
        return replace(self._credentials, generation=membership.generation, member_id=membership.member_id)

    def check(self) -> None:
        """Raises FencedError if the slot is known to be no longer ours; asks nobody."""
        self._raise_if_gone()

    def commit(self, offsets: Mapping[TopicPartition, int | CommitOffset], timeout_s: float = _SECONDS) -> None:
        """Commits the offsets to read next, without a transaction.

        Raises:
            FencedError: The slot is no longer ours; nothing is committed.
            UnknownOutcomeError: No answer in time.
        """
        deadline = Deadline(timeout_s)
        self.acting(lambda used: self._client.run(commit_offsets(self._client, used, offsets, deadline), timeout_s + 1))

    def acting(self, work: Callable[[SlotCredentials], object]) -> None:
        """Does work that needs the slot's credentials, and if they are new ones by then, once more.

        Args:
            work: Raises FencedError if the group does not take them.

        Raises:
            FencedError: The slot is no longer ours.
        """
        self._raise_if_gone()
        used = self.credentials
        try:
            work(used)
        except FencedError:
            self._client.run(self._answered(), _SECONDS + 1)
            self._raise_if_gone()
            if self.credentials == used:
                raise
            # The parked take-over was answered meanwhile: the slot is in the new generation.
            work(self.credentials)

    def leave(self) -> None:
        """Leaves the group with this slot."""
        self._client.run(self._leave(), _LEAVE_SECONDS + 1)

    def close(self) -> None:
        """Stops the heartbeats; the slot stays a member until its session ends."""
        self._client.loop.call_soon(self._stop)

    def __enter__(self) -> SlotSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- on the loop

    def _stop(self) -> None:
        while self._tasks:
            self._tasks.pop().cancel()
        self._member.close()

    async def _verify(self, deadline: Deadline) -> None:
        await self._heartbeat(deadline)
        self._raise_if_gone()

    async def _heartbeat(self, deadline: Deadline) -> None:
        async def ask() -> None:
            result = await self._member.heartbeat(deadline)
            if result.back_off:
                raise ConnectionLost(f"The coordinator of group {self._credentials.group} is not ready.")

        await self._client.retrying(ask, deadline)

    async def _take(self, settings: GroupSettings, deadline: Deadline) -> None:
        await self._heartbeat(deadline)
        state = self._member.membership.state
        if state is State.FENCED:
            # By an earlier attempt of this task, as a rule: go on from where that stands.
            await self._adopt(deadline)
            state = self._member.membership.state
        if state is State.STABLE:
            await self._join(deadline)
        self._raise_if_gone()
        self._tasks.append(asyncio.ensure_future(self._beat(settings.heartbeat_interval_ms / 1000)))

    async def _adopt(self, deadline: Deadline) -> None:
        """Takes the member id that the group knows for this slot, if it still is of the planned generation."""
        described = await describe(self._client, self._credentials.group, deadline)
        member_id = described.member_id_of(self._credentials.instance_id)
        if member_id is None:
            raise self._moved_on()
        self._member.membership = Membership(State.STABLE, member_id, self._credentials.generation)
        await self._heartbeat(deadline)

    async def _join(self, deadline: Deadline) -> None:
        # As a stranger with the instance id: that is what makes the coordinator give the slot a new member id.
        joining = Member(self._client, self._member.settings)
        # A parked join is answered at the latest when the rebalance timeout is over.
        answered = Deadline(self._member.settings.rebalance_timeout_ms / 1000 + _SECONDS)
        task = asyncio.ensure_future(self._join_as(joining, answered))
        done, _ = await asyncio.wait([task], timeout=_PARKED_AFTER)
        if done:
            task.result()
            return
        # Another slot left between our heartbeat and our join, which is parked now. The group has noted our new member
        # id; it serves until the next generation begins, and then the join is answered.
        log.info("take over group=%s slot=%d: the join is parked", self._credentials.group, self._credentials.slot)
        await self._adopt(deadline)
        self._parked = task
        self._tasks.append(task)

    async def _answered(self) -> None:
        if self._parked is not None:
            await asyncio.wait([self._parked], timeout=_SECONDS)

    async def _join_as(self, joining: Member, deadline: Deadline) -> None:
        async def lead(joined: Joined) -> Mapping[str, bytes]:
            # What is taken over holds (KIP-814); this is for a new generation, once all others have left or joined.
            assignor = KeepsOwned(load(joined.protocol))
            return (await leader.lead(self._client, self._credentials.group, assignor, joined, deadline)).states

        try:
            state = await joining.join(claiming(self._credentials), lead, deadline, "a task takes its slot over")
        except KafkaGroupError as error:
            log.warning("take over group=%s slot=%d: %s", self._credentials.group, self._credentials.slot, error)
            raise
        self._member = joining
        if joining.membership.generation != self._credentials.generation:
            self._check_still_ours(state)

    def _check_still_ours(self, state: bytes) -> None:
        """A generation later than the plan's will do if what was planned is still this slot's."""
        if not set(self._credentials.partitions) <= set(decode_assignment(state).partitions):
            self._member.membership = replace(self._member.membership, state=State.LOST)
            raise self._moved_on()

    async def _beat(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                result = await self._member.heartbeat(Deadline(interval))
            except KafkaGroupError as error:
                # A login that fails may succeed again; if it does not, the session ends and the commit is refused.
                log.info(
                    "heartbeat group=%s slot=%d failed: %s", self._credentials.group, self._credentials.slot, error
                )
                continue
            if not result.membership.is_member and not self._between_generations:
                log.warning(
                    "heartbeat group=%s slot=%d now=%r",
                    self._credentials.group,
                    self._credentials.slot,
                    result.membership.state.value,
                )
                return

    @property
    def _between_generations(self) -> bool:
        """Whether the generation of the take-over has ended, and the answer for the next one is on its way."""
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
                f"{who} is held by another process now: a newer attempt of this task, a restarted query, or another "
                "query with the same kafka.group.instance.id.",
                code=FENCED_INSTANCE_ID,
            )
        return FencedError(
            f"{who} is no longer a member of generation {c.generation}: the group has rebalanced, or the slot was "
            "silent for longer than kafka.session.timeout.ms. Its partitions may be another member's by now.",
            code=ILLEGAL_GENERATION,
        )


def claiming(credentials: SlotCredentials) -> tuple[tuple[str, bytes], ...]:
    """What a take-over says: the slot's own words, and which partitions it holds."""
    return tuple(
        (
            name,
            encode_subscription(
                replace(decode_subscription(metadata), owned=credentials.partitions, generation=credentials.generation)
            ),
        )
        for name, metadata in credentials.protocols
    )


class KeepsOwned(Assignor):
    """Leaves to each member what it holds, and gives only the rest to those who hold nothing.

    For the rare generation that begins while tasks read what they were planned to read.

    Args:
        other: Shares out the rest, and gives it its name.
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


def _member(client: KafkaClient, credentials: SlotCredentials, settings: GroupSettings) -> Member:
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
