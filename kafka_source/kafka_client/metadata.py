"""What a metadata response says, as plain data."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from assignors.model import ClusterMetadata
from kafka_source.errors import InvalidConfigurationError, category
from kafka_source.kafka_client.connection import ConnectionLost
from kafka_source.kafka_client.settings import Endpoint


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker of the cluster."""

    node_id: int
    endpoint: Endpoint
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Who leads a partition (-1: nobody), since which epoch (-1: not said), and which brokers hold it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; `topic_id` is None where the brokers do not tell it (before 2.8)."""

    name: str
    topic_id: uuid.UUID | None
    partitions: Mapping[int, PartitionMetadata]

    @property
    def id_text(self) -> str | None:
        """The id as offsets of streams have it, and Kafka's tools: base64, without padding."""
        return None if self.topic_id is None else base64.b64encode(self.topic_id.bytes).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as one broker saw it.

    Attributes:
        cluster_id: The cluster's id, which tells one cluster from another behind the same name.
        brokers: By node id.
        topics: By name: those of the asked-for that exist.
        refused: Asked-for topics that this user may not describe, or that no topic can be called; with Kafka's code.
    """

    cluster_id: str | None
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    def broker(self, node_id: int) -> Broker:
        """A broker by its id.

        Raises:
            ConnectionLost: It is not named: it is down.
        """
        try:
            return self.brokers[node_id]
        except KeyError:
            raise ConnectionLost(f"Broker {node_id} is not in the cluster's metadata: it is down.") from None

    def renewed(self, seen: Snapshot, topics: Collection[str]) -> Snapshot:
        """What was seen now, when only `topics` were asked for; the other topics are as before."""
        others = {name: topic for name, topic in self.topics.items() if name not in topics}
        return replace(seen, topics={**others, **seen.topics})

    def for_assignor(self, topics: Iterable[str]) -> ClusterMetadata:
        """What an assignor sees of these topics."""
        known = [self.topics[name] for name in sorted(set(topics)) if name in self.topics]
        return ClusterMetadata(
            # Partitions are numbered without gaps; one whose metadata is missing for a moment still exists.
            partitions={t.name: max(t.partitions, default=-1) + 1 for t in known},
            racks={t.name: [self._racks(t, p) for p in range(max(t.partitions, default=-1) + 1)] for t in known},
        )

    def _racks(self, topic: TopicMetadata, number: int) -> list[str]:
        partition = topic.partitions.get(number)
        replicas = partition.replicas if partition is not None else ()
        racks = (self.brokers[node].rack for node in replicas if node in self.brokers)
        return [rack for rack in racks if rack]


def read_snapshot(response: Any) -> Snapshot:
    """A MetadataResponse as plain data; topics with an error are left out."""
    topics = {}
    for topic in response.topics:
        # LEADER_NOT_AVAILABLE and the like are of partitions: the topic is there.
        if topic.error_code == 0 and topic.name:
            topics[topic.name] = TopicMetadata(
                topic.name,
                _topic_id(topic),
                {
                    p.partition_index: PartitionMetadata(p.leader_id, p.leader_epoch, tuple(p.replica_nodes))
                    for p in topic.partitions
                },
            )
    return Snapshot(
        response.cluster_id,
        {b.node_id: Broker(b.node_id, Endpoint(b.host, b.port), b.rack or None) for b in response.brokers},
        topics,
        {t.name: t.error_code for t in response.topics if t.name and _is_final(t.error_code)},
    )


def _is_final(code: int) -> bool:
    return code != 0 and issubclass(category(code), InvalidConfigurationError)


def _topic_id(topic: Any) -> uuid.UUID | None:
    found = getattr(topic, "topic_id", None)
    return found if isinstance(found, uuid.UUID) and found.int else None
