"""A test kit for strategies: measures one assignment, or tests a strategy with random histories of a group.

    from assignors.testing import check_assignor

    def test_my_assignor():
        check_assignor(MyAssignor)

`measure` needs only the standard library, `check_assignor` needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assignors.interface import Assignor, RebalanceProtocol
from assignors.model import NO_GENERATION, Assignment, ClusterMetadata, GroupSubscription, Subscription, TopicPartition

if TYPE_CHECKING:
    from hypothesis import strategies

__all__ = ["Figures", "check_assignor", "measure"]

FOLLOW_UPS = 4
"""The number of follow-up rebalances after which a cooperative group must be stable (the limit of Java's own tests)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The partitions that a member owned when it joined, and the generation of their assignment; -1: unknown."""

    partitions: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Figures:
    """The quality of one assignment.

    Attributes:
        invalid: The reasons why the assignment is invalid, as sentences; empty if it is valid.
        uncovered: Partitions of subscribed topics that are assigned to no member, or to fewer members than `copies`.
        spread: The difference between the numbers of partitions of the largest and the smallest member.
        movable: A partition that could move to a subscriber with at least two partitions fewer; None: balanced.
        sum_squares: The sum of the squared numbers of partitions; lower is more even.
        kept: The number of partitions that stay with a member that claims them.
        lost: The number of existing claimed partitions that do not stay.
        rack_mismatches: The number of assigned partitions that have no replica on their member's rack.
        direct_transfers: Partitions assigned to a member while another member has a newer claim on them.
    """

    invalid: tuple[str, ...]
    uncovered: tuple[TopicPartition, ...]
    spread: int
    movable: TopicPartition | None
    sum_squares: int
    kept: int
    lost: int
    rack_mismatches: int
    direct_transfers: tuple[TopicPartition, ...]


def claims_of(group: GroupSubscription) -> dict[str, Claim]:
    """Return the claims that the subscriptions contain (`owned`), which a cooperative assignor uses."""
    return {member: Claim(subscription.owned, subscription.generation) for member, subscription in group.items()}


def measure(
    cluster: ClusterMetadata,
    group: GroupSubscription,
    answer: Mapping[str, Assignment],
    claims: Mapping[str, Claim] | None = None,
    copies: int = 1,
) -> Figures:
    """Measure an assignment.

    Args:
        cluster: The cluster metadata that the assignor was given.
        group: The subscriptions that the assignor was given.
        answer: The assignment that the assignor returned.
        claims: The partitions that members owned before; None: the `owned` partitions of their subscriptions.
        copies: The number of members that each partition needs; if a topic has fewer subscribers, all of these.
    """
    claims = claims_of(group) if claims is None else claims
    subscribed = {member: frozenset(subscription.topics) for member, subscription in group.items()}
    counts = {
        topic: n for topic in sorted(frozenset[str]().union(*subscribed.values())) if (n := _count(cluster, topic))
    }
    readers = {topic: [member for member in group if topic in subscribed[member]] for topic in counts}
    had = {member: set(claim.partitions) for member, claim in claims.items()}
    have = {member: set(given.partitions) for member, given in answer.items()}
    sizes = {member: len(have.get(member, ())) for member in group}
    holders: dict[TopicPartition, list[str]] = {}
    for member, partitions in have.items():
        for partition in partitions:
            holders.setdefault(partition, []).append(member)
    wanted = {
        TopicPartition(topic, number): min(copies, len(readers[topic]))
        for topic, count in counts.items()
        for number in range(count)
    }
    kept = sum(len(have.get(member, set()) & partitions & wanted.keys()) for member, partitions in had.items())
    return Figures(
        invalid=tuple(_invalid(group, answer, subscribed, wanted, holders)),
        uncovered=tuple(p for p, n in wanted.items() if len(holders.get(p, ())) < n),
        spread=max(sizes.values(), default=0) - min(sizes.values(), default=0),
        movable=_movable(holders, readers, have, sizes),
        sum_squares=sum(size * size for size in sizes.values()),
        kept=kept,
        lost=sum(len(partitions & wanted.keys()) for partitions in had.values()) - kept,
        rack_mismatches=sum(
            rack not in _racks(cluster, partition)
            for member, subscription in group.items()
            if (rack := subscription.rack)
            for partition in have.get(member, ())
        ),
        direct_transfers=tuple(_direct_transfers(have, claims)),
    )


def _count(cluster: ClusterMetadata, topic: str) -> int:
    return max(0, cluster.partitions.get(topic, 0))


def _racks(cluster: ClusterMetadata, partition: TopicPartition) -> Sequence[str]:
    known = cluster.racks.get(partition.topic, ())
    return known[partition.partition] if 0 <= partition.partition < len(known) else ()


def _invalid(
    group: GroupSubscription,
    answer: Mapping[str, Assignment],
    subscribed: Mapping[str, frozenset[str]],
    wanted: Mapping[TopicPartition, int],
    holders: Mapping[TopicPartition, Sequence[str]],
) -> list[str]:
    found = [f"no assignment for member {member}" for member in group if member not in answer]
    for member, given in answer.items():
        if member not in group:
            found.append(f"an assignment for {member}, which is not a member of the group")
            continue
        if len(given.partitions) != len(set(given.partitions)):
            found.append(f"{member} is assigned a partition twice")
        for topic, number in given.partitions:
            if topic not in subscribed[member]:
                found.append(f"{member} is assigned {topic}-{number}, but does not subscribe to {topic}")
            elif TopicPartition(topic, number) not in wanted:
                found.append(f"{member} is assigned {topic}-{number}, which does not exist")
    for (topic, number), members in holders.items():
        if len(members) > wanted.get(TopicPartition(topic, number), len(members)):
            found.append(f"{topic}-{number} is assigned to {len(members)} members: {', '.join(sorted(members))}")
    return found


def _movable(
    holders: Mapping[TopicPartition, Sequence[str]],
    readers: Mapping[str, Sequence[str]],
    have: Mapping[str, set[TopicPartition]],
    sizes: Mapping[str, int],
) -> TopicPartition | None:
    least = {topic: min((sizes[member] for member in members), default=0) for topic, members in readers.items()}
    for partition, members in holders.items():
        for source in members:
            if sizes.get(source, 0) < least.get(partition.topic, 0) + 2:
                continue
            for target in readers.get(partition.topic, ()):
                if sizes[source] >= sizes[target] + 2 and partition not in have.get(target, ()):
                    return partition
    return None


def _direct_transfers(have: Mapping[str, set[TopicPartition]], claims: Mapping[str, Claim]) -> list[TopicPartition]:
    """Return the partitions that are assigned to a member while another member has a newer claim.

    A member may get a partition that no other member claims, or that the member itself claims, if no other member
    claims the partition in a newer generation.
    """
    claimed: dict[TopicPartition, dict[str, int]] = {}
    for member, claim in claims.items():
        for partition in claim.partitions:
            claimed.setdefault(partition, {})[member] = claim.generation
    return [
        partition
        for member, partitions in have.items()
        for partition in partitions
        if any(
            other != member and (member not in rivals or generation > rivals[member])
            for rivals in [claimed.get(partition, {})]
            for other, generation in rivals.items()
        )
    ]


@dataclass(frozen=True, slots=True)
class Promises:
    """Properties of a strategy's assignments, in addition to being valid and complete.

    Attributes:
        balanced: No partition could move to a subscriber that has at least two partitions fewer.
        sticky: In an unchanged group all members keep their partitions. With equal subscriptions and without racks, the
            remaining members keep their partitions when a member leaves. With `copies` above 1, the remaining members
            may lose as many partitions as the leaving member had.
        copies: The number of members that each partition needs.
    """

    balanced: bool = True
    sticky: bool = True
    copies: int = 1


@dataclass(slots=True)
class _Member:
    assignor: Assignor
    topics: tuple[str, ...]
    rack: str | None
    instance_id: str | None
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION


def check_assignor(
    make: Callable[[], Assignor],
    *,
    balanced: bool = True,
    sticky: bool = True,
    copies: int = 1,
    racks: bool = True,
    mixed: bool = True,
    examples: int = 100,
    shrink: bool = True,
) -> None:
    """Test a strategy with random group histories: members join and leave, subscriptions and topics change.

    After every change the group rebalances until it is stable: once with an eager strategy, up to 1 + `FOLLOW_UPS`
    times with a cooperative strategy.

    Args:
        make: Creates one member's assignor.
        balanced: Require balanced assignments, see `Promises.balanced`.
        sticky: Require sticky assignments, see `Promises.sticky`.
        copies: The required number of members of each partition.
        racks: Generate members and partitions with racks.
        mixed: Generate members that subscribe to different topics.
        examples: The number of histories.
        shrink: Search for the shortest history that fails, which can take minutes.

    Raises:
        AssertionError: An assignment is invalid, incomplete or breaks a promise; hypothesis prints the shortest
            history.
    """
    from hypothesis import HealthCheck, Phase, given, settings

    promises = Promises(balanced, sticky, copies)
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=phases,
        report_multiple_bugs=False,
    )
    @given(_histories(racks=racks, mixed=mixed))
    def run(history: Sequence[_Step]) -> None:
        group = _Group(make, promises)
        for step in history:
            group.play(step)

    run()


@dataclass(frozen=True, slots=True)
class _Step:
    """One state of a group: the cluster, and each member's topics, rack and instance id by member id."""

    cluster: ClusterMetadata
    members: Mapping[str, tuple[tuple[str, ...], str | None, str | None]]


def _histories(*, racks: bool, mixed: bool) -> strategies.SearchStrategy[list[_Step]]:
    from hypothesis import strategies as st

    names = [f"topic-{letter}" for letter in "abcd"]
    places = ["rack-1", "rack-2", "rack-3"]
    ids = [f"member-{number}" for number in range(12)]

    @st.composite
    def cluster(draw: st.DrawFn) -> ClusterMetadata:
        counts = draw(st.dictionaries(st.sampled_from(names), st.integers(0, 9), min_size=1))
        if not racks or draw(st.booleans()):
            return ClusterMetadata(counts)
        replicas = st.lists(st.sampled_from(places), min_size=0, max_size=2, unique=True)
        return ClusterMetadata(counts, {topic: draw(st.lists(replicas, max_size=n)) for topic, n in counts.items()})

    @st.composite
    def step(draw: st.DrawFn) -> _Step:
        topics = st.lists(st.sampled_from(names), unique=True, max_size=len(names)).map(tuple)
        common = draw(topics.filter(bool))
        alike = not mixed or draw(st.booleans())
        members = {}
        for member in draw(st.lists(st.sampled_from(ids), unique=True, min_size=1)):
            rack = draw(st.none() | st.sampled_from(places)) if racks else None
            instance = f"static-{ids.index(member) * 7 % 12}" if draw(st.booleans()) else None
            members[member] = (common if alike else draw(topics), rack, instance)
        return _Step(draw(cluster()), members)

    return st.lists(step(), min_size=1, max_size=4)


class _Group:
    """A group: each member has its own assignor, and one member leads each rebalance."""

    def __init__(self, make: Callable[[], Assignor], promises: Promises) -> None:
        self._make = make
        self._promises = promises
        self._members: dict[str, _Member] = {}
        self._generation = 0

    def play(self, step: _Step) -> None:
        """Apply the step and rebalance until the group is stable.

        For a sticky strategy, also check that members keep partitions without a change, and after a member has left.
        """
        self._change(step)
        self._settle(step.cluster)
        if self._promises.sticky:
            before = self._owned()
            self._round(step.cluster)
            assert self._owned() == before, f"an unchanged group moved partitions:\n{before}\n{self._owned()}"
            if len(self._members) > 1 and self._alike():
                left = min(self._members)
                del self._members[left]
                self._settle(step.cluster)
                after = self._owned()
                lost = {member: before[member] - after[member] for member in after if before[member] - after[member]}
                # A copy cannot go to a member that has the partition, so for each copy another copy may have to move.
                allowed = len(before[left]) if self._promises.copies > 1 else 0
                assert sum(map(len, lost.values())) <= allowed, f"when {left} left, other members lost {lost}"

    def _change(self, step: _Step) -> None:
        self._members = {member: known for member, known in self._members.items() if member in step.members}
        for member, (topics, rack, instance) in step.members.items():
            known = self._members.setdefault(member, _Member(self._make(), topics, rack, instance))
            known.topics, known.rack, known.instance_id = topics, rack, instance
            # Before it joins, a member revokes the partitions of topics that it no longer subscribes to (KIP-429).
            known.owned = tuple(partition for partition in known.owned if partition.topic in topics)

    def _settle(self, cluster: ClusterMetadata) -> None:
        for _ in range(1 + FOLLOW_UPS):
            before = self._owned()
            figures = self._round(cluster)
            cooperative = self._cooperative()
            revoked = any(before[member] - after for member, after in self._owned().items())
            if not cooperative or not revoked:
                break
        else:
            raise AssertionError(f"the group is not stable after {FOLLOW_UPS} follow-up rebalances")
        assert not figures.uncovered, f"not assigned to enough members: {figures.uncovered}"
        if self._promises.balanced:
            assert figures.movable is None, f"{figures.movable} could move to a member with two fewer: {self._owned()}"

    def _round(self, cluster: ClusterMetadata) -> Figures:
        cooperative = self._cooperative()
        group = {
            member: Subscription(
                topics=known.topics,
                user_data=known.assignor.subscription_user_data(known.topics),
                owned=known.owned if cooperative else (),
                generation=known.generation if cooperative else NO_GENERATION,
                rack=known.rack,
                instance_id=known.instance_id,
            )
            for member, known in self._members.items()
        }
        claims = {member: Claim(known.owned, known.generation) for member, known in self._members.items()}
        answer = next(iter(self._members.values())).assignor.assign(cluster, group)
        figures = measure(cluster, group, answer, claims, self._promises.copies)
        assert not figures.invalid, "; ".join(figures.invalid)
        if cooperative and self._promises.copies == 1:
            assert not figures.direct_transfers, f"assigned before the owner revoked it: {figures.direct_transfers}"
        self._generation += 1
        for member, known in self._members.items():
            known.assignor.on_assignment(answer[member], self._generation)
            known.owned, known.generation = answer[member].partitions, self._generation
        return figures

    def _cooperative(self) -> bool:
        return all(RebalanceProtocol.COOPERATIVE in known.assignor.protocols for known in self._members.values())

    def _owned(self) -> dict[str, set[TopicPartition]]:
        return {member: set(known.owned) for member, known in self._members.items()}

    def _alike(self) -> bool:
        return len({frozenset(known.topics) for known in self._members.values()}) == 1 and not any(
            known.rack for known in self._members.values()
        )
