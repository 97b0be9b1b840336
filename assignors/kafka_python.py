"""Adapter of assignors for the `KafkaConsumer` of kafka-python (3.x).

    consumer = KafkaConsumer("orders", group_id="g", partition_assignment_strategy=[for_kafka_python("sticky")])

Only this module needs kafka-python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.coordinator.assignors.abstract import RebalanceProtocol as KafkaPythonProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignors.interface import Assignor, RebalanceProtocol, load
from assignors.model import NO_GENERATION, Assignment, ClusterMetadata, Subscription, TopicPartition
from assignors.wire import decode_assignment, decode_subscription, encode_assignment, encode_subscription

__all__ = ["KafkaPythonAssignor", "for_kafka_python"]


def for_kafka_python(
    assignor: str | Assignor,
    options: Mapping[str, object] | None = None,
    *,
    rack: str | None = None,
    eager: bool = False,
) -> KafkaPythonAssignor:
    """Create a strategy for `partition_assignment_strategy`.

    Create a strategy for each consumer, because a strategy keeps its consumer's assignment.

    Args:
        assignor: A name or "module:Class" as for `assignors.load`, or an assignor.
        options: The strategy's options, if `assignor` is a name.
        rack: The consumer's rack, for strategies that use racks.
        eager: Run a cooperative strategy with the eager protocol. Set this in the first half of a rolling upgrade,
            while the consumer also lists an eager strategy. With an eager strategy, kafka-python revokes all partitions
            before a join, so the subscription must list no owned partitions.
    """
    return KafkaPythonAssignor(load(assignor, options) if isinstance(assignor, str) else assignor, rack, eager)


class KafkaPythonAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Implements kafka-python's `AbstractPartitionAssignor` with an `Assignor`."""

    def __init__(self, assignor: Assignor, rack: str | None = None, eager: bool = False) -> None:
        self._assignor = assignor
        self._rack = rack
        self._protocols = {RebalanceProtocol.EAGER} if eager else assignor.protocols
        self._owned: Sequence[TopicPartition] = ()
        self._generation = NO_GENERATION

    @property
    def name(self) -> str:
        """Return the strategy's name."""
        return self._assignor.name

    def supported_protocols(self) -> list[KafkaPythonProtocol]:
        """Return the rebalance protocols, cooperative first."""
        return [KafkaPythonProtocol(int(protocol)) for protocol in sorted(self._protocols, reverse=True)]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return this member's subscription, with its owned partitions if the protocol is cooperative."""
        wanted = sorted(topics)
        cooperative = RebalanceProtocol.COOPERATIVE in self._protocols
        owned = [partition for partition in self._owned if partition.topic in wanted] if cooperative else []
        generation = self._generation if cooperative else NO_GENERATION
        said = Subscription(wanted, self._assignor.subscription_user_data(wanted), owned, generation, self._rack)
        return ConsumerProtocolSubscription.decode(encode_subscription(said))

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Assign the group's partitions.

        Args:
            cluster: kafka-python's `ClusterMetadata`.
            members: kafka-python's JoinGroup members, with `member_id`, `group_instance_id` and `metadata`.

        Returns:
            kafka-python's assignments by member id.
        """
        group = {}
        for member in members:
            said = decode_subscription(member.metadata.encode())
            group[member.member_id] = Subscription(
                said.topics, said.user_data, said.owned, said.generation, said.rack, member.group_instance_id
            )
        topics = {topic for said in group.values() for topic in said.topics}
        racks = any(said.rack for said in group.values())
        answer = self._assignor.assign(_metadata(cluster, topics, racks), group)
        return {member: ConsumerProtocolAssignment.decode(encode_assignment(given)) for member, given in answer.items()}

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Keep this member's assignment and generation for its next subscription."""
        given: Assignment = decode_assignment(assignment.encode())
        self._owned, self._generation = given.partitions, generation
        self._assignor.on_assignment(given, generation)


def _metadata(cluster: Any, topics: Iterable[str], racks: bool) -> ClusterMetadata:
    numbers = {topic: cluster.partitions_for_topic(topic) or () for topic in topics}
    counts = {topic: len(found) for topic, found in numbers.items()}
    if not racks:
        return ClusterMetadata(counts)
    brokers = [(broker.node_id, broker.rack) for broker in cluster.brokers() if broker.rack]
    return ClusterMetadata(
        counts,
        {
            topic: [
                [rack for node, rack in brokers if cluster.is_replica_node(TopicPartition(topic, number), node)]
                for number in range(count)
            ]
            for topic, count in counts.items()
        },
    )
