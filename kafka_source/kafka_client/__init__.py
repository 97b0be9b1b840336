"""The one door to kafka-python: its message schemas and SASL mechanisms, and our connections on top of them.

Nothing else in this project imports `kafka.*`. Nothing here writes requests, responses or settings to a log.
"""

from kafka_source.deadline import Deadline
from kafka_source.kafka_client.backoff import delay
from kafka_source.kafka_client.client import GROUP, TRANSACTION, KafkaClient
from kafka_source.kafka_client.connection import Connection, ConnectionLost
from kafka_source.kafka_client.coordinators import check_coordinator, to_coordinator
from kafka_source.kafka_client.idle_connections import IdleConnections, answering
from kafka_source.kafka_client.kept import kept_client
from kafka_source.kafka_client.loop import EventLoop
from kafka_source.kafka_client.messages import ApiVersions, decode_response, encode_request
from kafka_source.kafka_client.metadata import Broker, PartitionMetadata, Snapshot, TopicMetadata
from kafka_source.kafka_client.raw import RawConnection
from kafka_source.kafka_client.rebootstrap import Recovery
from kafka_source.kafka_client.request_connection import RequestConnection
from kafka_source.kafka_client.settings import ConnectionSettings, Endpoint, parse_servers

__all__ = [
    "GROUP",
    "TRANSACTION",
    "ApiVersions",
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
    "RawConnection",
    "Recovery",
    "RequestConnection",
    "Snapshot",
    "TopicMetadata",
    "answering",
    "check_coordinator",
    "decode_response",
    "delay",
    "encode_request",
    "kept_client",
    "parse_servers",
    "to_coordinator",
]
