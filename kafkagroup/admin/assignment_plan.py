"""A dry run of an assignment: the partitions that each member would get from an assignor. Pure.

The dry run gives the assignor the subscriptions that members would send, and checks the result as a leader does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from assignors import (
    Assignment,
    AssignmentError,
    Assignor,
    ClusterMetadata,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    load,
)
from kafka_source.errors import AssignmentFailed, OptionError
from kafka_source.group.classic.leader import assign
from kafkagroup.admin.rows import Group, Rows

# The generation in which all members got their partitions. Assignors only compare generations, so any value will do.
_GENERATION = 1
# A cooperative strategy moves a partition in two rebalances. A third rebalance moves nothing.
_MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PlanMember:
    """A member of the dry run.

    Attributes:
        name: The name, which is the member id and the instance id too. Assignors sort members by these ids.
        topics: The topics that the member subscribes to.
        rack: `client.rack`.
        options: The options of the member's assignor, such as {"weight": 2}.
        owned: The partitions that the member has now.
    """

    name: str
    topics: tuple[str, ...]
    rack: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    owned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """The partitions that a member would get.

    Attributes:
        member: The member's name.
        count: The number of the member's partitions.
        partitions: The member's partitions, sorted.
        standby: The partitions for which the member would be a standby (`redundant`).
        gained: The partitions that the member does not have now.
        lost: The partitions that the member has now and would lose.
        outside_rack: The number of partitions without a replica in the member's rack; None: the member has no rack.
    """

    member: str
    count: int
    partitions: tuple[TopicPartition, ...]
    standby: tuple[TopicPartition, ...]
    gained: tuple[TopicPartition, ...]
    lost: tuple[TopicPartition, ...]
    outside_rack: int | None


def plan(assignor: str, cluster: ClusterMetadata, members: Iterable[PlanMember]) -> Rows[PlannedMember]:
    """Return the partitions that each member would get, by member.

    Args:
        assignor: A name that `assignors.load` accepts.
        cluster: The topics' partitions and the racks of their replicas.
        members: The members; the leader's assignor has the options of the first member.

    Raises:
        OptionError: The assignor does not exist, or refuses the options of a member.
        AssignmentFailed: The assignor refuses to assign the partitions.
    """
    given = {member.name: member for member in members}
    if not given:
        raise OptionError("members", 0, "at least one member")
    now = given
    for _ in range(_MAX_ROUNDS):
        own = {name: _assignor(assignor, member) for name, member in now.items()}
        leader = next(iter(own.values()))
        group = {name: _subscription(own[name], member) for name, member in now.items()}
        try:
            found = assign(leader, cluster, group)
        except AssignmentError as error:
            raise AssignmentFailed(f"The assignor {assignor} assigns nothing: {error.reason}") from None
        after = {name: replace(now[name], owned=tuple(sorted(one.partitions))) for name, one in found.items()}
        if not _keeps(leader) or after == now:
            break
        now = {name: after[name] for name in now}
    return Rows(PlannedMember, (_planned(leader, cluster, given[name], found[name]) for name in sorted(found)))


def members_of(group: Group, assignor: str, options: Mapping[str, object]) -> list[PlanMember]:
    """Return the members of an existing group, with the partitions that they have.

    Args:
        group: The group.
        assignor: The assignor of the dry run.
        options: The options of the members' assignors. If `assignor` is the group's own assignor, the weight that each
            member reports is added. Other assignors may refuse a weight.
    """
    found = []
    for member in group.members:
        weight = None if member.user_data is None or assignor != group.assignor else member.user_data.weight
        own = dict(options) if weight is None else {**options, "weight": weight}
        topics = member.topics or tuple(sorted({tp.topic for tp in member.partitions}))
        found.append(PlanMember(member.name, topics, member.rack, own, member.partitions))
    return found


def _assignor(name: str, member: PlanMember) -> Assignor:
    try:
        made = load(name, member.options)
    except ValueError as error:
        raise OptionError("assignor", name, f"options of the assignors: {error}") from None
    if member.owned:
        made.on_assignment(Assignment(member.owned), _GENERATION)
    return made


def _keeps(assignor: Assignor) -> bool:
    """Return whether members keep their partitions while they join (KIP-429)."""
    return RebalanceProtocol.COOPERATIVE in assignor.protocols


def _subscription(assignor: Assignor, member: PlanMember) -> Subscription:
    # A member of an eager strategy gives its partitions up before it joins, and reports them in its user data only.
    return Subscription(
        member.topics,
        assignor.subscription_user_data(member.topics),
        member.owned if _keeps(assignor) else (),
        _GENERATION if member.owned else -1,
        member.rack,
        member.name,
    )


def _planned(leader: Assignor, cluster: ClusterMetadata, member: PlanMember, given: Assignment) -> PlannedMember:
    partitions, before = tuple(sorted(given.partitions)), set(member.owned)
    outside = None
    if member.rack is not None:
        outside = sum(member.rack not in _racks(cluster, tp) for tp in partitions)
    return PlannedMember(
        member.name,
        len(partitions),
        partitions,
        tuple(sorted(leader.replicas(given))),
        tuple(tp for tp in partitions if tp not in before),
        tuple(sorted(before.difference(partitions))),
        outside,
    )


def _racks(cluster: ClusterMetadata, tp: TopicPartition) -> tuple[str, ...]:
    racks = cluster.racks.get(tp.topic, ())
    return tuple(racks[tp.partition]) if tp.partition < len(racks) else ()
