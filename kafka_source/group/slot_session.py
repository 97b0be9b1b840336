"""A task in an executor that acts as its slot: attach, check, commit.

The driver of a stream, or the keeper of a batch's slots, sends the slot's heartbeats and rejoins. A task has the
credentials of its input partition only. With `commit.transactional` a task fences its earlier attempts when it begins:
all attempts use the transactional id of the slot. Without, each attempt commits the same offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from assignors import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group.committed_offsets import commit_offsets
from kafka_source.group.member import Member, MemberSettings
from kafka_source.group.member_state import Membership, State
from kafka_source.group.renewal import Renewal, by_owner
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient, cached_client
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials

log = logging.getLogger(__name__)

Parts = list[tuple[SlotCredentials, Mapping[TopicPartition, int | CommitOffset]]]
"""The offsets that each of several members commits."""

_SECONDS = 30.0
# Seconds that one heartbeat of a task may take. A frozen coordinator never answers, another one takes its place.
_TRY_SECONDS = 5.0


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
        timeout_s: float = _SECONDS,
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
        self, commit: Callable[[Parts], object], offsets: Mapping[TopicPartition, int | CommitOffset], timeout_s: float
    ) -> None:
        """Call `commit` as this slot; if it is refused and the slot has joined again meanwhile, call it once more.

        Args:
            commit: Commits the offsets of one or several members; raises FencedError if the coordinator refuses them.
            offsets: The next offset to read, by partition.
            timeout_s: For how many seconds to wait for new credentials.

        Raises:
            FencedError: This task has lost the slot.
        """
        self._raise_if_lost()
        try:
            commit(self._parts(offsets))
        except FencedError as error:
            self._client.run(self._renew(error, Deadline(timeout_s)), timeout_s + 1)
            commit(self._parts(offsets))

    def _parts(self, offsets: Mapping[TopicPartition, int | CommitOffset]) -> Parts:
        if not self._owners:
            return [(self.credentials, offsets)]
        return [(owner, {tp: offsets[tp] for tp in part if tp in offsets}) for owner, part in by_owner(self._owners)]

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
            result = await self._member.heartbeat(Deadline(min(deadline.left, _TRY_SECONDS)))
            if result.back_off:
                raise ConnectionLost(f"The coordinator of group {self._credentials.group} is not ready.")

        await self._client.retrying(ask, deadline)

    async def _renew(self, error: FencedError, deadline: Deadline) -> None:
        """Wait until the slot has joined again, and act with its new credentials; else raise the error."""
        if self._renewal is None:
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
