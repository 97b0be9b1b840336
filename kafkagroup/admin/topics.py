"""`Topics`: the topics of a cluster with their partitions, leaders and offsets."""

import re
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from assignors.model import ClusterMetadata, TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.errors import error_for_code
from kafka_source.kafka_client import Deadline, KafkaClient, Snapshot, TopicMetadata
from kafkagroup.admin.rows import Rows

_CALL_SECONDS = 15.0
# Kafka's own topics. Brokers mark only these as internal in their metadata.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic.

    Attributes:
        topic: The topic.
        id: The topic id; None before Kafka 2.8.
        partitions: The number of partitions.
        replication: The number of replicas of the partition with the fewest replicas.
        offsets: The number of offsets in all logs: at least the number of records. None: a partition has no leader.
        leaderless: The number of partitions without a leader.
    """

    topic: str
    id: str | None
    partitions: int
    replication: int
    offsets: int | None
    leaderless: int


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A partition of a topic.

    Attributes:
        topic: The topic.
        partition: The partition number.
        leader: The broker id of the leader; None: no leader.
        replicas: The broker ids of all replicas.
        start: The first offset; None without a leader.
        end: The offset after the last record; None without a leader.
    """

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class BrokerSummary:
    """A broker.

    Attributes:
        broker: The broker id.
        address: The host and port that the broker advertises for the listener of this connection.
        leads: The number of partitions that the broker leads, in the topics that this user may describe.
        replicas: The number of replicas on the broker, in the topics that this user may describe.
    """

    broker: int
    address: str
    leads: int
    replicas: int


_Partitions: TypeAlias = list[PartitionSummary]


class Topics:
    """Describes the topics of a cluster. Each call opens and closes its own connections.

    Args:
        settings: The Kafka client settings, with `bootstrap.servers`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def list(self, *, pattern: str | None = None, internal: bool = False) -> Rows[TopicSummary]:
        """Return the topics that this user may describe, sorted.

        Args:
            pattern: Only topics whose name contains a match of this regular expression.
            internal: Whether to return Kafka's own topics too, such as __consumer_offsets.

        Raises:
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        ids, partitions = self._partitions(None, pattern, internal)
        by_topic: dict[str, _Partitions] = {name: [] for name in ids}
        for one in partitions:
            by_topic[one.topic].append(one)
        return Rows(TopicSummary, (_summary(name, ids[name], of) for name, of in by_topic.items()))

    def brokers(self) -> tuple[Rows[BrokerSummary], str | None]:
        """Return the brokers, sorted, and the cluster's id.

        Raises:
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        with closing(KafkaClient(self._settings)) as client:
            seen = client.run(client.metadata(None, Deadline(_CALL_SECONDS)))
        partitions = [one for topic in seen.topics.values() for one in topic.partitions.values()]
        leads = Counter(one.leader for one in partitions)
        replicas = Counter(node for one in partitions for node in one.replicas)
        rows = (
            BrokerSummary(node, str(broker.endpoint), leads[node], replicas[node])
            for node, broker in sorted(seen.brokers.items())
        )
        return Rows(BrokerSummary, rows), seen.cluster_id

    def describe(self, *topics: str) -> Rows[PartitionSummary]:
        """Return the partitions of topics, sorted.

        Raises:
            UnknownTopicError: A topic does not exist, or this user may not describe it.
            KafkaGroupError: The brokers do not answer, or refuse a request.
        """
        _, partitions = self._partitions(topics, None, internal=True)
        return Rows(PartitionSummary, partitions)

    def for_assignor(self, topics: Collection[str]) -> ClusterMetadata:
        """Return the facts about topics that an assignor needs: their partitions, and the racks of the replicas.

        Raises:
            UnknownTopicError: A topic does not exist, or this user may not describe it.
            KafkaGroupError: The brokers do not answer, or refuse the request.
        """
        with closing(KafkaClient(self._settings)) as client:
            seen = client.run(client.metadata(topics, Deadline(_CALL_SECONDS)))
            _check_all_exist(topics, seen, client, self._settings)
        return seen.for_assignor(topics)

    def _partitions(
        self, names: Collection[str] | None, pattern: str | None, internal: bool
    ) -> tuple[dict[str, str | None], _Partitions]:
        """Return the id of each topic, and all partitions."""
        with closing(KafkaClient(self._settings)) as client:
            seen = client.run(client.metadata(names, Deadline(_CALL_SECONDS)))
            _check_all_exist(names or (), seen, client, self._settings)
            topics = [
                seen.topics[name]
                for name in sorted(seen.topics)
                if (internal or name not in _INTERNAL) and (pattern is None or re.search(pattern, name))
            ]
            led = [
                TopicPartition(topic.name, n) for topic in topics for n, p in topic.partitions.items() if p.leader >= 0
            ]
            starts, ends = Cluster(self._settings, client=client).bounds(led, led, read_committed=False)
        return {topic.name: topic.id_text for topic in topics}, [
            one for topic in topics for one in _described(topic, starts, ends)
        ]


def _described(topic: TopicMetadata, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> _Partitions:
    found = []
    for number, partition in sorted(topic.partitions.items()):
        tp = TopicPartition(topic.name, number)
        leader = partition.leader if partition.leader >= 0 else None
        found.append(
            PartitionSummary(topic.name, number, leader, tuple(partition.replicas), starts.get(tp), ends.get(tp))
        )
    return found


def _summary(name: str, topic_id: str | None, partitions: _Partitions) -> TopicSummary:
    leaderless = sum(one.leader is None for one in partitions)
    return TopicSummary(
        name,
        topic_id,
        len(partitions),
        min((len(one.replicas) for one in partitions), default=0),
        None if leaderless else sum((one.end or 0) - (one.start or 0) for one in partitions),
        leaderless,
    )


def _check_all_exist(names: Collection[str], seen: Snapshot, client: KafkaClient, settings: Settings) -> None:
    for name in names:
        if name in seen.refused:
            raise error_for_code(seen.refused[name], f"Asking for topic {name} failed")
        if name not in seen.topics:
            raise Cluster(settings, client=client).unknown_topic(name)
