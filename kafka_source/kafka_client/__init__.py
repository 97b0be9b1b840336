"""kafkagroup's client of a Kafka cluster: connections, logins, messages and metadata.

The client never logs requests, responses or settings, because they may contain secrets.
"""

from kafka_source.client_config.servers import Endpoint, parse_servers
from kafka_source.kafka_client.blocking_connection import (
    BlockingConnection,
    IdleConnections,
    RequestConnection,
    poll_readable,
)
from kafka_source.kafka_client.client import GROUP, TRANSACTION, KafkaClient, cached_client
from kafka_source.kafka_client.connection import Connection, ConnectionLost
from kafka_source.kafka_client.coordinator_requests import (
    check_commits,
    check_coordinator,
    coordinator_call,
    coordinator_versions,
    to_coordinator,
    topic_ids_to_commit,
)
from kafka_source.kafka_client.messages import ApiVersions, decode_response, encode_request
from kafka_source.kafka_client.metadata import (
    Broker,
    PartitionMetadata,
    Snapshot,
    TopicMetadata,
    text_of_id,
    topic_id_of,
)
from kafka_source.kafka_client.rebootstrap import Recovery
from kafka_source.kafka_client.settings import ConnectionSettings
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.event_loop import EventLoop

__all__ = [
    "GROUP",
    "TRANSACTION",
    "ApiVersions",
    "BlockingConnection",
    "Broker",
    "Connection",
    "ConnectionLost",
    "ConnectionSettings",
    "Deadline",
    "Endpoint",
    "EventLoop",
    "IdleConnections",
    "KafkaClient",
    "PartitionMetadata",
    "Recovery",
    "RequestConnection",
    "Snapshot",
    "TopicMetadata",
    "cached_client",
    "check_commits",
    "check_coordinator",
    "coordinator_call",
    "coordinator_versions",
    "decode_response",
    "encode_request",
    "parse_servers",
    "poll_readable",
    "text_of_id",
    "to_coordinator",
    "topic_id_of",
    "topic_ids_to_commit",
]
