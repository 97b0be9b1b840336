"""The group coordinator of the classic protocol, as KIP-62, 345, 394, 429, 447 and 814 describe it.

As in Kafka, a group's state in memory and its log differ: members and assignments are written when the leader has sent
an assignment. A coordinator that takes the group over knows the log only.
"""

from __future__ import annotations

import copy
import itertools
import math
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka_source.error_codes import ErrorCode as E
from kafka_source.kafka_client import GROUP, text_of_id, topic_id_of
from kafka_source.kafka_client.messages import group as messages
from kafka_source.kafka_client.messages.codec import NO_UUID
from kafka_source.kafka_client.messages.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka_source.model.commits import OffsetNote
from tests.simulation.brokers.cluster import Broker, Cluster, Reply
from tests.simulation.world import Event, Process

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
# group.initial.rebalance.delay.ms of the simulated brokers, in seconds.
INITIAL_DELAY = 0.5

Key = tuple[str, int]
_Commit = TypeVar("_Commit", messages.OffsetCommitRequest, TxnOffsetCommitRequest)


@dataclass
class Member:
    """A member as the coordinator knows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    session: float
    rebalance: float
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    join_reply: Reply | None = None
    sync_reply: Reply | None = None
    timer: Event | None = None

    @property
    def name(self) -> str:
        """The member's name in the story."""
        return self.instance_id or self.member_id


@dataclass
class Stored:
    """The state of a group's members in the log."""

    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)


@dataclass
class Committed:
    """A committed offset, and its position in the log of offsets.

    Attributes:
        at: The time of the commit.
        keep: The seconds for which the commit wants the offset to be kept; infinite: as long as the group has members,
            and then for the brokers' own time.
        client: The process that has committed it, which may not be the sender of the request that is handled now.
    """

    offset: int
    epoch: int
    metadata: str
    place: int
    at: float = 0.0
    keep: float = math.inf
    client: Process | None = None

    def is_of(self, topic_id: uuid.UUID) -> bool:
        """Return whether the offset is of this topic: the offset's metadata name this topic's id, or no topic."""
        return topic_id_of(OffsetNote.parse(self.metadata).topic) in (None, topic_id)


class Group:
    """One group."""

    def __init__(self, cluster: Cluster, name: str, watches: Sequence[Watch]) -> None:
        self._cluster, self._world, self.name, self._watches = cluster, cluster.world, name, watches
        self.state, self.generation, self.protocol, self.leader = EMPTY, 0, "", ""
        self.members: dict[str, Member] = {}
        self.pending: dict[str, Event] = {}
        self._timer: Event | None = None
        self._initial = False
        self._stored = Stored()
        self.offsets: dict[Key, Committed] = {}
        # The offsets of open transactions, by producer id, and the newest epoch of a marker or commit.
        self.uncertain: dict[int, dict[Key, Committed]] = {}
        self.epochs: dict[int, int] = {}
        self._places = itertools.count()
        # Checks commits in a group of the consumer protocol; returns the error code.
        self.refuses_commit: Callable[[Any, int, bool], int] | None = None
        # The time at which the group has lost its last member; infinite: the group has members.
        self.emptied_at = 0.0

    # ---- joining

    def join(self, request: messages.JoinGroupRequest, client_id: str, reply: Reply) -> None:
        member_id, instance_id = request.member_id, request.group_instance_id
        protocols = [(one.name, bytes(one.metadata)) for one in request.protocols]
        others = [set(dict(one.protocols)) for key, one in self.members.items() if key != member_id]
        if others and not set.intersection(*others) & set(dict(protocols)):
            return reply(self._joined_error(E.INCONSISTENT_GROUP_PROTOCOL, member_id))
        if not member_id:
            if instance_id is not None:
                return self._join_static(request, instance_id, protocols, client_id, reply)
            new_id = self._new_id(client_id)
            self.pending[new_id] = self._world.after(request.session_timeout_ms / 1000, lambda: self._expire(new_id))
            return reply(self._joined_error(E.MEMBER_ID_REQUIRED, new_id))
        if member_id in self.pending:
            self.pending.pop(member_id).cancel()
            return self._add_and_rebalance(self._member(member_id, request, protocols, client_id), reply)
        problem = self._identity_problem(member_id, instance_id)
        if problem:
            return reply(self._joined_error(problem, member_id))
        member = self.members[member_id]
        changed = member.protocols != protocols
        member.session, member.rebalance = request.session_timeout_ms / 1000, request.rebalance_timeout_ms / 1000
        if self.state == PREPARING:
            member.protocols = protocols
            return self._park(member, reply)
        if self.state == STABLE and (changed or member_id == self.leader):
            member.protocols = protocols
            self._prepare()
            return self._park(member, reply)
        if self.state == COMPLETING and changed:
            member.protocols = protocols
            self._prepare()
            return self._park(member, reply)
        self._touch(member)
        return reply(self._joined(member))

    def _join_static(
        self,
        request: messages.JoinGroupRequest,
        instance_id: str,
        protocols: list[tuple[str, bytes]],
        client_id: str,
        reply: Reply,
    ) -> None:
        new_id = self._new_id(instance_id)
        member = self._member(new_id, request, protocols, client_id)
        old = next((one for one in self.members.values() if one.instance_id == instance_id), None)
        if old is None:
            return self._add_and_rebalance(member, reply)
        # A static member that returns fences the member in its place (KIP-345).
        for watch in self._watches:
            watch.replaced(instance_id)
        if old.join_reply is not None:
            old.join_reply(self._joined_error(E.FENCED_INSTANCE_ID, old.member_id))
        if old.sync_reply is not None:
            old.sync_reply(_synced(E.FENCED_INSTANCE_ID))
        if old.timer is not None:
            old.timer.cancel()
        same = dict(old.protocols).get(self.protocol) == dict(protocols).get(self.protocol)
        place = list(self.members).index(old.member_id)
        members = [(key, one) for key, one in self.members.items() if one is not old]
        members.insert(place, (new_id, member))
        self.members = dict(members)
        member.assignment = old.assignment
        if self.leader == old.member_id:
            self.leader = new_id
        if self.state == STABLE and same and self._choose() == self.protocol:
            self._store()
            self._touch(member)
            return reply(self._joined(member, skip=True))
        if self.state in (STABLE, COMPLETING):
            self._prepare()
        return self._park(member, reply)

    def _member(
        self, member_id: str, request: messages.JoinGroupRequest, protocols: list[tuple[str, bytes]], client_id: str
    ) -> Member:
        return Member(
            member_id,
            request.group_instance_id,
            client_id,
            request.session_timeout_ms / 1000,
            request.rebalance_timeout_ms / 1000,
            protocols,
        )

    def _add_and_rebalance(self, member: Member, reply: Reply) -> None:
        self.members[member.member_id] = member
        self.emptied_at = math.inf
        if not self.leader:
            self.leader = member.member_id
        if self.state != PREPARING:
            self._prepare()
        self._park(member, reply)

    def _park(self, member: Member, reply: Reply) -> None:
        if member.join_reply is not None:
            member.join_reply(self._joined_error(E.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_reply = reply
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None
        self._complete_if_all_joined()

    def _prepare(self) -> None:
        for member in self.members.values():
            if member.sync_reply is not None:
                member.sync_reply(_synced(E.REBALANCE_IN_PROGRESS))
                member.sync_reply = None
                self._touch(member)
        first = self.state == EMPTY
        self.state = PREPARING
        longest = max((one.rebalance for one in self.members.values()), default=0.0)
        self._set_timer(INITIAL_DELAY if first else longest, first=first)

    def _set_timer(self, seconds: float, *, first: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._initial = first
        self._timer = self._world.after(seconds, self._complete)

    def _complete_if_all_joined(self) -> None:
        if self.state != PREPARING or self._initial or self.pending:
            return
        if all(member.join_reply is not None for member in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._initial = False
        for member in [one for one in self.members.values() if one.join_reply is None and one.instance_id is None]:
            for watch in self._watches:
                watch.lost(member.name, "it has not rejoined in time")
            self._drop(member)
        if not self.members:
            self._become_empty()
            return
        joined = [member for member in self.members.values() if member.join_reply is not None]
        if not joined:
            # All members are static and have not returned; they are removed when their sessions end.
            self._set_timer(max(one.rebalance for one in self.members.values()))
            return
        if self.leader not in self.members or self.members[self.leader].join_reply is None:
            self.leader = joined[0].member_id
        self.generation += 1
        self.protocol = self._choose()
        self.state = COMPLETING
        for watch in self._watches:
            watch.begins(f"generation {self.generation} with {len(self.members)} members, {self.protocol}")
        for member in joined:
            reply, member.join_reply = member.join_reply, None
            self._touch(member)
            assert reply is not None
            reply(self._joined(member))
        generation = self.generation
        self._timer = self._world.after(
            max(one.rebalance for one in self.members.values()), lambda: self._expire_unsynced(generation)
        )

    def _expire_unsynced(self, generation: int) -> None:
        if self.state == COMPLETING and self.generation == generation:
            for member in [one for one in self.members.values() if one.sync_reply is None]:
                for watch in self._watches:
                    watch.lost(member.name, "it has not asked for its assignment in time")
                self._drop(member)
            self._rebalance_after_loss()

    def _choose(self) -> str:
        common = set.intersection(*({name for name, _ in one.protocols} for one in self.members.values()))
        votes: dict[str, int] = {}
        for member in self.members.values():
            first = next(name for name, _ in member.protocols if name in common)
            votes[first] = votes.get(first, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _joined(self, member: Member, *, skip: bool = False) -> Any:
        leads = member.member_id == self.leader
        members = [
            messages.JoinGroupResponse.JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=dict(one.protocols).get(self.protocol, b""),
            )
            for one in self.members.values()
        ]
        return messages.JoinGroupResponse(
            throttle_time_ms=0,
            error_code=0,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocol,
            leader=self.leader,
            skip_assignment=skip and leads,
            member_id=member.member_id,
            members=members if leads else [],
        )

    def _joined_error(self, code: int, member_id: str) -> Any:
        self._count("JoinGroup", code)
        return messages.JoinGroupResponse(
            throttle_time_ms=0,
            error_code=int(code),
            generation_id=-1,
            protocol_type=None,
            protocol_name=None,
            leader="",
            skip_assignment=False,
            member_id=member_id,
            members=[],
        )

    # ---- assignments

    def sync(self, request: messages.SyncGroupRequest, reply: Reply) -> None:
        problem = self._member_problem(request.member_id, request.group_instance_id, request.generation_id)
        if problem:
            self._count("SyncGroup", problem)
            return reply(_synced(problem))
        member = self.members[request.member_id]
        if self.state == PREPARING:
            self._count("SyncGroup", E.REBALANCE_IN_PROGRESS)
            return reply(_synced(E.REBALANCE_IN_PROGRESS))
        if self.state == STABLE:
            self._touch(member)
            return reply(_synced(0, member.assignment))
        member.sync_reply = reply
        if request.member_id != self.leader:
            return None
        given = {one.member_id: bytes(one.assignment) for one in request.assignments}
        for watch in self._watches:
            watch.assigned(given)
        for one in self.members.values():
            one.assignment = given.get(one.member_id, b"")
        self.state = STABLE
        if self._timer is not None:
            self._timer.cancel()
        self._store()
        for one in self.members.values():
            if one.sync_reply is not None:
                waiting, one.sync_reply = one.sync_reply, None
                self._touch(one)
                waiting(_synced(0, one.assignment))
        return None

    # ---- staying

    def heartbeat(self, request: messages.HeartbeatRequest) -> int:
        problem = self._member_problem(request.member_id, request.group_instance_id, request.generation_id)
        if problem:
            return problem
        self._touch(self.members[request.member_id])
        return E.REBALANCE_IN_PROGRESS if self.state == PREPARING else 0

    def leave(self, member_id: str, instance_id: str | None) -> int:
        if member_id in self.pending:
            self.pending.pop(member_id).cancel()
            self._rebalance_after_loss()
            return 0
        if instance_id is not None and not member_id:
            member_id = next((key for key, one in self.members.items() if one.instance_id == instance_id), "")
        problem = self._identity_problem(member_id, instance_id)
        if problem:
            return problem
        self._drop(self.members[member_id])
        self._rebalance_after_loss()
        return 0

    def _touch(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
        member.timer = self._world.after(member.session, lambda: self._expire(member.member_id))

    def _expire(self, member_id: str) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._complete_if_all_joined()
            return
        member = self.members.get(member_id)
        if member is None or member.join_reply is not None or member.sync_reply is not None:
            return
        for watch in self._watches:
            watch.lost(member.name, "its session has ended")
        self._drop(member)
        self._rebalance_after_loss()

    def _drop(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
        if member.join_reply is not None:
            member.join_reply(self._joined_error(E.UNKNOWN_MEMBER_ID, member.member_id))
        # Kafka never answers the SyncGroup of a member that leaves before the assignment.
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def _rebalance_after_loss(self) -> None:
        if self.state in (STABLE, COMPLETING):
            self._prepare()
        self._complete_if_all_joined()

    def _become_empty(self) -> None:
        self.state, self.protocol, self.leader = EMPTY, "", ""
        self.emptied_at = self._world.now
        self.generation += 1
        self._store()

    # ---- offsets

    def commit(self, request: messages.OffsetCommitRequest) -> int:
        if self.refuses_commit is not None:
            problem = self.refuses_commit(request, request.generation_id_or_member_epoch, False)
            if not problem:
                self._apply(self._written(request))
            return problem
        problem = self._commit_problem(request)
        if not problem and request.generation_id_or_member_epoch < 0 and self.state != EMPTY:
            problem = int(E.UNKNOWN_MEMBER_ID)
        if not problem and self.state == COMPLETING:
            problem = int(E.REBALANCE_IN_PROGRESS)
        if not problem:
            self._apply(self._written(request))
            if request.member_id in self.members and self.members[request.member_id].join_reply is None:
                self._touch(self.members[request.member_id])
        return problem

    def _commit_problem(self, request: messages.OffsetCommitRequest | TxnOffsetCommitRequest) -> int:
        """Return the error of a commit, which may be part of a transaction; 0: no error."""
        generation = request.generation_id_or_member_epoch
        if generation < 0 and self.state == EMPTY:
            return 0
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            return 0
        return self._member_problem(request.member_id, request.group_instance_id, generation)

    def commit_in_transaction(self, request: TxnOffsetCommitRequest) -> int:
        """Keep the offsets of a transaction that the transaction's coordinator has verified (KIP-890)."""
        if self.refuses_commit is not None:
            problem = self.refuses_commit(request, request.generation_id_or_member_epoch, True)
            if problem:
                return problem
        elif problem := self._commit_problem(request):
            return problem
        known = self.epochs.get(request.producer_id, -1)
        if request.producer_epoch < known:
            return int(E.INVALID_PRODUCER_EPOCH)
        self.epochs[request.producer_id] = request.producer_epoch
        self.uncertain.setdefault(request.producer_id, {}).update(self._written(request))
        return 0

    def mark(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Write the marker that ends a transaction."""
        self.epochs[producer_id] = max(epoch, self.epochs.get(producer_id, -1))
        entries = self.uncertain.pop(producer_id, {})
        if commit:
            # Offsets that were committed later, without a transaction, stay.
            known = self.offsets
            entries = {tp: one for tp, one in entries.items() if tp not in known or known[tp].place < one.place}
            if entries:
                self._apply(entries)

    def commit_as_any(self, tp: Key, offset: int) -> None:
        """Commit an offset as a member of this generation, perhaps a member that does not own the partition."""
        topic = text_of_id(self._cluster.topics[tp[0]].id)
        note = OffsetNote(topic=topic, cluster=self._cluster.cluster_id)
        began = self._cluster.log(tp).began
        epoch = max((epoch for epoch, start in began.items() if start < offset), default=-1)
        self._apply({tp: Committed(offset, epoch, note.metadata, next(self._places))})

    def _written(self, request: messages.OffsetCommitRequest | TxnOffsetCommitRequest) -> dict[Key, Committed]:
        keep_ms = getattr(request, "retention_time_ms", -1)
        keep = math.inf if keep_ms < 0 else keep_ms / 1000
        return {
            (topic.name, one.partition_index): Committed(
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
                next(self._places),
                self._world.now,
                keep,
                self._cluster.client,
            )
            for topic in request.topics
            for one in topic.partitions
        }

    def forget_expired(self) -> None:
        """Expire offsets as brokers do (KIP-211): if their group has no members, or after the time in their commit."""
        now, retention = self._world.now, self._cluster.retention
        self.offsets = {
            tp: one
            for tp, one in self.offsets.items()
            if now < (one.at + one.keep if one.keep < math.inf else max(one.at, self.emptied_at) + retention)
        }

    def _apply(self, entries: dict[Key, Committed]) -> None:
        for watch in self._watches:
            watch.committed(self, entries)
        self.offsets.update(entries)

    # ---- the log

    def _store(self) -> None:
        self._stored = Stored(
            self.generation,
            self.protocol,
            self.leader,
            {key: copy.copy(one) for key, one in self.members.items()} if self.state == STABLE else {},
        )

    def load(self) -> None:
        """Reset the state to the log, as in a coordinator that has taken the group over."""
        for member in self.members.values():
            if member.timer is not None:
                member.timer.cancel()
            if member.join_reply is not None:
                member.join_reply(self._joined_error(E.NOT_COORDINATOR, member.member_id))
            if member.sync_reply is not None:
                member.sync_reply(_synced(E.NOT_COORDINATOR))
        for event in self.pending.values():
            event.cancel()
        self.pending.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stored = self._stored
        self.generation, self.protocol, self.leader = stored.generation, stored.protocol, stored.leader
        for key in self.members.keys() - stored.members.keys():
            for watch in self._watches:
                watch.lost(self.members[key].name, "the new coordinator does not know it")
        self.members = {key: copy.copy(one) for key, one in stored.members.items()}
        self.state = STABLE if self.members else EMPTY
        self.emptied_at = math.inf if self.members else self._world.now
        for member in self.members.values():
            member.timer = member.join_reply = member.sync_reply = None
            self._touch(member)

    # ---- helpers

    def _identity_problem(self, member_id: str, instance_id: str | None) -> int:
        if instance_id is not None:
            holder = next((one for one in self.members.values() if one.instance_id == instance_id), None)
            if holder is None:
                return int(E.UNKNOWN_MEMBER_ID)
            if holder.member_id != member_id:
                return int(E.FENCED_INSTANCE_ID)
        return 0 if member_id in self.members else int(E.UNKNOWN_MEMBER_ID)

    def _member_problem(self, member_id: str, instance_id: str | None, generation: int) -> int:
        problem = self._identity_problem(member_id, instance_id)
        if problem:
            return problem
        return 0 if generation == self.generation else int(E.ILLEGAL_GENERATION)

    def _new_id(self, prefix: str) -> str:
        return f"{prefix}-{self._world.random.getrandbits(64):016x}"

    def _count(self, api: str, code: int) -> None:
        self._cluster.errors[api, int(code)] += 1


class Watch:
    """Observes the groups of a world; the default does nothing."""

    def begins(self, what: str) -> None:
        """Observe the beginning of a generation or an epoch of a group."""

    def assigned(self, assignments: dict[str, bytes]) -> None:
        """Observe the assignments that a leader has sent, by member id."""

    def replaced(self, instance_id: str) -> None:
        """Observe that a static member has joined again, as a new member."""

    def lost(self, member: str, why: str) -> None:
        """Observe that a group removes a member that has not left."""

    def committed(self, group: Group, entries: dict[Key, Committed]) -> None:
        """Observe offsets that a group is about to commit."""

    def fetched(self, group: Group) -> None:
        """Observe that a client gets a group's offsets."""


class GroupCoordinators:
    """The coordinators of all groups of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.watches: list[Watch] = []
        self.groups: dict[str, Group] = {}
        self.verify: Callable[[TxnOffsetCommitRequest], int] = lambda _: 0
        cluster.moved.append(self._moved)
        handlers: dict[Any, Callable[[Broker, Any, Reply], None]] = {
            messages.JoinGroupRequest: self._join,
            messages.SyncGroupRequest: self._sync,
            messages.HeartbeatRequest: self._heartbeat,
            messages.LeaveGroupRequest: self._leave,
            messages.OffsetCommitRequest: self._commit,
            messages.OffsetFetchRequest: self._fetch,
            TxnOffsetCommitRequest: self._commit_in_transaction,
            messages.DescribeGroupsRequest: self._describe,
        }
        cluster.handlers.update(handlers)

    def group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(self._cluster, name, self.watches)
        return self.groups[name]

    def topic_deleted(self, name: str) -> None:
        """Delete the offsets of a topic."""
        for group in self.groups.values():
            for offsets in (group.offsets, *group.uncertain.values()):
                for tp in [tp for tp in offsets if tp[0] == name]:
                    del offsets[tp]

    def _moved(self, kind: int, key: str) -> None:
        if kind == GROUP and key in self.groups:
            self.groups[key].load()

    def _refusal(self, broker: Broker, name: str, api: str) -> int:
        code = self._cluster.refusal(broker, GROUP, name)
        if code:
            self._cluster.errors[api, code] += 1
        return code

    def _join(self, broker: Broker, request: messages.JoinGroupRequest, reply: Reply) -> None:
        code = self._refusal(broker, request.group_id, "JoinGroup")
        group = self.group(request.group_id)
        if code:
            return reply(group._joined_error(code, request.member_id))
        is_other = (request.group_instance_id or "").startswith("other-")
        return group.join(request, "other" if is_other else "kafkagroup-member", reply)

    def _sync(self, broker: Broker, request: messages.SyncGroupRequest, reply: Reply) -> None:
        code = self._refusal(broker, request.group_id, "SyncGroup")
        if code:
            return reply(_synced(code))
        return self.group(request.group_id).sync(request, reply)

    def _heartbeat(self, broker: Broker, request: messages.HeartbeatRequest, reply: Reply) -> None:
        code = self._refusal(broker, request.group_id, "Heartbeat")
        if not code:
            code = self.group(request.group_id).heartbeat(request)
            if code:
                self._cluster.errors["Heartbeat", code] += 1
        reply(messages.HeartbeatResponse(throttle_time_ms=0, error_code=int(code)))

    def _leave(self, broker: Broker, request: messages.LeaveGroupRequest, reply: Reply) -> None:
        code = self._refusal(broker, request.group_id, "LeaveGroup")
        response = messages.LeaveGroupResponse.MemberResponse
        members = []
        for one in () if code else request.members:
            problem = self.group(request.group_id).leave(one.member_id, one.group_instance_id)
            members.append(
                response(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=int(problem))
            )
        reply(messages.LeaveGroupResponse(throttle_time_ms=0, error_code=int(code), members=members))

    def _commit(self, broker: Broker, request: messages.OffsetCommitRequest, reply: Reply) -> None:
        request, unknown = self._with_names(request)
        code = self._refusal(broker, request.group_id, "OffsetCommit")
        code = code or self.group(request.group_id).commit(request)
        answer = _committed(messages.OffsetCommitResponse, request, code, self._cluster, "OffsetCommit")
        refused = _committed(
            messages.OffsetCommitResponse, unknown, code or E.UNKNOWN_TOPIC_ID, self._cluster, "OffsetCommit"
        )
        reply(messages.OffsetCommitResponse(throttle_time_ms=0, topics=[*answer.topics, *refused.topics]))

    def _with_names(self, request: _Commit) -> tuple[_Commit, _Commit]:
        """Return a commit with topic names in place of topic ids, and the part of the commit whose ids are unknown."""
        names = {topic.id: name for name, topic in self._cluster.topics.items()}
        named = [type(t)(t.name or names.get(t.topic_id, ""), t.topic_id, t.partitions) for t in request.topics]
        same = {name: getattr(request, name) for name in request.FIELDS}
        known, unknown = ([t for t in named if bool(t.name) is has_name] for has_name in (True, False))
        return type(request)(**{**same, "topics": known}), type(request)(**{**same, "topics": unknown})

    def _commit_in_transaction(self, broker: Broker, request: TxnOffsetCommitRequest, reply: Reply) -> None:
        request, unknown = self._with_names(request)
        code = self._refusal(broker, request.group_id, "TxnOffsetCommit")
        if request.topics:
            code = code or self.verify(request) or self.group(request.group_id).commit_in_transaction(request)
        api = "TxnOffsetCommit"
        answer = _committed(TxnOffsetCommitResponse, request, code, self._cluster, api)
        refused = _committed(TxnOffsetCommitResponse, unknown, code or E.UNKNOWN_TOPIC_ID, self._cluster, api)
        reply(TxnOffsetCommitResponse(throttle_time_ms=0, topics=[*answer.topics, *refused.topics]))

    def _fetch(self, broker: Broker, request: messages.OffsetFetchRequest, reply: Reply) -> None:
        reply(self._fetched_by_id(broker, request) if request.groups else self._fetched(broker, request))

    def _fetched_by_id(self, broker: Broker, request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
        """Answer as version 8 and later do, with names, or in the newest versions with topic ids."""
        (wanted,) = request.groups
        names = {topic.id: name for name, topic in self._cluster.topics.items()}
        ids = {t.name or names.get(t.topic_id, str(t.topic_id)): t.topic_id for t in wanted.topics or ()}
        by_name = messages.OffsetFetchRequest(
            group_id=wanted.group_id,
            topics=None
            if wanted.topics is None
            else [
                messages.OffsetFetchRequest.OffsetFetchRequestTopic(name, topic.partition_indexes)
                for name, topic in zip(ids, wanted.topics, strict=True)
            ],
            require_stable=request.require_stable,
        )
        answer = self._fetched(broker, by_name)
        group_type = messages.OffsetFetchResponse.OffsetFetchResponseGroup
        partition_type = group_type.OffsetFetchResponseTopics.OffsetFetchResponsePartitions
        topics = []
        for topic in answer.topics:
            topic_id = ids.get(topic.name, NO_UUID)
            unknown = int(E.UNKNOWN_TOPIC_ID) if topic_id != NO_UUID and topic_id not in names else 0
            partitions = [
                partition_type(
                    p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, unknown or p.error_code
                )
                for p in topic.partitions
            ]
            topics.append(group_type.OffsetFetchResponseTopics(topic.name, topic_id, partitions))
        return messages.OffsetFetchResponse(groups=[group_type(wanted.group_id, topics, answer.error_code)])

    def _fetched(self, broker: Broker, request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
        code = self._refusal(broker, request.group_id, "OffsetFetch")
        group = self.group(request.group_id)
        group.forget_expired()
        if not code:
            for watch in self.watches:
                watch.fetched(group)
        topic_type = messages.OffsetFetchResponse.OffsetFetchResponseTopic
        uncertain = {key for entries in group.uncertain.values() for key in entries}
        if request.topics is None:
            asked: dict[str, list[int]] = {}
            # As in Kafka, a request for all offsets omits a partition's first offset until its transaction has ended.
            for topic, number in sorted(group.offsets):
                asked.setdefault(topic, []).append(number)
        else:
            asked = {topic.name: list(topic.partition_indexes) for topic in request.topics}
        topics = []
        for name, numbers in () if code else asked.items():
            partitions = []
            for number in numbers:
                unstable = request.require_stable and (name, number) in uncertain
                entry = None if unstable else group.offsets.get((name, number))
                partitions.append(
                    topic_type.OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=-1 if entry is None else entry.offset,
                        committed_leader_epoch=-1 if entry is None else entry.epoch,
                        metadata="" if entry is None else entry.metadata,
                        error_code=int(E.UNSTABLE_OFFSET_COMMIT) if unstable else 0,
                    )
                )
            topics.append(topic_type(name=name, partitions=partitions))
        return messages.OffsetFetchResponse(throttle_time_ms=0, topics=topics, error_code=int(code))

    def _describe(self, broker: Broker, request: messages.DescribeGroupsRequest, reply: Reply) -> None:
        described = messages.DescribeGroupsResponse.DescribedGroup
        groups = []
        for name in request.groups:
            code = self._refusal(broker, name, "DescribeGroups")
            group = self.groups.get(name)
            if group is not None and group.refuses_commit is not None:
                # The group has the consumer protocol, which this request does not know.
                group = None
            stable = group is not None and group.state == STABLE
            groups.append(
                described(
                    error_code=int(code),
                    group_id=name,
                    group_state="Dead" if group is None else group.state,
                    protocol_type="" if group is None or group.state == EMPTY else "consumer",
                    protocol_data=group.protocol if group is not None and stable else "",
                    members=[
                        described.DescribedGroupMember(
                            member_id=one.member_id,
                            group_instance_id=one.instance_id,
                            client_id=one.client_id,
                            client_host="/127.0.0.1",
                            member_metadata=dict(one.protocols).get(group.protocol, b"") if stable and group else b"",
                            member_assignment=one.assignment if stable else b"",
                        )
                        for one in (group.members.values() if group is not None and not code else ())
                    ],
                )
            )
        reply(messages.DescribeGroupsResponse(throttle_time_ms=0, groups=groups))


def _synced(code: int, assignment: bytes = b"") -> Any:
    return messages.SyncGroupResponse(
        throttle_time_ms=0, error_code=int(code), protocol_type=None, protocol_name=None, assignment=assignment
    )


def _committed(response: Any, request: Any, code: int, cluster: Cluster, api: str) -> Any:
    if code and request.topics:
        cluster.errors[api, int(code)] += 1
    topic_type = getattr(response, f"{response.__name__}Topic")
    partition_type = getattr(topic_type, f"{response.__name__}Partition")
    topics = [
        topic_type(
            name=topic.name,
            partitions=[
                partition_type(partition_index=one.partition_index, error_code=int(code)) for one in topic.partitions
            ],
            topic_id=topic.topic_id,
        )
        for topic in request.topics
    ]
    return response(throttle_time_ms=0, topics=topics)
