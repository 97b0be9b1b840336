"""The cluster's metadata as plain values: brokers, leaders, racks, topic ids; the comparison of two snapshots."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from assignors.model import ClusterMetadata
from kafka_source.client_config.servers import Endpoint
from kafka_source.errors import InvalidConfigurationError, category
from kafka_source.kafka_client.connection import ConnectionLost
from kafka_source.kafka_client.messages.cluster import MetadataResponse


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker of the cluster."""

    node_id: int
    endpoint: Endpoint
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The leader of a partition (-1: none), its leader epoch (-1: unknown), and the replicas' broker ids."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; `topic_id` is None if the brokers do not send it (before 2.8)."""

    name: str
    topic_id: uuid.UUID | None
    partitions: Mapping[int, PartitionMetadata]

    @property
    def id_text(self) -> str | None:
        """The topic id as text, see `text_of_id`; None: the topic has no id."""
        return None if self.topic_id is None else text_of_id(self.topic_id)


def text_of_id(topic_id: uuid.UUID) -> str:
    """Return a topic id as text, as in a stream's offsets: base64 without padding."""
    return base64.b64encode(topic_id.bytes).decode().rstrip("=")


def topic_id_of(text: str | None) -> uuid.UUID | None:
    """Return the id that `text_of_id` turned into a text; None for any other text."""
    if text is None:
        return None
    try:
        # Kafka's own tools write ids with the signs `-` and `_` of URL-safe base64.
        return uuid.UUID(bytes=base64.b64decode(text.replace("-", "+").replace("_", "/") + "=="))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as one broker described it.

    Attributes:
        cluster_id: The cluster's id, which differs if another cluster answers under the same host names.
        brokers: The live brokers by node id.
        topics: The requested topics that exist, by name.
        refused: The error code of each requested topic that this user may not describe or whose name is invalid.
    """

    cluster_id: str | None
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)

    def broker(self, node_id: int) -> Broker:
        """Return a broker by its id.

        Raises:
            ConnectionLost: The metadata does not contain the broker, so it is down.
        """
        try:
            return self.brokers[node_id]
        except KeyError:
            raise ConnectionLost(f"Broker {node_id} is not in the cluster's metadata: it is down.") from None

    def renewed(self, seen: Snapshot, topics: Collection[str]) -> Snapshot:
        """Return the newer snapshot `seen`, which has only `topics`, completed by this snapshot's other topics."""
        others = {name: topic for name, topic in self.topics.items() if name not in topics}
        return replace(seen, topics={**others, **seen.topics})

    def newer_than(self, seen: Snapshot) -> str | None:
        """Return in words why this snapshot is newer than `seen`; None: this snapshot is not newer.

        A leader epoch never decreases while a topic exists. Topics without an id (brokers before 2.8) are not compared,
        because they may have been created again with epoch 0.
        """
        for name, topic in seen.topics.items():
            known = self.topics.get(name)
            if known is None or known.topic_id is None or known.topic_id != topic.topic_id:
                continue
            for number, partition in topic.partitions.items():
                before = known.partitions.get(number)
                if before is not None and 0 <= partition.leader_epoch < before.leader_epoch:
                    return (
                        f"it names leader epoch {partition.leader_epoch} of {name}-{number}, but the epoch was already "
                        f"{before.leader_epoch}"
                    )
        return None

    def for_assignor(self, topics: Iterable[str]) -> ClusterMetadata:
        """Return the metadata of these topics for assignors."""
        known = [self.topics[name] for name in sorted(set(topics)) if name in self.topics]
        return ClusterMetadata(
            # Partition numbers have no gaps, so a lower number that the metadata lack for a moment still exists.
            partitions={t.name: max(t.partitions, default=-1) + 1 for t in known},
            racks={t.name: [self._racks(t, p) for p in range(max(t.partitions, default=-1) + 1)] for t in known},
        )

    def _racks(self, topic: TopicMetadata, number: int) -> list[str]:
        partition = topic.partitions.get(number)
        replicas = partition.replicas if partition is not None else ()
        racks = (self.brokers[node].rack for node in replicas if node in self.brokers)
        return [rack for rack in racks if rack]


def read_snapshot(response: MetadataResponse) -> Snapshot:
    """Return a MetadataResponse as a snapshot without the topics that have an error."""
    topics = {}
    for topic in response.topics:
        # Errors such as LEADER_NOT_AVAILABLE belong to a partition of an existing topic.
        if topic.error_code == 0 and topic.name:
            topics[topic.name] = TopicMetadata(
                topic.name,
                topic.topic_id if topic.topic_id.int else None,
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
