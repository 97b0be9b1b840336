"""Messages about the cluster: versions, metadata, coordinators, configurations and offsets of logs."""

from collections.abc import Sequence
from uuid import UUID

from kafka_source.kafka_client.messages.tables import (
    Request,
    Structure,
    array,
    boolean,
    field,
    int8,
    int16,
    int32,
    int64,
    string,
    unique_id,
)


class ApiVersionsResponse(Structure):
    class ApiVersion(Structure):
        api_key: int = field(int16)
        min_version: int = field(int16)
        max_version: int = field(int16)

    class SupportedFeatureKey(Structure):
        name: str = field(string)
        min_version: int = field(int16)
        max_version: int = field(int16)

    class FinalizedFeatureKey(Structure):
        name: str = field(string)
        max_version_level: int = field(int16)
        min_version_level: int = field(int16)

    error_code: int = field(int16)
    api_keys: Sequence[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(int32, since=1)
    supported_features: Sequence[SupportedFeatureKey] = field(array(SupportedFeatureKey), since=3, tag=0)
    finalized_features_epoch: int = field(int64, since=3, default=-1, tag=1)
    finalized_features: Sequence[FinalizedFeatureKey] = field(array(FinalizedFeatureKey), since=3, tag=2)
    zk_migration_ready: bool = field(boolean, since=3, tag=3)


class ApiVersionsRequest(Request[ApiVersionsResponse], api=18, versions=(0, 5), flexible_from=3):
    client_software_name: str = field(string, since=3)
    client_software_version: str = field(string, since=3)
    cluster_id: str | None = field(string, since=5, null_since=5, default=None)
    node_id: int = field(int32, since=5, default=-1)


class DescribeConfigsResponse(Structure):
    class DescribeConfigsResult(Structure):
        class DescribeConfigsResourceResult(Structure):
            class DescribeConfigsSynonym(Structure):
                name: str = field(string)
                value: str | None = field(string, null_since=0)
                source: int = field(int8)

            name: str = field(string)
            value: str | None = field(string, null_since=0)
            read_only: bool = field(boolean)
            config_source: int = field(int8, default=-1)
            is_sensitive: bool = field(boolean)
            synonyms: Sequence[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym))
            config_type: int = field(int8, since=3)
            documentation: str | None = field(string, since=3, null_since=3)

        error_code: int = field(int16)
        error_message: str | None = field(string, null_since=0)
        resource_type: int = field(int8)
        resource_name: str = field(string)
        configs: Sequence[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))

    throttle_time_ms: int = field(int32)
    results: Sequence[DescribeConfigsResult] = field(array(DescribeConfigsResult))


class DescribeConfigsRequest(Request[DescribeConfigsResponse], api=32, versions=(1, 4), flexible_from=4):
    class DescribeConfigsResource(Structure):
        resource_type: int = field(int8)
        resource_name: str = field(string)
        configuration_keys: Sequence[str] | None = field(array(string), null_since=0)

    resources: Sequence[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(boolean)
    include_documentation: bool = field(boolean, since=3)


class FindCoordinatorResponse(Structure):
    class Coordinator(Structure):
        key: str = field(string)
        node_id: int = field(int32)
        host: str = field(string)
        port: int = field(int32)
        error_code: int = field(int16)
        error_message: str | None = field(string, null_since=0)

    throttle_time_ms: int = field(int32, since=1)
    error_code: int = field(int16, until=3)
    error_message: str | None = field(string, since=1, until=3, null_since=1)
    node_id: int = field(int32, until=3)
    host: str = field(string, until=3)
    port: int = field(int32, until=3)
    coordinators: Sequence[Coordinator] = field(array(Coordinator), since=4)


class FindCoordinatorRequest(Request[FindCoordinatorResponse], api=10, versions=(0, 6), flexible_from=3):
    key: str = field(string, until=3)
    key_type: int = field(int8, since=1)
    coordinator_keys: Sequence[str] = field(array(string), since=4)


class ListOffsetsResponse(Structure):
    class ListOffsetsTopicResponse(Structure):
        class ListOffsetsPartitionResponse(Structure):
            partition_index: int = field(int32)
            error_code: int = field(int16)
            timestamp: int = field(int64, default=-1)
            offset: int = field(int64, default=-1)
            leader_epoch: int = field(int32, since=4, default=-1)

        name: str = field(string)
        partitions: Sequence[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))

    throttle_time_ms: int = field(int32, since=2)
    topics: Sequence[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))


class ListOffsetsRequest(Request[ListOffsetsResponse], api=2, versions=(1, 11), flexible_from=6):
    class ListOffsetsTopic(Structure):
        class ListOffsetsPartition(Structure):
            partition_index: int = field(int32)
            current_leader_epoch: int = field(int32, since=4, default=-1)
            timestamp: int = field(int64)

        name: str = field(string)
        partitions: Sequence[ListOffsetsPartition] = field(array(ListOffsetsPartition))

    replica_id: int = field(int32)
    isolation_level: int = field(int8, since=2)
    topics: Sequence[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(int32, since=10)


class MetadataResponse(Structure):
    class MetadataResponseBroker(Structure):
        node_id: int = field(int32)
        host: str = field(string)
        port: int = field(int32)
        rack: str | None = field(string, since=1, null_since=1, default=None)

    class MetadataResponseTopic(Structure):
        class MetadataResponsePartition(Structure):
            error_code: int = field(int16)
            partition_index: int = field(int32)
            leader_id: int = field(int32)
            leader_epoch: int = field(int32, since=7, default=-1)
            replica_nodes: Sequence[int] = field(array(int32))
            isr_nodes: Sequence[int] = field(array(int32))
            offline_replicas: Sequence[int] = field(array(int32), since=5)

        error_code: int = field(int16)
        name: str | None = field(string, null_since=12)
        topic_id: UUID = field(unique_id, since=10)
        is_internal: bool = field(boolean, since=1)
        partitions: Sequence[MetadataResponsePartition] = field(array(MetadataResponsePartition))
        topic_authorized_operations: int = field(int32, since=8, default=-2147483648)

    throttle_time_ms: int = field(int32, since=3)
    brokers: Sequence[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(string, since=2, null_since=2, default=None)
    controller_id: int = field(int32, since=1, default=-1)
    topics: Sequence[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(int32, since=8, until=10, default=-2147483648)
    error_code: int = field(int16, since=13)


class MetadataRequest(Request[MetadataResponse], api=3, versions=(0, 13), flexible_from=9):
    class MetadataRequestTopic(Structure):
        topic_id: UUID = field(unique_id, since=10)
        name: str | None = field(string, null_since=10)

    topics: Sequence[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), null_since=1)
    allow_auto_topic_creation: bool = field(boolean, since=4, default=True)
    include_cluster_authorized_operations: bool = field(boolean, since=8, until=10)
    include_topic_authorized_operations: bool = field(boolean, since=8)


class OffsetForLeaderEpochResponse(Structure):
    class OffsetForLeaderTopicResult(Structure):
        class EpochEndOffset(Structure):
            error_code: int = field(int16)
            partition: int = field(int32)
            leader_epoch: int = field(int32, default=-1)
            end_offset: int = field(int64, default=-1)

        topic: str = field(string)
        partitions: Sequence[EpochEndOffset] = field(array(EpochEndOffset))

    throttle_time_ms: int = field(int32)
    topics: Sequence[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))


class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse], api=23, versions=(2, 4), flexible_from=4):
    class OffsetForLeaderTopic(Structure):
        class OffsetForLeaderPartition(Structure):
            partition: int = field(int32)
            current_leader_epoch: int = field(int32, default=-1)
            leader_epoch: int = field(int32)

        topic: str = field(string)
        partitions: Sequence[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))

    replica_id: int = field(int32, since=3, default=-2)
    topics: Sequence[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))
