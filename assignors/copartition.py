"""`copartition`: assign the same partition number of several topics to the same member.

Java has no such strategy: `range` keeps topics together only while they have equal partition counts and subscribers,
and reports no difference. If counts or subscribers differ, `copartition` raises an error, or co-locates as many
partitions as possible.

A strategy that assigns partitions one by one keeps co-partitioned topics together by `fold`, which leaves only the
first topic of each set, and `Folded.unfold`, which assigns the other topics' partitions by their numbers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from assignors.index import known_topics, partition_racks, sorted_names
from assignors.interface import AssignmentError, Assignor
from assignors.model import Assignment, ClusterMetadata, GroupSubscription, TopicPartition
from assignors.range_and_round_robin import TopicShare, readers_in_order, share_out, shares_of_alike


@dataclass(frozen=True, slots=True)
class Folded:
    """A group with only the first topic of each set, for a strategy that keeps co-partitioned topics together.

    Attributes:
        cluster: The cluster without the omitted topics. The racks of a partition are those that have a replica of its
            number in every topic of the set.
        group: The subscriptions without the omitted topics.
        sets: All topics of each set, by the set's first topic. Topics in no set are absent.
    """

    cluster: ClusterMetadata
    group: GroupSubscription
    sets: Mapping[str, Sequence[str]]

    def partitions(self, tp: TopicPartition) -> list[TopicPartition]:
        """Return a partition, and the partitions that are assigned together with it."""
        return [TopicPartition(topic, tp.partition) for topic in self.sets.get(tp.topic, (tp.topic,))]

    def unfold(self, answer: Mapping[str, Assignment]) -> dict[str, Assignment]:
        """Return the assignments with the partitions of the omitted topics added."""
        if not self.sets:
            return dict(answer)
        return {
            member: Assignment([one for tp in given.partitions for one in self.partitions(tp)], given.user_data)
            for member, given in answer.items()
        }


def fold(cluster: ClusterMetadata, group: GroupSubscription, groups: Sequence[Collection[str]]) -> Folded:
    """Keep one topic of each set: the first that exists and has a subscriber. Topics in no set stay.

    Raises:
        AssignmentError: The topics of a set differ in partition counts or subscribers.
    """
    counts = known_topics(cluster, group)
    found = [sorted_names(topic for topic in set(topics) if topic in counts) for topics in groups]
    sets = {topics[0]: topics for topics in found if len(topics) > 1}
    if not sets:
        return Folded(cluster, group, {})
    readers = {
        topic: [member for member in sorted_names(group) if topic in group[member].topics]
        for topics in sets.values()
        for topic in topics
    }
    for topics in sets.values():
        check_alike(topics, counts, readers, "make them equal, or take them out of the set")
    out = {topic for topics in sets.values() for topic in topics[1:]}
    return Folded(
        replace(
            cluster,
            partitions={topic: count for topic, count in cluster.partitions.items() if topic not in out},
            racks={**cluster.racks, **{first: _common_racks(cluster, sets[first], counts[first]) for first in sets}},
        ),
        {
            member: replace(subscription, topics=[topic for topic in subscription.topics if topic not in out])
            for member, subscription in group.items()
        },
        sets,
    )


def _common_racks(cluster: ClusterMetadata, topics: Sequence[str], count: int) -> list[list[str]]:
    by_topic = [partition_racks(cluster, topic, count) for topic in topics]
    return [sorted(frozenset.intersection(*racks)) for racks in zip(*by_topic, strict=True)]


def check_disjoint(groups: Sequence[Collection[str]]) -> None:
    """Check that no topic is in two sets.

    Raises:
        ValueError: A topic is in two sets; the error names the topic.
    """
    named = [topic for group in groups for topic in set(group)]
    if len(named) != len(set(named)):
        twice = sorted({topic for topic in named if named.count(topic) > 1})
        raise ValueError(f"topics are in two co-partitioned sets: {', '.join(twice)}; merge these sets")


def check_alike(
    topics: Sequence[str], counts: Mapping[str, int], readers: Mapping[str, Collection[str]], advice: str
) -> None:
    """Check that the topics of a set have equal partition counts and subscribers.

    Raises:
        AssignmentError: The topics differ. The error names the topics or the members, and ends with `advice`.
    """
    if len({counts[topic] for topic in topics}) > 1:
        listed = ", ".join(f"{topic} has {counts[topic]}" for topic in topics)
        raise AssignmentError(f"co-partitioned topics have different partition counts: {listed}; {advice}")
    for topic in topics[1:]:
        odd = sorted(set(readers[topic]) ^ set(readers[topics[0]]))
        if odd:
            raise AssignmentError(
                f"co-partitioned topics have different subscribers: {', '.join(odd[:5])} "
                f"subscribes to only one of {topics[0]} and {topic}; {advice}"
            )


_MISMATCHES = ("refuse", "colocate")


class CopartitionAssignor(Assignor):
    """`range` with sets of co-partitioned topics. Topics in no set are assigned as `range` does.

    Args:
        groups: Sets of topics; a topic may be in one set only. None: all subscribed topics of the group are one set.
        mismatch: The handling of a set whose topics differ in partition counts or subscribers. "refuse" raises an
            AssignmentError. "colocate" assigns each partition number that exists in all topics to one of the members
            that subscribe to all topics; partitions with higher numbers are assigned topic by topic.
    """

    name: ClassVar[str] = "copartition"

    def __init__(self, groups: Sequence[Sequence[str]] | None = None, mismatch: str = "refuse") -> None:
        if mismatch not in _MISMATCHES:
            raise ValueError(f"mismatch must be one of {', '.join(_MISMATCHES)}, got {mismatch!r}")
        check_disjoint(groups or ())
        self._groups = groups
        self._mismatch = mismatch

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """Assign each set of co-partitioned topics together, and other topics as `range` does.

        Raises:
            AssignmentError: A set's topics differ and `mismatch` is "refuse", or no member subscribes to the whole set.
        """
        counts = known_topics(cluster, group)
        readers = readers_in_order(group, counts)
        groups = [list(counts)] if self._groups is None else self._groups
        sets = [sorted_names(topic for topic in set(topics) if topic in counts) for topics in groups]
        shares: list[TopicShare] = []
        for topics in filter(None, sets):
            if self._mismatch == "refuse":
                check_alike(topics, counts, readers, "make them equal, or set mismatch='colocate'")
            shares += _share_together(topics, counts, readers)
        together = {topic for topics in sets for topic in topics}
        shares += shares_of_alike({t: n for t, n in counts.items() if t not in together}, readers)
        return share_out(cluster, group, shares)


def _share_together(
    topics: Sequence[str], counts: Mapping[str, int], readers: Mapping[str, tuple[str, ...]]
) -> list[TopicShare]:
    """Return a share for the partition numbers that all topics have, and a share for each topic's higher numbers.

    Only members that subscribe to all the topics take part in the first share.
    """
    common = [m for m in readers[topics[0]] if all(m in readers[topic] for topic in topics)]
    if not common:
        raise AssignmentError(
            f"no member subscribes to all of the co-partitioned topics {', '.join(topics)}; "
            "subscribe at least one member to all of them, or split the set"
        )
    count = min(counts[topic] for topic in topics)
    rest = [topic for topic in topics if counts[topic] > count]
    return [
        TopicShare(topics, count, common),
        *(TopicShare([topic], counts[topic], readers[topic], first=count) for topic in rest),
    ]
