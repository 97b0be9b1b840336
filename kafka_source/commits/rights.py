"""The right of tasks and sinks to commit a batch: how a task acts as a member, and how it gets new credentials.

Tasks and a sink commit with the credentials of slots. The driver or a keeper (`keeper`) holds these slots.

**Acting** as a slot needs only the slot's credentials. A task attaches (`SlotSession`): it verifies the credentials.
With `commit.transactional` all attempts of a task use the slot's transactional id in turn, so they commit in order.

**Renewal**: tasks have the credentials of the batch's plan. If the slots rejoin during the batch, the coordinator
refuses these credentials. Slots rejoin if the group has removed them, or if another read of the driver waits in a join.
So the process that holds the slots publishes the current owner of each partition (`Right`), as committed offsets of a
separate group. A partition that another member may have is published as lost. If a commit is refused, the committer
fetches the owners (`Renewal`).
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, replace

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.commits.side_groups import ASKED, REJOINED, beyond, within
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group.classic.member import Member, MemberSettings
from kafka_source.group.classic.member_state import MemberStatus, State
from kafka_source.group.requests import commit_offsets, fetch_entries
from kafka_source.kafka_client import ConnectionLost, Deadline, KafkaClient, cached_client
from kafka_source.model.commits import CommitOffset, OffsetNote
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import format_partitions

log = logging.getLogger(__name__)

_REMOVED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
_LOOK_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Right:
    """The right to commit a batch with the credentials of slots, in the process that holds the slots.

    Attributes:
        id: The name of published credentials, different after each start of the query; None: no renewal.
        waits: Whether a rejoin for another read of the driver waits until the batch is committed.
    """

    id: str | None
    waits: bool = True

    @property
    def is_renewed(self) -> bool:
        """Whether lost slots rejoin immediately, so that the batch can be committed."""
        return self.id is not None

    async def publish(
        self,
        client: KafkaClient,
        group: str,
        ends: Mapping[TopicPartition, int],
        owners: Mapping[TopicPartition, SlotCredentials],
        deadline: Deadline,
    ) -> None:
        """Publish which slots own the partitions of a batch now.

        Args:
            client: The cluster's client.
            group: The group in which the slots have joined again.
            ends: The next offset after the batch, by partition.
            owners: The credentials of the slot that owns each partition; partitions of other members are left out.
            deadline: The time limit.
        """
        entries = {}
        for tp, end in ends.items():
            owner = owners.get(tp)
            identity = None if owner is None else (owner.generation, owner.member_id, owner.instance_id)
            entries[tp] = CommitOffset(beyond(end), metadata=json.dumps(identity))
        await commit_offsets(client, SlotCredentials.without_membership(REJOINED.of(group, self.id)), entries, deadline)

    async def is_renewal_asked(
        self, client: KafkaClient, group: str, partitions: Collection[TopicPartition], since: int, deadline: Deadline
    ) -> bool:
        """Return whether a task of a batch has requested new credentials; see `Renewal`.

        Args:
            client: The cluster's client.
            group: The group id.
            partitions: The partitions of the batch.
            since: The generation of the refused credentials; requests for earlier generations were answered.
            deadline: The time limit.
        """
        asked = await fetch_entries(client, ASKED.of(group, self.id), partitions, deadline)
        if any(within(entry.offset) >= since for entry in asked.values()):
            return True
        # With a topic, brokers delete the answer to earlier requests.
        return bool(asked) and not await fetch_entries(client, REJOINED.of(group, self.id), partitions, deadline)


@dataclass(frozen=True, slots=True)
class Renewal:
    """How a task or the sink gets new credentials after the coordinator has refused a commit.

    Attributes:
        group: The group whose offsets are committed.
        right: The id of the batch's right, see `Right`.
        ranges: The first offset of the batch and the next offset after the batch, by partition.
        stream: The stream's id; offsets with this id in their metadata are the stream's own commits. None: a batch.
        rewinds: The id of the group's last rewind before the plan, by partition.
    """

    group: str
    right: str
    ranges: Mapping[TopicPartition, tuple[int, int]]
    stream: str | None
    rewinds: Mapping[TopicPartition, str]

    async def wait(
        self, client: KafkaClient, error: FencedError, refused: Set[tuple[int, str]], deadline: Deadline
    ) -> dict[TopicPartition, SlotCredentials]:
        """Wait until the driver has joined again, and return each partition's credentials.

        Args:
            client: The cluster's client.
            error: The refusal. FENCED_INSTANCE_ID: the slot has joined again, or another process has its instance id.
            refused: The generations and member ids that the coordinator has refused.
            deadline: The time limit.

        Raises:
            FencedError: Another member has partitions of the batch or has committed their offsets, the group was
                rewound, or the driver has not joined again in time.
        """
        if error.code not in _REMOVED:
            raise error
        # The driver of a stream joins again without a request.
        has_asked = self.stream is not None
        while True:
            entries = await fetch_entries(client, REJOINED.of(self.group, self.right), self.ranges, deadline)
            owners = {
                tp: json.loads(one.metadata) for tp, one in entries.items() if within(one.offset) == self.ranges[tp][1]
            }
            if lost := sorted(tp for tp, owner in owners.items() if owner is None):
                raise _lost(
                    error, f"another member may have been assigned {format_partitions(lost)}, or has its instance id"
                )
            if moved := await self._moved_by_others(client, deadline):
                raise _lost(error, f"another member or a rewind has changed the offsets of {format_partitions(moved)}")
            # In the consumer protocol one slot may get a new epoch while another keeps its epoch.
            if owners.keys() == self.ranges.keys() and not refused >= {(o[0], o[1]) for o in owners.values()}:
                return {tp: SlotCredentials(self.group, *owner) for tp, owner in owners.items()}
            if not has_asked:
                await self._ask(client, max(generation for generation, _ in refused), deadline)
                has_asked = True
            if deadline.left <= _LOOK_AGAIN_SECONDS:
                raise _lost(error, f"the slot's driver has not joined again within {deadline.seconds:.0f} s")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def _ask(self, client: KafkaClient, generation: int, deadline: Deadline) -> None:
        """Ask the batch's keeper to rejoin: the slots leave if no task commits for a long time."""
        entries = {tp: CommitOffset(beyond(generation)) for tp in self.ranges}
        without_membership = SlotCredentials.without_membership(ASKED.of(self.group, self.right))
        await commit_offsets(client, without_membership, entries, deadline)

    async def check_not_committed(self, client: KafkaClient, deadline: Deadline) -> None:
        """Raise FencedError if the ranges of a batch's task are already committed; do nothing in a stream.

        Only this check stops a second action while the slots of the first action are still in the group.
        """
        if self.stream is not None:
            return
        committed = await fetch_entries(client, self.group, self.ranges, deadline)
        if self.ranges.keys() == {
            tp for tp, entry in committed.items() if OffsetNote.parse(entry.metadata).stream == self.right
        }:
            raise FencedError(
                f"The records of {format_partitions(sorted(self.ranges))} up to the end of this batch are committed in "
                f"group {self.group} already, by an earlier action or by an earlier attempt of this task. With "
                "commit=task a DataFrame can be read once. For several reads, use kafkagroup.pinned or "
                "commit=none."
            )

    async def _moved_by_others(self, client: KafkaClient, deadline: Deadline) -> list[TopicPartition]:
        committed = await fetch_entries(client, self.group, self.ranges, deadline)

        def is_moved(tp: TopicPartition, entry: CommitOffset) -> bool:
            start, end = self.ranges[tp]
            if entry.offset < start:
                # If there was no rewind, the checkpoint is ahead of the group, or retention has deleted records before
                # the start.
                return entry.unfollowed_rewind(self.rewinds.get(tp)) is not None
            is_own = self.stream is not None and OffsetNote.parse(entry.metadata).stream == self.stream
            # The stream itself may have committed the batch, but only a later driver has committed later batches.
            return entry.offset > (end if is_own else start)

        return sorted(tp for tp, entry in committed.items() if is_moved(tp, entry))


def _lost(error: FencedError, why: str) -> FencedError:
    return FencedError(
        f"{error} Since then {why}. Nothing of this batch was committed. Start the query again; it continues at the "
        "group's offsets.",
        code=error.code,
    )


def group_by_owner(
    owners: Mapping[TopicPartition, SlotCredentials],
) -> list[tuple[SlotCredentials, list[TopicPartition]]]:
    """Return the partitions that each owner commits; in the consumer protocol a member commits only its partitions."""
    found: dict[str, tuple[SlotCredentials, list[TopicPartition]]] = {}
    for tp, owner in sorted(owners.items()):
        found.setdefault(owner.member_id, (owner, []))[1].append(tp)
    return list(found.values())


Parts = list[tuple[SlotCredentials, Mapping[TopicPartition, int | CommitOffset]]]
"""The offsets that each of several members commits."""

# The time limit for a task to attach to its slot, and to commit.
_TASK_SECONDS = 30.0
# Seconds that one heartbeat of a task may take. A frozen coordinator never answers, and another broker replaces it.
_HEARTBEAT_SECONDS = 5.0


class SlotSession:
    """A task's session, in which it acts as a slot; created by `attach_all`.

    Args:
        client: The cluster's client.
        credentials: The credentials of the input partition.
        renewal: How the task gets new credentials if the slot has rejoined since the plan; None: the task ends.
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
    ) -> "Future[list[SlotSession | KafkaGroupError]]":
        """Begin to act as slots: verify their credentials by heartbeats, all at the same time.

        Args:
            config: Kafka client settings.
            slots: The credentials of the slots.
            timeout_s: The time limit for the heartbeats.
            renewal: How the task gets new credentials if the slots have rejoined; None: slots do not rejoin.

        Returns:
            The future of each slot's session, or of its error. FencedError: the coordinator rejects the credentials,
            because of a new generation or another owner. RetriableError: the coordinator cannot be reached.
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
        status = self._member.status
        return replace(self._credentials, generation=status.generation, member_id=status.member_id)

    def check(self) -> None:
        """Raise FencedError if this task is known to have lost the slot; send no request."""
        self._raise_if_lost()

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | CommitOffset],
        timeout_s: float = _TASK_SECONDS,
        *,
        has_looked: bool = True,
    ) -> None:
        """Commit the next offsets to read, without a transaction; see `commit_offsets` for `has_looked`.

        Raises:
            FencedError: This task has lost the slot; nothing is committed.
            UnknownTopicError: The topics may differ from the plan's topics.
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
        """Call `commit` as this slot; call it again if it is refused and the slot has joined again since the plan.

        Args:
            commit: Commits the offsets of one or several members; raises FencedError if the coordinator refuses one.
            offsets: The next offset to read, by partition.
            timeout_s: The longest wait for new credentials, in seconds.

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
        """Send heartbeats of the slot's member until the coordinator accepts or refuses a heartbeat."""

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
        state = self._member.status.state
        if state not in (State.LOST, State.FENCED, State.FAILED):
            return
        c = self._credentials
        slot = f"Slot {c.slot} of group {c.group} ({c.instance_id or c.member_id})"
        if state is State.FENCED:
            raise FencedError(
                f"{slot} is now held by another process: a newer attempt of this task, a restarted query, or another "
                "query with the same kafka.group.instance.id.",
                code=ErrorCode.FENCED_INSTANCE_ID,
            )
        # If the member has no id, the coordinator does not know the member. Otherwise only the member's generation is
        # over.
        known = bool(self._member.status.member_id)
        raise FencedError(
            f"{slot} is no longer a member of generation {c.generation}: the group has rebalanced, or the slot sent no "
            "heartbeat for longer than kafka.session.timeout.ms. Its partitions may be assigned to another member.",
            code=ErrorCode.ILLEGAL_GENERATION if known else ErrorCode.UNKNOWN_MEMBER_ID,
        )


def _member_of(client: KafkaClient, credentials: SlotCredentials) -> Member:
    return Member(
        client,
        MemberSettings(group=credentials.group, instance_id=credentials.instance_id),
        MemberStatus(State.STABLE, credentials.member_id, credentials.generation),
    )
