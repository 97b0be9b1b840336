"""Messages that carry records."""

from collections.abc import Sequence
from uuid import UUID

from kafka_source.kafka_client.messages.tables import (
    Request,
    Structure,
    array,
    field,
    int8,
    int16,
    int32,
    int64,
    raw,
    string,
    unique_id,
)


class FetchResponse(Structure):
    class FetchableTopicResponse(Structure):
        class PartitionData(Structure):
            class EpochEndOffset(Structure):
                epoch: int = field(int32, default=-1)
                end_offset: int = field(int64, default=-1)

            class LeaderIdAndEpoch(Structure):
                leader_id: int = field(int32, default=-1)
                leader_epoch: int = field(int32, default=-1)

            class SnapshotId(Structure):
                end_offset: int = field(int64, default=-1)
                epoch: int = field(int32, default=-1)

            class AbortedTransaction(Structure):
                producer_id: int = field(int64)
                first_offset: int = field(int64)

            partition_index: int = field(int32)
            error_code: int = field(int16)
            high_watermark: int = field(int64)
            last_stable_offset: int = field(int64, default=-1)
            log_start_offset: int = field(int64, since=5, default=-1)
            diverging_epoch: EpochEndOffset = field(EpochEndOffset, since=12, tag=0)
            current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=12, tag=1)
            snapshot_id: SnapshotId = field(SnapshotId, since=12, tag=2)
            aborted_transactions: Sequence[AbortedTransaction] | None = field(array(AbortedTransaction), null_since=0)
            preferred_read_replica: int = field(int32, since=11, default=-1)
            records: bytes | None = field(raw, null_since=0)

        topic: str = field(string, until=12)
        topic_id: UUID = field(unique_id, since=13)
        partitions: Sequence[PartitionData] = field(array(PartitionData))

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16, since=7)
    session_id: int = field(int32, since=7)
    responses: Sequence[FetchableTopicResponse] = field(array(FetchableTopicResponse))


class FetchRequest(Request[FetchResponse], api=1, versions=(4, 13), flexible_from=12):
    class FetchTopic(Structure):
        class FetchPartition(Structure):
            partition: int = field(int32)
            current_leader_epoch: int = field(int32, since=9, default=-1)
            fetch_offset: int = field(int64)
            last_fetched_epoch: int = field(int32, since=12, default=-1)
            log_start_offset: int = field(int64, since=5, default=-1)
            partition_max_bytes: int = field(int32)

        topic: str = field(string, until=12)
        topic_id: UUID = field(unique_id, since=13)
        partitions: Sequence[FetchPartition] = field(array(FetchPartition))

    class ForgottenTopic(Structure):
        topic: str = field(string, until=12)
        topic_id: UUID = field(unique_id, since=13)
        partitions: Sequence[int] = field(array(int32))

    cluster_id: str | None = field(string, since=12, null_since=12, default=None, tag=0)
    replica_id: int = field(int32, default=-1)
    max_wait_ms: int = field(int32)
    min_bytes: int = field(int32)
    max_bytes: int = field(int32, default=2147483647)
    isolation_level: int = field(int8)
    session_id: int = field(int32, since=7)
    session_epoch: int = field(int32, since=7, default=-1)
    topics: Sequence[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: Sequence[ForgottenTopic] = field(array(ForgottenTopic), since=7)
    rack_id: str = field(string, since=11)


class ProduceResponse(Structure):
    class TopicProduceResponse(Structure):
        class PartitionProduceResponse(Structure):
            class BatchIndexAndErrorMessage(Structure):
                batch_index: int = field(int32)
                batch_index_error_message: str | None = field(string, null_since=0, default=None)

            class LeaderIdAndEpoch(Structure):
                leader_id: int = field(int32, default=-1)
                leader_epoch: int = field(int32, default=-1)

            index: int = field(int32)
            error_code: int = field(int16)
            base_offset: int = field(int64)
            log_append_time_ms: int = field(int64, default=-1)
            log_start_offset: int = field(int64, since=5, default=-1)
            record_errors: Sequence[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), since=8)
            error_message: str | None = field(string, since=8, null_since=8, default=None)
            current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=10, tag=0)

        name: str = field(string, until=12)
        topic_id: UUID = field(unique_id, since=13)
        partition_responses: Sequence[PartitionProduceResponse] = field(array(PartitionProduceResponse))

    class NodeEndpoint(Structure):
        node_id: int = field(int32)
        host: str = field(string)
        port: int = field(int32)
        rack: str | None = field(string, null_since=0, default=None)

    responses: Sequence[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(int32)
    node_endpoints: Sequence[NodeEndpoint] = field(array(NodeEndpoint), since=10, tag=0)


class ProduceRequest(Request[ProduceResponse], api=0, versions=(3, 13), flexible_from=9):
    class TopicProduceData(Structure):
        class PartitionProduceData(Structure):
            index: int = field(int32)
            records: bytes | None = field(raw, null_since=0)

        name: str = field(string, until=12)
        topic_id: UUID = field(unique_id, since=13)
        partition_data: Sequence[PartitionProduceData] = field(array(PartitionProduceData))

    transactional_id: str | None = field(string, null_since=0, default=None)
    acks: int = field(int16)
    timeout_ms: int = field(int32)
    topic_data: Sequence[TopicProduceData] = field(array(TopicProduceData))
