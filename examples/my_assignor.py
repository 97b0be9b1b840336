"""A template for your own strategy: copy this file, change `assign`, and register the class in your package's metadata.

    [project.entry-points."kafkagroup.assignors"]
    fewest-bytes = "my_package.my_assignor:FewestBytesAssignor"

`assignors.load("fewest-bytes")` and every setting for a strategy then accept this name.

This strategy balances expected traffic and not the number of partitions. Each member sends topic rates as user data.
The leader assigns the partitions with the highest rates first, each to the least loaded member.
"""

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar

from assignors import Assignment, AssignmentError, Assignor, ClusterMetadata, GroupSubscription, TopicPartition


class FewestBytesAssignor(Assignor):
    """Assigns partitions so that all members read about as many bytes.

    Args:
        rates: Expected bytes per second of one partition, by topic; other topics count as 1.
    """

    name: ClassVar[str] = "fewest-bytes"

    def __init__(self, rates: Mapping[str, int] | None = None) -> None:
        self._rates = dict(rates or {})

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        # This JSON is sent to the leader. Add a version number if the format may change: members of two releases are
        # in one group during a rolling upgrade.
        wanted = set(topics)
        return json.dumps({topic: rate for topic, rate in self._rates.items() if topic in wanted}).encode()

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        rates: dict[str, int] = {}
        for member, subscription in group.items():
            try:
                said: dict[str, int] = json.loads(subscription.user_data or b"{}")
            except ValueError as error:
                # The group's operator sees this reason.
                raise AssignmentError(f"member {member} sent rates that are not valid JSON: {error}") from error
            for topic, rate in said.items():
                rates[topic] = max(rate, rates.get(topic, 0))
        # Every leader must return the same assignment for the same input, so members and topics are sorted.
        topics = sorted({topic for subscription in group.values() for topic in subscription.topics})
        load = dict.fromkeys(sorted(group), 0)
        given: dict[str, list[TopicPartition]] = {member: [] for member in load}
        for topic in sorted(topics, key=lambda topic: -rates.get(topic, 1)):
            readers = [member for member in load if topic in group[member].topics]
            for number in range(cluster.partitions.get(topic, 0)):
                member = min(readers, key=load.__getitem__)
                load[member] += rates.get(topic, 1)
                given[member].append(TopicPartition(topic, number))
        # Every member needs an entry, even if it gets no partitions.
        return {member: Assignment(partitions) for member, partitions in given.items()}


if __name__ == "__main__":
    # Test the strategy with random groups.
    from assignors.testing import check_assignor

    check_assignor(FewestBytesAssignor, balanced=False, sticky=False)
    print("all assignments of 100 random group histories are valid and complete")
