"""Sets of co-partitioned topics: what makes a set valid, and a group in which each set is a single topic.

A strategy that assigns partitions one by one keeps co-partitioned topics together if it sees only the first topic of
each set: `fold` leaves the others out, and `Folded.unfold` gives the members of a partition the same partition number
of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from assignors.index import known_topics
from assignors.interface import AssignmentError
from assignors.model import Assignment, ClusterMetadata, GroupSubscription, TopicPartition
from assignors.ordering import sorted_names
from assignors.racks import partition_racks


@dataclass(frozen=True, slots=True)
class Folded:
    """A group as a strategy sees it that must keep co-partitioned topics together.

    Attributes:
        cluster: The cluster without the topics that are left out. A partition has the racks on which all its topics
            have a replica.
        group: The subscriptions without these topics.
        sets: All topics of each set, by its first topic; topics without a set are not here.
    """

    cluster: ClusterMetadata
    group: GroupSubscription
    sets: Mapping[str, Sequence[str]]

    def partitions(self, tp: TopicPartition) -> list[TopicPartition]:
        """Return the partitions that are assigned together with a partition, itself among them."""
        return [TopicPartition(topic, tp.partition) for topic in self.sets.get(tp.topic, (tp.topic,))]

    def unfold(self, answer: Mapping[str, Assignment]) -> dict[str, Assignment]:
        """Return the assignments with the partitions of all topics."""
        if not self.sets:
            return dict(answer)
        return {
            member: Assignment([one for tp in given.partitions for one in self.partitions(tp)], given.user_data)
            for member, given in answer.items()
        }


def fold(cluster: ClusterMetadata, group: GroupSubscription, groups: Sequence[Collection[str]]) -> Folded:
    """Leave out all topics but the first of each set; topics that do not exist or have no subscriber do not count.

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
        ValueError: Names the topics that are.
    """
    named = [topic for group in groups for topic in set(group)]
    if len(named) != len(set(named)):
        twice = sorted({topic for topic in named if named.count(topic) > 1})
        raise ValueError(f"topics are in two groups: {', '.join(twice)}; put topics that belong together into one")


def check_alike(
    topics: Sequence[str], counts: Mapping[str, int], readers: Mapping[str, Collection[str]], advice: str
) -> None:
    """Check that the topics of a set have equal partition counts and subscribers.

    Raises:
        AssignmentError: They have not; the error names the topics or members, and gives the advice.
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
