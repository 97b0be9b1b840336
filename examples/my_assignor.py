"""A strategy of your own: copy this file, change `assign`, and name it in your package's metadata.

    [project.entry-points."kafkagroup.assignors"]
    fewest-bytes = "my_package.my_assignor:FewestBytesAssignor"

Then `assignors.load("fewest-bytes")` finds it, and so does everything that takes a strategy's name.

This one evens out expected traffic and not the number of partitions: members send what they know of each topic's rate
as user data, and the heaviest partitions go first, each to the member with the least so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar

from assignors import Assignment, AssignmentError, Assignor, ClusterMetadata, GroupSubscription, TopicPartition


class FewestBytesAssignor(Assignor):
    """Args: rates: expected bytes a second of one partition, by topic; other topics count as 1."""

    name: ClassVar[str] = "fewest-bytes"

    def __init__(self, rates: Mapping[str, int] | None = None) -> None:
        self._rates = dict(rates or {})

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        # Bytes for the leader. Give them a version if they may ever change.
        wanted = set(topics)
        return json.dumps({topic: rate for topic, rate in self._rates.items() if topic in wanted}).encode()

    def assign(self, cluster: ClusterMetadata, group: GroupSubscription) -> Mapping[str, Assignment]:
        rates: dict[str, int] = {}
        for member, subscription in group.items():
            try:
                said: dict[str, int] = json.loads(subscription.user_data or b"{}")
            except ValueError as error:
                # The reason reaches whoever runs the group.
                raise AssignmentError(f"member {member} sent rates that are no JSON: {error}") from error
            for topic, rate in said.items():
                rates[topic] = max(rate, rates.get(topic, 0))
        # The same input must give the same answer in every leader: sort whatever came in no order.
        topics = sorted({topic for subscription in group.values() for topic in subscription.topics})
        load = dict.fromkeys(sorted(group), 0)
        given: dict[str, list[TopicPartition]] = {member: [] for member in load}
        for topic in sorted(topics, key=lambda topic: -rates.get(topic, 1)):
            readers = [member for member in load if topic in group[member].topics]
            for number in range(cluster.partitions.get(topic, 0)):
                member = min(readers, key=load.__getitem__)
                load[member] += rates.get(topic, 1)
                given[member].append(TopicPartition(topic, number))
        # Everyone gets an entry, and be it an empty one.
        return {member: Assignment(partitions) for member, partitions in given.items()}


if __name__ == "__main__":
    # The test of a strategy: its promises, in random groups.
    from assignors.testing import check_assignor

    check_assignor(FewestBytesAssignor, balanced=False, sticky=False)
    print("valid and complete in 100 random groups' lives")
