"""A test kit for strategies: what is wrong with an answer, and a hypothesis test of a whole group's life.

    from assignors.testing import check_assignor

    def test_my_assignor():
        check_assignor(MyAssignor)

`measure` and `problems` need the standard library alone, `check_assignor` needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assignors.interface import Assignor, RebalanceProtocol
from assignors.model import (
    NO_GENERATION,
    Assignment,
    ClusterMetadata,
    GroupSubscription,
    Subscription,
    TopicPartition,
)

if TYPE_CHECKING:
    from hypothesis import strategies

__all__ = ["Claim", "Figures", "check_assignor", "measure"]

FOLLOW_UPS = 4
"""Rounds after which a cooperative group must have come to rest (what Java's own tests allow)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member had when it joined, and in which generation it got it; -1: not said."""

    partitions: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Figures:
    """How good an answer is.

    Attributes:
        invalid: What makes it no answer at all, in words; empty: nothing.
        uncovered: Partitions of subscribed topics that nobody, or not enough members, got.
        spread: The most partitions a member has less the fewest.
        movable: A partition that could go to a subscriber with at least two fewer, or None: the answer is balanced.
        sum_squares: The sum of squared sizes; lower is more even.
        kept: Claimed partitions that stay with a member that claims them.
        lost: Claimed partitions that exist and do not stay.
        rack_mismatches: Partitions with a member on whose rack they have no replica.
        direct_transfers: Partitions given to a member while another one holds a newer claim.
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
    """The claims in the subscriptions themselves, as a cooperative assignor sees them."""
    return {member: Claim(subscription.owned, subscription.generation) for member, subscription in group.items()}


def measure(
    cluster: ClusterMetadata,
    group: GroupSubscription,
    answer: Mapping[str, Assignment],
    claims: Mapping[str, Claim] | None = None,
    copies: int = 1,
) -> Figures:
    """Judge an answer.

    Args:
        cluster: As given to the assignor.
        group: As given to the assignor.
        answer: What it said.
        claims: What the members had; None: what their subscriptions say.
        copies: How many members each partition goes to (fewer where fewer subscribe to it).
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
    found = [f"no answer for member {member}" for member in group if member not in answer]
    for member, given in answer.items():
        if member not in group:
            found.append(f"an answer for {member}, which is no member")
            continue
        if len(given.partitions) != len(set(given.partitions)):
            found.append(f"{member} gets a partition twice")
        for topic, number in given.partitions:
            if topic not in subscribed[member]:
                found.append(f"{member} gets {topic}-{number}, and does not subscribe to it")
            elif TopicPartition(topic, number) not in wanted:
                found.append(f"{member} gets {topic}-{number}, which does not exist")
    for (topic, number), members in holders.items():
        if len(members) > wanted.get(TopicPartition(topic, number), len(members)):
            found.append(f"{topic}-{number} goes to {len(members)} members: {', '.join(sorted(members))}")
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
    """To k only if no other member claims it in a newer generation than k, or at all if k does not."""
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
    """What a strategy promises of its answers, beyond that they are valid and complete.

    Attributes:
        balanced: No partition could go to a subscriber that has at least two fewer.
        sticky: An unchanged group keeps everything; in a group with the same topics for all and no racks, the members
            that stay keep everything when others leave.
        copies: How many members each partition goes to.
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
    """Run a strategy through random group histories: members join and leave, subscriptions and topics change.

    After every change all members join and one leads, until the group is at rest (at once with an eager strategy).

    Args:
        make: Makes a member's assignor.
        balanced: See `Promises`.
        sticky: See `Promises`.
        copies: See `Promises`.
        racks: Whether members and partitions have racks.
        mixed: Whether members subscribe to different topics.
        examples: How many histories.
        shrink: Whether to look for the shortest history that breaks a promise, which takes up to minutes.

    Raises:
        AssertionError: A promise is broken; hypothesis shows the shortest history it found.
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
    """One moment of a group: the cluster and the members with what they want, by id."""

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
    """A group as its coordinator sees it: members with their own assignors, one of which leads each round."""

    def __init__(self, make: Callable[[], Assignor], promises: Promises) -> None:
        self._make = make
        self._promises = promises
        self._members: dict[str, _Member] = {}
        self._generation = 0

    def play(self, step: _Step) -> None:
        """The step's change, rounds until the group is at rest, then an unchanged round and one with a member less."""
        self._change(step)
        self._settle(step.cluster)
        if self._promises.sticky:
            before = self._owned()
            self._round(step.cluster)
            assert self._owned() == before, f"an unchanged group moved partitions:\n{before}\n{self._owned()}"
            if len(self._members) > 1 and self._alike():
                self._members.pop(min(self._members))
                survivors = {member: before[member] for member in self._members}
                self._settle(step.cluster)
                after = self._owned()
                for member, partitions in survivors.items():
                    assert partitions <= after[member], f"{member} lost {partitions - after[member]} as another left"

    def _change(self, step: _Step) -> None:
        self._members = {member: known for member, known in self._members.items() if member in step.members}
        for member, (topics, rack, instance) in step.members.items():
            known = self._members.setdefault(member, _Member(self._make(), topics, rack, instance))
            known.topics, known.rack, known.instance_id = topics, rack, instance
            # A member gives up what it no longer subscribes to before it joins (KIP-429).
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
            raise AssertionError(f"the group did not come to rest in {FOLLOW_UPS} follow-up rounds")
        assert not figures.uncovered, f"nobody has {figures.uncovered}"
        if self._promises.balanced:
            assert figures.movable is None, f"{figures.movable} could go to a member with two fewer: {self._owned()}"

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
            assert not figures.direct_transfers, f"given before its owner let go: {figures.direct_transfers}"
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
