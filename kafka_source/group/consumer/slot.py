"""One slot as a member of the consumer protocol: its heartbeats, its partitions, and the partitions to release."""

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from itertools import groupby

from assignors.model import TopicPartition
from kafka_source.error_codes import NONE, ErrorCode
from kafka_source.errors import (
    AuthenticationError,
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    error_for_code,
)
from kafka_source.group.consumer import member_state
from kafka_source.group.consumer.member_state import Answer, IdPartition, State, Subscription
from kafka_source.group.model import GroupSettings, SlotAssignment
from kafka_source.kafka_client import (
    GROUP,
    ConnectionLost,
    Deadline,
    KafkaClient,
    check_coordinator,
    coordinator_call,
    text_of_id,
    to_coordinator,
)
from kafka_source.kafka_client.messages.group import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_source.model.credentials import SlotCredentials

log = logging.getLogger(__name__)

_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class ConsumerSlot:
    """A slot of a query. All methods run on the client's event loop.

    Attributes:
        member: The member's state.
        wake: Set when a heartbeat is due immediately.
        changed_at: The time of a change of the brokers' assignment that the slot has to follow; None: there is none.
    """

    def __init__(self, number: int, client: KafkaClient, settings: GroupSettings) -> None:
        self.number = number
        self.instance_id = settings.instance_id(number)
        self.member = member_state.Member(str(uuid.uuid4()))
        self.wake = asyncio.Event()
        self.changed_at: float | None = None
        self._client, self._settings = client, settings
        # One heartbeat at a time, so that responses arrive in the order of the heartbeats.
        self._turn = asyncio.Lock()
        self._message = ""

    def __repr__(self) -> str:
        return f"ConsumerSlot({self.number}, {self.member.state.value}, {self.member.epoch})"

    @property
    def settled(self) -> bool:
        """Whether the slot has the partitions that the brokers assign to it, and has reported them."""
        return self.member.reconciled and self.member.owned == self.member.target

    async def beat(self, subscription: Subscription, deadline: Deadline) -> None:
        """Send one heartbeat, if the member is in the group or joins it.

        Raises:
            AuthenticationError: The brokers refuse the login.
            ConnectionLost: The coordinator has not answered.
            InvalidConfigurationError: The brokers do not know the consumer protocol.
        """
        async with self._turn:
            before = self.member
            if before.state not in (State.JOINING, State.MEMBER):
                return
            self.wake.clear()
            sent = member_state.heartbeat(before, subscription)
            try:
                response = await to_coordinator(
                    self._client, GROUP, self._settings.group, self._request(sent), deadline
                )
            except ConnectionLost:
                self.member = member_state.unanswered(self.member)
                raise
            except AuthenticationError:
                raise
            except InvalidConfigurationError as error:
                # The brokers do not know the request.
                raise self.refusal(ErrorCode.UNSUPPORTED_VERSION) from error
            if response.error_code in _MOVED:
                self._client.forget_coordinator(self._settings.group)
            self._message = response.error_message or ""
            if self.member.state is before.state:
                self.member = member_state.answered(self.member, sent, _answer(response))
                if self.member.owned == self.member.target:
                    self.changed_at = None
                elif self.changed_at is None:
                    self.changed_at = time.monotonic()

    def ask_again(self) -> None:
        """Send the next heartbeat now, and request the slot's whole assignment."""
        self.member = member_state.ask_again(self.member)
        self.wake.set()

    def rejoin(self) -> None:
        """Join with the next heartbeat, unless the member is in the group."""
        if self.member.state in (State.UNJOINED, State.LOST, State.LEFT):
            self.member, self.changed_at = member_state.join(self.member), None

    def reconcile(self, names: Mapping[uuid.UUID, str], in_flight: Iterable[TopicPartition]) -> bool:
        """Take assigned partitions, and release revoked partitions; return whether the slot's partitions have changed.

        Nothing changes while a heartbeat is under way. That heartbeat may list the slot's earlier partitions, so the
        coordinator would count new partitions as released, although the slot could commit them.

        Args:
            names: The topics' names by id. Partitions of a topic without a known name are taken later.
            in_flight: The partitions of the batch in flight. While the slot has to release one of them, it keeps all
                its partitions, and the coordinator waits for their release.
        """
        member = self.member
        if self.settled:
            # Do not wake the slot, because heartbeats to an unreachable coordinator would then have no pause.
            return False
        if self._turn.locked() or set(_named(member.revoking, names)).intersection(in_flight):
            return False
        self.member = member_state.reconcile(member, names.keys())
        if self.member.has_news:
            self.wake.set()
        if self.member.owned == self.member.target:
            self.changed_at = None
        return self.member.owned != member.owned

    async def quiet(self) -> None:
        """Wait until no heartbeat is under way."""
        async with self._turn:
            pass

    def partitions(self, names: Mapping[uuid.UUID, str]) -> tuple[TopicPartition, ...]:
        """Return the slot's partitions, sorted."""
        return tuple(sorted(_named(self.member.owned, names)))

    def assignment(self, names: Mapping[uuid.UUID, str]) -> SlotAssignment:
        """Return the slot's partitions, with the ids of its topics."""
        ids = {_name(one, names): text_of_id(one.topic_id) for one in self.member.owned if one.topic_id in names}
        return SlotAssignment(self.credentials(names), self.partitions(names), topic_ids=ids)

    def credentials(self, names: Mapping[uuid.UUID, str]) -> SlotCredentials:
        """Return the credentials with which offsets are committed for this slot."""
        return SlotCredentials(
            self._settings.group,
            self.member.epoch,
            self.member.member_id,
            self.instance_id,
            self.number,
            self.partitions(names),
            per_member_epoch=True,
        )

    def can_take(self, names: Mapping[uuid.UUID, str]) -> bool:
        """Return whether `reconcile` would take partitions."""
        return bool(member_state.reconcile(self.member, names.keys()).owned - self.member.owned)

    async def leave(self, deadline: Deadline, *, comes_back: bool) -> None:
        """Leave the group, if the coordinator may know this member.

        Args:
            deadline: The time limit for all tries; a leave may be repeated.
            comes_back: Whether a static member announces its return, and keeps its partitions until then.

        Raises:
            RetriableError: The coordinator could not be reached in time; the member stays until its session ends.
        """
        was_known = self.member.state in (State.JOINING, State.MEMBER)
        # Set before the request: a later join has to know this state, and a heartbeat's answer must not change it.
        self.member = member_state.left(self.member)
        if not was_known:
            return
        is_static = self.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group,
            member_id=self.member.member_id,
            member_epoch=member_state.LEAVE_EPOCH_OF_STATIC if comes_back and is_static else member_state.LEAVE_EPOCH,
            instance_id=self.instance_id,
        )

        def read(answer: ConsumerGroupHeartbeatResponse) -> None:
            # Any other error means that the group does not have the member, as intended.
            if answer.error_code in (*_MOVED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                check_coordinator(self._client, GROUP, self._settings.group, answer.error_code, "Leaving failed")

        # Leave after the heartbeat under way, and before a heartbeat that rejoins with the same id.
        async with self._turn:
            await coordinator_call(self._client, GROUP, self._settings.group, request, deadline, read)

    def problem(self) -> KafkaGroupError | None:
        """Return the error of a member that the group has refused; None: no refusal."""
        code = self.member.code
        return None if self.member.state is not State.FAILED else self.refusal(code)

    def refusal(self, code: int) -> KafkaGroupError:
        """Return the error for the code with which the coordinator refuses this member."""
        group = self._settings.group
        request = f"Joining group {group}" + (f" as {self.instance_id}" if self.instance_id else "") + " failed"
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return FencedError(
                f"Another process has joined group {group} as {self.instance_id}. Each query needs a "
                "kafka.group.instance.id of its own; this query has stopped.",
                code=code,
            )
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return InvalidConfigurationError(
                f"{request}: the brokers lack the consumer protocol (KIP-848), which Kafka has from 4.0 on if the "
                "feature group.version is 1. Set kafka.group.protocol=classic, or upgrade the brokers.",
                code=code,
            )
        reasons: dict[int, str] = {
            ErrorCode.UNSUPPORTED_ASSIGNOR: (
                f"the brokers do not have kafka.group.remote.assignor={self._settings.remote_assignor}"
            ),
            ErrorCode.GROUP_ID_NOT_FOUND: (
                "the group has members of the classic protocol, and the brokers do not convert it "
                "(group.consumer.migration.policy)"
            ),
            ErrorCode.UNRELEASED_INSTANCE_ID: (
                "another process is a member with this instance id and is alive. Each query needs a "
                "kafka.group.instance.id of its own"
            ),
        }
        return error_for_code(code, request, reason=reasons.get(code, self._message))

    def _request(self, sent: member_state.Heartbeat) -> ConsumerGroupHeartbeatRequest:
        said = sent.subscription
        return ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group,
            member_id=self.member.member_id,
            member_epoch=sent.epoch,
            instance_id=self.instance_id,
            rack_id=None if said is None else said.rack,
            rebalance_timeout_ms=-1 if said is None else said.rebalance_timeout_ms,
            subscribed_topic_names=None if said is None else said.topics,
            server_assignor=None if said is None else said.assignor,
            topic_partitions=None
            if sent.owned is None
            else [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic, partitions=[one.partition for one in of])
                for topic, of in groupby(sent.owned, key=lambda one: one.topic_id)
            ],
        )


def _named(partitions: Iterable[IdPartition], names: Mapping[uuid.UUID, str]) -> list[TopicPartition]:
    return [_name(one, names) for one in partitions if one.topic_id in names]


def _name(one: IdPartition, names: Mapping[uuid.UUID, str]) -> TopicPartition:
    return TopicPartition(names[one.topic_id], one.partition)


def _answer(response: ConsumerGroupHeartbeatResponse) -> Answer:
    if response.error_code != NONE:
        return Answer(response.error_code)
    assigned = response.assignment
    return Answer(
        NONE,
        response.member_epoch,
        response.heartbeat_interval_ms,
        None
        if assigned is None
        else frozenset(IdPartition(t.topic_id, number) for t in assigned.topic_partitions for number in t.partitions),
    )
