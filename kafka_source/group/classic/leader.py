"""The leader's work: assign partitions, keep partitions in flight with their owners, encode the plan for SyncGroup.

**Claims** are partitions that a member keeps through a rebalance, because its micro-batch still reads them. A
cooperative strategy (KIP-429) revokes a partition in one rebalance and assigns it to its next owner in a later
rebalance. An eager strategy assigns the partition to its next owner immediately. Under an eager strategy kafkagroup's
leader moves partitions of kafkagroup's members in the same two steps. A member lists the partitions of its micro-batch
as owned. If the strategy gives such a partition to another member, the leader omits the partition from that member's
assignment, and names it as held in the claiming member's assignment. So the claiming member may still commit the
partition. After this commit, the claiming member rejoins without the claim, and the next rebalance assigns the
partition. Other clients claim nothing under an eager strategy.

If a rebalance begins before a member has got its assignment, the member claims its partitions again, with the
generation of its last assignment. The leader remembers which claims it has kept in between.

All functions except `lead` are pure.
"""

import asyncio
import logging
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from assignors import (
    Assignment,
    AssignmentError,
    Assignor,
    ClusterMetadata,
    GroupSubscription,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    WireFormatError,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from assignors.model import PartitionWork
from kafka_source.errors import code_name
from kafka_source.group.classic.member import Joined
from kafka_source.group.model import GroupMember
from kafka_source.group.requests import STABLE, GroupDescription
from kafka_source.kafka_client import Deadline, KafkaClient, Snapshot
from kafka_source.runtime.logs import once

log = logging.getLogger(__name__)

Claims = Mapping[str, Collection[TopicPartition]]
"""Claimed partitions, by member id."""

WorkOf = Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, PartitionWork]]]
"""Looks up the work in partitions."""

_FAILED = b"kafkagroup:assignment-failed:"
_HELD = b"kafkagroup:held:"
_SIZE = struct.Struct(">i")


def hold(
    assignor: Assignor, group: GroupSubscription, plan: Mapping[str, Assignment], generations: range, kept: Claims
) -> tuple[dict[str, Assignment], dict[str, tuple[TopicPartition, ...]]]:
    """Leave claimed partitions out of the assignments of other members.

    Args:
        assignor: The strategy that made the plan. Plans of cooperative and of redundant strategies stay unchanged.
        group: The members' subscriptions.
        plan: The strategy's assignments, by member id.
        generations: The generations whose claims count: from the last generation with assignments up to the previous
            generation. If a claim is older, another member may have read the partition since then.
        kept: The claims that the leader kept in the first of these generations; these count too.

    Returns:
        The assignments, and the partitions held for each claiming member, by member id.
    """
    if assignor.redundant or RebalanceProtocol.COOPERATIVE in assignor.protocols:
        return dict(plan), {}
    claims = {
        member: frozenset(tp for tp in sub.owned if sub.generation in generations or tp in kept.get(member, ()))
        for member, sub in group.items()
    }
    claimants = Counter(tp for claimed in claims.values() for tp in claimed)
    given = {tp: member for member, assignment in plan.items() for tp in assignment.partitions}
    held = {
        member: tuple(sorted(tp for tp in claimed if claimants[tp] == 1 and given.get(tp, member) != member))
        for member, claimed in claims.items()
    }
    left_out = {tp for partitions in held.values() for tp in partitions}
    if not left_out:
        return dict(plan), {}
    given_now = {
        member: Assignment([tp for tp in assignment.partitions if tp not in left_out], assignment.user_data)
        for member, assignment in plan.items()
    }
    return given_now, {member: partitions for member, partitions in held.items() if partitions}


def with_held(assignment: Assignment, held: tuple[TopicPartition, ...]) -> Assignment:
    """Return a member's assignment with its held partitions as user data; `without_held` reads them."""
    if not held:
        return assignment
    partitions = encode_assignment(Assignment(held))
    data = b"" if assignment.user_data is None else b"\x01" + assignment.user_data
    return Assignment(assignment.partitions, _HELD + _SIZE.pack(len(partitions)) + partitions + data)


def without_held(assignment: Assignment) -> tuple[Assignment, tuple[TopicPartition, ...]]:
    """Return the strategy's assignment, and the partitions held for the member.

    Raises:
        WireFormatError: The leader sent a malformed assignment.
    """
    data = assignment.user_data
    if data is None or not data.startswith(_HELD):
        return assignment, ()
    begin = len(_HELD) + _SIZE.size
    if len(data) < begin:
        raise WireFormatError(f"held partitions: {len(data)} bytes are too few")
    (size,) = _SIZE.unpack_from(data, len(_HELD))
    if not 0 <= size <= len(data) - begin:
        raise WireFormatError(f"held partitions: {size} bytes of {len(data) - begin}")
    held = decode_assignment(data[begin : begin + size]).partitions
    rest = data[begin + size :]
    return Assignment(assignment.partitions, rest[1:] if rest else None), tuple(TopicPartition(*tp) for tp in held)


def subscriptions(members: Iterable[GroupMember]) -> dict[str, Subscription]:
    """Return each member's subscription, by member id.

    Raises:
        AssignmentError: The subscription of a member is malformed.
    """
    found = {}
    for member in members:
        try:
            subscription = decode_subscription(member.metadata)
        except WireFormatError as error:
            raise AssignmentError(
                f"the subscription of member {member.instance_id or member.member_id} is malformed: {error}"
            ) from None
        found[member.member_id] = replace(subscription, instance_id=member.instance_id)
    return found


def topics_of(group: Mapping[str, Subscription]) -> set[str]:
    """Return all topics to which any member subscribes."""
    return {topic for subscription in group.values() for topic in subscription.topics}


def partitions_of(cluster: ClusterMetadata) -> list[TopicPartition]:
    """Return all partitions of the cluster's topics."""
    return [TopicPartition(topic, number) for topic, count in cluster.partitions.items() for number in range(count)]


def assign(assignor: Assignor, cluster: ClusterMetadata, group: Mapping[str, Subscription]) -> dict[str, Assignment]:
    """Return the assignor's assignment after validation.

    Raises:
        AssignmentError: The assignor refuses, fails, or returns an invalid assignment.
    """
    try:
        plan = assignor.assign(cluster, group)
    except AssignmentError:
        raise
    except Exception as error:
        raise AssignmentError(f"the assignor {assignor.name} failed: {type(error).__name__}: {error}") from error
    check(assignor, cluster, group, plan)
    return dict(plan)


def check(
    assignor: Assignor, cluster: ClusterMetadata, group: Mapping[str, Subscription], plan: Mapping[str, Assignment]
) -> None:
    """Validate an assignment.

    Raises:
        AssignmentError: A member is missing or unknown. A partition does not exist, the member does not subscribe to
            its topic, or it is assigned twice although the assignor is not `redundant`.
    """
    said = f"the assignor {assignor.name}"
    if unknown := sorted(set(plan) - set(group)):
        raise AssignmentError(f"{said} assigned to {unknown[0]}, which is not a member of the group")
    if missing := sorted(set(group) - set(plan)):
        raise AssignmentError(f"{said} returned no assignment for member {missing[0]}")
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in plan.items():
        topics = frozenset(group[member_id].topics)
        for tp in assignment.partitions:
            if not 0 <= tp.partition < cluster.partitions.get(tp.topic, 0):
                raise AssignmentError(f"{said} assigned {tp.topic}-{tp.partition}, which does not exist")
            if tp.topic not in topics:
                raise AssignmentError(
                    f"{said} assigned {tp.topic}-{tp.partition} to {member_id}, which does not subscribe to the topic"
                )
            owner = owners.setdefault(tp, member_id)
            if owner is not member_id and not assignor.redundant:
                raise AssignmentError(f"{said} assigned {tp.topic}-{tp.partition} to {owner} and to {member_id}")
        if len(set(assignment.partitions)) != len(assignment.partitions):
            raise AssignmentError(f"{said} assigned a partition twice to {member_id}")


def stale(cluster: ClusterMetadata, group: Mapping[str, Subscription], held: Mapping[str, Assignment]) -> str | None:
    """Return the reason why the current assignment no longer matches subscriptions and topics, or None.

    Static members that return within their session keep the assignment without a rebalance, even if their subscription
    or the topics have changed. Brokers do not detect such a change, so the members have to check it.
    """
    for member_id, assignment in held.items():
        topics = frozenset(group[member_id].topics) if member_id in group else frozenset()
        for tp in assignment.partitions:
            if tp.topic not in topics:
                return f"topic {tp.topic} is no longer subscribed to"
            if tp.partition >= cluster.partitions.get(tp.topic, 0):
                return f"{tp.topic}-{tp.partition} no longer exists"
    given = {tp for assignment in held.values() for tp in assignment.partitions}
    for topic in sorted(topics_of(group)):
        for number in range(cluster.partitions.get(topic, 0)):
            if TopicPartition(topic, number) not in given:
                return f"{topic}-{number} is assigned to no member"
    return None


def undescribed(group: Mapping[str, Subscription], refused: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return, by member id, the topics of a member's subscription that the leader may not describe.

    Args:
        group: The members' subscriptions.
        refused: The error code of each topic that the brokers do not describe to the leader.
    """
    found = {member: tuple(sorted(set(sub.topics) & refused.keys())) for member, sub in group.items()}
    return {member: topics for member, topics in found.items() if topics}


def without(subscription: Subscription, topics: Collection[str]) -> Subscription:
    """Return a subscription without these topics."""
    return replace(subscription, topics=tuple(topic for topic in subscription.topics if topic not in topics))


def refusal(topics: Iterable[str], refused: Mapping[str, int]) -> str:
    """Return the reason why a member gets none of the topics that the leader may not describe."""
    named = ", ".join(f"{topic} ({code_name(refused[topic])})" for topic in topics)
    return (
        f"the leader cannot describe {named}, which this member subscribes to. Grant DESCRIBE on these topics to the "
        "user of every member that may lead the group"
    )


def encode(
    plan: Mapping[str, Assignment], held: Mapping[str, tuple[TopicPartition, ...]] | None = None
) -> dict[str, bytes]:
    """Return, by member id, the bytes for SyncGroup: each member's assignment and the partitions held for it."""
    holding = held or {}
    return {
        member_id: encode_assignment(with_held(assignment, holding.get(member_id, ())))
        for member_id, assignment in plan.items()
    }


def failure(reason: str, members: Iterable[GroupMember]) -> dict[str, bytes]:
    """Return an empty assignment for every member, with the reason why the assignment failed.

    SyncGroup has no field for an error of the leader, so the reason is the user data of an empty assignment. Members of
    other clients ignore the reason and stay in the group without partitions; kafkagroup's members report it and stop.
    """
    state = encode_assignment(failed(Assignment(()), reason))
    return {member.member_id: state for member in members}


def failed(assignment: Assignment, reason: str) -> Assignment:
    """Return an assignment that stops members of kafkagroup; members of other clients ignore the reason."""
    return Assignment(assignment.partitions, _FAILED + reason.encode())


def failure_reason(assignment: Assignment) -> str | None:
    """Return the leader's reason if the assignment has failed, else None."""
    data = assignment.user_data
    return data[len(_FAILED) :].decode(errors="replace") if data is not None and data.startswith(_FAILED) else None


@dataclass(frozen=True, slots=True)
class Led:
    """The result of leading one generation.

    Attributes:
        states: Each member's assignment as bytes, by member id.
        topics: All topics to which any member subscribes.
        snapshot: The metadata of the topics, from which the assignment was computed.
        failed: The reason why the assignment failed, or None.
        group: The subscriptions of the members that got an assignment.
        plan: The assignments of the members in `group`, by member id.
        claims: The claims that the assignments keep.
    """

    states: Mapping[str, bytes]
    topics: frozenset[str]
    snapshot: Snapshot
    failed: str | None = None
    group: Mapping[str, Subscription] = field(default_factory=dict)
    plan: Mapping[str, Assignment] = field(default_factory=dict)
    claims: Claims = field(default_factory=dict)


async def lead(
    client: KafkaClient,
    group_id: str,
    assignor: Assignor,
    joined: Joined,
    deadline: Deadline,
    since: int,
    kept: Claims,
    work: WorkOf | None = None,
) -> Led:
    """Compute the assignments of one generation; if that fails, the assignments contain the reason.

    Args:
        client: The cluster's client.
        group_id: The group id.
        assignor: The strategy that the group uses.
        joined: The leader's response to JoinGroup.
        deadline: The time limit.
        since: The generation since which no member has been assigned anything.
        kept: The claims that this leader kept in that generation.
        work: Looks up lags and rates for a strategy that weighs them; None: they are unknown.
    """
    started = time.monotonic()
    topics: frozenset[str] = frozenset()
    snapshot = Snapshot(None, {})
    try:
        group = subscriptions(joined.members)
        topics = frozenset(topics_of(group))
        snapshot = await client.metadata(topics, deadline)
        cluster = snapshot.for_assignor(topics)
        # Java's leader fails as a whole (TopicAuthorizationException), although the other topics can be assigned.
        starved = undescribed(group, snapshot.refused)
        group |= {member: without(group[member], snapshot.refused) for member in starved}
        if work is not None and assignor.rebalance_interval() is not None:
            cluster = replace(cluster, work=await work(partitions_of(cluster)))
        # In a thread, because the assignor may take long for a large group, and the event loop has to send heartbeats.
        plan = await asyncio.get_running_loop().run_in_executor(None, assign, assignor, cluster, group)
        plan, held = hold(assignor, group, plan, range(since, joined.generation), kept)
        for member_id, topics_refused in starved.items():
            reason = refusal(topics_refused, snapshot.refused)
            plan[member_id] = failed(plan[member_id], reason)
            _log_starved(group_id, joined, member_id, reason)
    except AssignmentError as error:
        log.error("lead group=%s generation=%d failed: %s", group_id, joined.generation, error.reason)
        return Led(failure(error.reason, joined.members), topics, snapshot, error.reason)
    log.info(
        "lead group=%s generation=%d assignor=%s members=%d topics=%d partitions=%d took_ms=%d",
        group_id,
        joined.generation,
        joined.protocol,
        len(joined.members),
        len(topics),
        sum(cluster.partitions.values()),
        (time.monotonic() - started) * 1000,
    )
    for member_id, assignment in plan.items():
        log.debug("lead group=%s member=%s partitions=%d", group_id, member_id, len(assignment.partitions))
    if held:
        log.info(
            "lead group=%s generation=%d held=%d: micro-batches of members still read the held partitions",
            group_id,
            joined.generation,
            sum(map(len, held.values())),
        )
    claims = {
        member: frozenset(group[member].owned) & {*assignment.partitions, *held.get(member, ())}
        for member, assignment in plan.items()
    }
    return Led(encode(plan, held), topics, snapshot, group=group, plan=plan, claims=claims)


def _log_starved(group_id: str, joined: Joined, member_id: str, reason: str) -> None:
    """Warn once that a member does not get all its topics."""
    name = next(one.instance_id or one.member_id for one in joined.members if one.member_id == member_id)
    if once(("starved", group_id, name, reason)):
        log.error(
            "lead group=%s generation=%d member=%s failed: %s. A member of another client gets its other topics, but "
            "a query of kafkagroup stops",
            group_id,
            joined.generation,
            name,
            reason,
        )


def read_by_members(
    described: GroupDescription, own: Mapping[str, Collection[TopicPartition]]
) -> frozenset[TopicPartition] | None:
    """Return the partitions that the members of a classic group read, hold and claim; None: not known now.

    Args:
        described: The coordinator's description.
        own: The partitions of this query's slots by member id, from the slots' own state.
    """
    if described.state != STABLE or not own.keys() <= {one.member.member_id for one in described.members}:
        return None
    read = {tp for partitions in own.values() for tp in partitions}
    try:
        group = subscriptions(one.member for one in described.members)
        for one in described.members:
            if one.member.member_id not in own:
                read |= {TopicPartition(*tp) for tp in group[one.member.member_id].owned}
                assigned, held = without_held(decode_assignment(one.state))
                read |= {TopicPartition(*tp) for tp in (*assigned.partitions, *held)}
    except (AssignmentError, WireFormatError):
        # The format is another client's.
        return None
    return frozenset(read)
