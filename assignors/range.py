"""`range`: consecutive partitions of each topic to each member (`RangeAssignor` in Java)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from assignors.interface import Assignor
from assignors.model import Assignment, ClusterMetadata, GroupSubscription, TopicPartition


class RangeAssignor(Assignor):
    """Per topic, consecutive partitions to the members in order."""

    name: ClassVar[str] = "range"

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        """See `Assignor.assign`."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in group}
        order = sorted(group, key=lambda m: (group[m].instance_id is None, group[m].instance_id or "", m))
        for topic in sorted({topic for subscription in group.values() for topic in subscription.topics}):
            members = [member for member in order if topic in group[member].topics]
            each, more = divmod(cluster.partitions.get(topic, 0), len(members))
            start = 0
            for index, member in enumerate(members):
                end = start + each + (index < more)
                given[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return {member: Assignment(tuple(partitions)) for member, partitions in given.items()}
