"""The group coordinator of the consumer protocol, as KIP-848 describes it: Kafka's CurrentAssignmentBuilder.

Each change of a group is in the group's log before the request is answered, so a coordinator that takes the group over
knows everything except the timers.
"""

import functools
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_source.error_codes import ErrorCode as E
from kafka_source.kafka_client import GROUP
from kafka_source.kafka_client.messages.group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OffsetCommitRequest,
)
from kafka_source.kafka_client.messages.transaction import TxnOffsetCommitRequest
from tests.simulation.brokers.cluster import Broker, Cluster, Reply
from tests.simulation.brokers.group_coordinator import Group, GroupCoordinators
from tests.simulation.world import Event

LEAVE, LEAVE_AND_COME_BACK = -1, -2

Place = tuple[uuid.UUID, int]
"""A topic's id, and a partition."""
_Assignment = ConsumerGroupDescribeResponse.DescribedGroup.Member.Assignment


@dataclass
class Member:
    """A member.

    Attributes:
        instance_id: The id that a static member keeps after a restart.
        is_away: Whether it is static and has left temporarily.
        assigned: The partitions that it may have; with `revoking`, those that it may keep.
        revoking: The partitions that it has to give up before it gets the group's epoch.
    """

    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    rebalance: float = 300.0
    epoch: int = 0
    previous: int = 0
    is_away: bool = False
    assigned: frozenset[Place] = frozenset()
    revoking: frozenset[Place] = frozenset()
    session: Event | None = None
    revocation: Event | None = None


@dataclass
class ConsumerGroup:
    """A group of the consumer protocol; its offsets are those of the `Group` of the same name."""

    name: str
    offsets: Group
    epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, frozenset[Place]] = field(default_factory=dict)
    seen: frozenset[Place] = frozenset()


class ConsumerCoordinators:
    """The coordinators of all groups of the consumer protocol.

    Args:
        session: `group.consumer.session.timeout.ms`, in seconds.
        interval_ms: `group.consumer.heartbeat.interval.ms`.
    """

    def __init__(self, cluster: Cluster, groups: GroupCoordinators, session: float, interval_ms: int) -> None:
        self._cluster, self._world, self._groups = cluster, cluster.world, groups
        self._session, self._interval = session, interval_ms
        self.groups: dict[str, ConsumerGroup] = {}
        cluster.moved.append(self._moved)
        handlers: dict[Any, Callable[[Broker, Any, Reply], None]] = {
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            ConsumerGroupDescribeRequest: self._describe,
        }
        cluster.handlers.update(handlers)

    # ---- heartbeats

    def _heartbeat(self, broker: Broker, request: ConsumerGroupHeartbeatRequest, reply: Reply) -> None:
        code = self._cluster.refusal(broker, GROUP, request.group_id)
        response = _refused(code) if code else self._beat(request)
        if response.error_code:
            self._cluster.errors["ConsumerGroupHeartbeat", response.error_code] += 1
        reply(response)

    def _beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self.groups.get(request.group_id)
        if group is None:
            group = ConsumerGroup(request.group_id, self._groups.group(request.group_id))
            self.groups[request.group_id] = group
            group.offsets.refuses_commit = functools.partial(_commit_problem, group)
        member = group.members.get(request.member_id)
        if request.instance_id is not None and (refused := self._static_problem(group, request)):
            return _refused(refused)
        if request.member_epoch in (LEAVE, LEAVE_AND_COME_BACK):
            if member is None:
                return _refused(E.UNKNOWN_MEMBER_ID)
            if request.member_epoch == LEAVE:
                self._remove(group, member)
            else:
                # The session continues, and the member is removed if it is not back before the session ends.
                member.is_away, member.revoking = True, frozenset()
            return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        owned = self._owned(request)
        if member is None or member.is_away:
            if request.member_epoch != 0:
                return _refused(E.UNKNOWN_MEMBER_ID if member is None else E.FENCED_MEMBER_EPOCH)
            member = self._new_member(group, request)
        elif request.member_epoch > member.epoch or (
            request.member_epoch < member.epoch
            and (request.member_epoch != member.previous or owned is None or not owned <= member.assigned)
        ):
            if request.member_epoch != 0 and not self._cluster.handles_late:
                # Two responses that raise the epoch were lost. The member has to leave, and then joins again.
                for watch in self._groups.watches:
                    watch.lost(member.member_id, "its epoch is too old")
            return _refused(E.FENCED_MEMBER_EPOCH)
        if request.rebalance_timeout_ms >= 0:
            member.rebalance = request.rebalance_timeout_ms / 1000
        topics = member.topics if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names)
        changed = topics != member.topics or request.member_id not in group.target
        member.topics = topics
        self._bump(group, changed=changed)
        before = member.assigned
        self._reconcile(group, member, owned)
        self._touch(group, member)
        everything = request.subscribed_topic_names is not None and owned is not None
        tells = request.member_epoch == 0 or everything or member.assigned != before
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._interval,
            assignment=ConsumerGroupHeartbeatResponse.Assignment(
                [
                    ConsumerGroupHeartbeatResponse.Assignment.TopicPartitions(topic_id, numbers)
                    for topic_id, _, numbers in self._by_topic(member.assigned)
                ]
            )
            if tells
            else None,
        )

    def _holder(self, group: ConsumerGroup, instance_id: str | None) -> Member | None:
        static = (one for one in group.members.values() if one.instance_id == instance_id)
        return None if instance_id is None else next(static, None)

    def _static_problem(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> int:
        holder = self._holder(group, request.instance_id)
        if request.member_epoch == 0:
            # The same member is refused too, if the first answer to it was lost.
            return int(E.UNRELEASED_INSTANCE_ID) if holder is not None and not holder.is_away else 0
        if holder is None:
            return int(E.UNKNOWN_MEMBER_ID)
        return 0 if holder.member_id == request.member_id else int(E.FENCED_INSTANCE_ID)

    def _new_member(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Member:
        """Add a member; a static member that returns has the partitions that it had before."""
        member, before = Member(request.member_id, request.instance_id), self._holder(group, request.instance_id)
        if before is not None:
            self._cancel(before)
            del group.members[before.member_id]
            member.topics, member.assigned = before.topics, before.assigned
            group.target[member.member_id] = group.target.pop(before.member_id, frozenset())
        group.members[member.member_id] = member
        group.offsets.emptied_at = math.inf
        return member

    def _owned(self, request: ConsumerGroupHeartbeatRequest) -> frozenset[Place] | None:
        if request.topic_partitions is None:
            return None
        return frozenset((one.topic_id, n) for one in request.topic_partitions for n in one.partitions)

    def _reconcile(self, group: ConsumerGroup, member: Member, owned: frozenset[Place] | None) -> None:
        target = group.target[member.member_id]
        if member.revoking:
            if owned is None or owned & member.revoking:
                return
            member.revoking = frozenset()
            if member.revocation is not None:
                member.revocation.cancel()
                member.revocation = None
        elif member.epoch == group.epoch and member.assigned == target:
            return
        kept = member.assigned & target
        revoked = member.assigned - target
        if revoked and (owned is None or owned & revoked):
            member.assigned, member.revoking = kept, revoked
            epoch = member.epoch
            member.revocation = self._world.after(member.rebalance, lambda: self._too_late(group, member, epoch))
            return
        others = frozenset().union(
            *(one.assigned | one.revoking for one in group.members.values() if one is not member)
        )
        member.assigned = kept | (target - others)
        if member.epoch != group.epoch:
            member.previous, member.epoch = member.epoch, group.epoch

    def _too_late(self, group: ConsumerGroup, member: Member, epoch: int) -> None:
        if member.revoking and member.epoch == epoch and group.members.get(member.member_id) is member:
            for watch in self._groups.watches:
                watch.lost(member.member_id, "it has not given up partitions in time")
            self._remove(group, member)

    # ---- members and targets

    def _bump(self, group: ConsumerGroup, *, changed: bool = False) -> None:
        """Begin an epoch with a new target assignment if members, subscriptions or partition counts have changed."""
        names = {name for member in group.members.values() for name in member.topics}
        present = frozenset(
            (topic.id, number)
            for name in names
            if (topic := self._cluster.topics.get(name)) is not None
            for number in range(len(topic.partitions))
        )
        if not changed and present == group.seen:
            return
        group.seen = present
        group.epoch += 1
        group.target = _uniform(group, present)
        for watch in self._groups.watches:
            watch.begins(f"epoch {group.epoch} with {len(group.members)} members")

    def _cancel(self, member: Member) -> None:
        for event in (member.session, member.revocation):
            if event is not None:
                event.cancel()

    def _remove(self, group: ConsumerGroup, member: Member) -> None:
        self._cancel(member)
        del group.members[member.member_id]
        group.target.pop(member.member_id, None)
        if not group.members:
            group.offsets.emptied_at = self._world.now
        self._bump(group, changed=True)

    def _touch(self, group: ConsumerGroup, member: Member) -> None:
        if member.session is not None:
            member.session.cancel()
        member.session = self._world.after(self._session, lambda: self._expire(group, member))

    def _expire(self, group: ConsumerGroup, member: Member) -> None:
        if group.members.get(member.member_id) is member:
            for watch in self._groups.watches:
                watch.lost(member.member_id, "its session has ended")
            self._remove(group, member)

    def _moved(self, kind: int, key: str) -> None:
        group = self.groups.get(key)
        if kind == GROUP and group is not None:
            for member in list(group.members.values()):
                self._touch(group, member)

    # ---- descriptions

    def _by_topic(self, places: frozenset[Place]) -> list[tuple[uuid.UUID, str, list[int]]]:
        topics: dict[uuid.UUID, list[int]] = {}
        for topic_id, number in sorted(places):
            topics.setdefault(topic_id, []).append(number)
        return [(topic_id, self._cluster.names[topic_id], numbers) for topic_id, numbers in topics.items()]

    def _assignment(self, places: frozenset[Place]) -> _Assignment:
        return _Assignment(
            [_Assignment.TopicPartitions(topic_id, name, numbers) for topic_id, name, numbers in self._by_topic(places)]
        )

    def _describe(self, broker: Broker, request: ConsumerGroupDescribeRequest, reply: Reply) -> None:
        described = ConsumerGroupDescribeResponse.DescribedGroup
        groups = []
        for name in request.group_ids:
            code = self._cluster.refusal(broker, GROUP, name)
            group = self.groups.get(name)
            if code or group is None:
                groups.append(described(error_code=int(code or E.GROUP_ID_NOT_FOUND), group_id=name))
                continue
            settled = all(one.epoch == group.epoch and not one.revoking for one in group.members.values())
            members = [
                described.Member(
                    member_id=one.member_id,
                    instance_id=one.instance_id,
                    member_epoch=LEAVE_AND_COME_BACK if one.is_away else one.epoch,
                    client_id="kafkagroup-member",
                    client_host="/127.0.0.1",
                    subscribed_topic_names=one.topics,
                    assignment=self._assignment(one.assigned),
                    target_assignment=self._assignment(group.target.get(one.member_id, frozenset())),
                )
                for one in group.members.values()
            ]
            groups.append(
                described(
                    group_id=name,
                    group_state=("Stable" if settled else "Reconciling") if members else "Empty",
                    group_epoch=group.epoch,
                    assignment_epoch=group.epoch,
                    assignor_name="uniform",
                    members=members,
                )
            )
        reply(ConsumerGroupDescribeResponse(groups=groups))


def _commit_problem(
    group: ConsumerGroup, request: OffsetCommitRequest | TxnOffsetCommitRequest, generation: int, transactional: bool
) -> int:
    """Return the error of a commit in a group of the consumer protocol; 0: no error."""
    if generation < 0 and not request.member_id and (transactional or not group.members):
        return 0
    member = group.members.get(request.member_id)
    if member is None:
        return int(E.UNKNOWN_MEMBER_ID)
    if member.is_away or generation != member.epoch:
        return int(E.ILLEGAL_GENERATION if transactional else E.STALE_MEMBER_EPOCH)
    return 0


def _uniform(group: ConsumerGroup, present: frozenset[Place]) -> dict[str, frozenset[Place]]:
    """Assign all partitions evenly; a member keeps its previous partitions as far as balance allows."""
    members = sorted(group.members)
    if not members:
        return {}
    least, more = divmod(len(present), len(members))
    left = set(present)
    target: dict[str, set[Place]] = {}
    by_size = sorted(members, key=lambda one: (-len(group.target.get(one, ())), one))
    for number, member in enumerate(by_size):
        quota = least + (number < more)
        kept = sorted(group.target.get(member, frozenset()) & left)[:quota]
        target[member] = set(kept)
        left -= target[member]
    waiting = sorted(left)
    for number, member in enumerate(by_size):
        while waiting and len(target[member]) < least + (number < more):
            target[member].add(waiting.pop(0))
    return {member: frozenset(places) for member, places in target.items()}


def _refused(code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=int(code), error_message=None)
