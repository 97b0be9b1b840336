"""Messages of producers and transactions."""

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


class AddOffsetsToTxnResponse(Structure):
    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)


class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse], api=25, versions=(0, 4), flexible_from=3):
    transactional_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    group_id: str = field(string)


class AddPartitionsToTxnResponse(Structure):
    class AddPartitionsToTxnResult(Structure):
        class AddPartitionsToTxnTopicResult(Structure):
            class AddPartitionsToTxnPartitionResult(Structure):
                partition_index: int = field(int32)
                partition_error_code: int = field(int16)

            name: str = field(string)
            results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = field(
                array(AddPartitionsToTxnPartitionResult)
            )

        transactional_id: str = field(string)
        topic_results: Sequence[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult))

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16, since=4)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = field(array(AddPartitionsToTxnResult), since=4)
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnResult.AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnResult.AddPartitionsToTxnTopicResult), until=3
    )


class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse], api=24, versions=(0, 5), flexible_from=3):
    class AddPartitionsToTxnTransaction(Structure):
        class AddPartitionsToTxnTopic(Structure):
            name: str = field(string)
            partitions: Sequence[int] = field(array(int32))

        transactional_id: str = field(string)
        producer_id: int = field(int64)
        producer_epoch: int = field(int16)
        verify_only: bool = field(boolean)
        topics: Sequence[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic))

    transactions: Sequence[AddPartitionsToTxnTransaction] = field(array(AddPartitionsToTxnTransaction), since=4)
    v3_and_below_transactional_id: str = field(string, until=3)
    v3_and_below_producer_id: int = field(int64, until=3)
    v3_and_below_producer_epoch: int = field(int16, until=3)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic), until=3
    )


class DescribeProducersResponse(Structure):
    class TopicResponse(Structure):
        class PartitionResponse(Structure):
            class ProducerState(Structure):
                producer_id: int = field(int64)
                producer_epoch: int = field(int32)
                last_sequence: int = field(int32, default=-1)
                last_timestamp: int = field(int64, default=-1)
                coordinator_epoch: int = field(int32)
                current_txn_start_offset: int = field(int64, default=-1)

            partition_index: int = field(int32)
            error_code: int = field(int16)
            error_message: str | None = field(string, null_since=0, default=None)
            active_producers: Sequence[ProducerState] = field(array(ProducerState))

        name: str = field(string)
        partitions: Sequence[PartitionResponse] = field(array(PartitionResponse))

    throttle_time_ms: int = field(int32)
    topics: Sequence[TopicResponse] = field(array(TopicResponse))


class DescribeProducersRequest(Request[DescribeProducersResponse], api=61, versions=(0, 0), flexible_from=0):
    class TopicRequest(Structure):
        name: str = field(string)
        partition_indexes: Sequence[int] = field(array(int32))

    topics: Sequence[TopicRequest] = field(array(TopicRequest))


class DescribeTransactionsResponse(Structure):
    class TransactionState(Structure):
        class TopicData(Structure):
            topic: str = field(string)
            partitions: Sequence[int] = field(array(int32))

        error_code: int = field(int16)
        transactional_id: str = field(string)
        transaction_state: str = field(string)
        transaction_timeout_ms: int = field(int32)
        transaction_start_time_ms: int = field(int64)
        producer_id: int = field(int64)
        producer_epoch: int = field(int16)
        topics: Sequence[TopicData] = field(array(TopicData))

    throttle_time_ms: int = field(int32)
    transaction_states: Sequence[TransactionState] = field(array(TransactionState))


class DescribeTransactionsRequest(Request[DescribeTransactionsResponse], api=65, versions=(0, 0), flexible_from=0):
    transactional_ids: Sequence[str] = field(array(string))


class EndTxnResponse(Structure):
    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    producer_id: int = field(int64, since=5, default=-1)
    producer_epoch: int = field(int16, since=5, default=-1)


class EndTxnRequest(Request[EndTxnResponse], api=26, versions=(0, 5), flexible_from=3):
    transactional_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    committed: bool = field(boolean)


class InitProducerIdResponse(Structure):
    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    producer_id: int = field(int64, default=-1)
    producer_epoch: int = field(int16)
    ongoing_txn_producer_id: int = field(int64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = field(int16, since=6, default=-1)


class InitProducerIdRequest(Request[InitProducerIdResponse], api=22, versions=(0, 6), flexible_from=2):
    transactional_id: str | None = field(string, null_since=0)
    transaction_timeout_ms: int = field(int32)
    producer_id: int = field(int64, since=3, default=-1)
    producer_epoch: int = field(int16, since=3, default=-1)
    enable2_pc: bool = field(boolean, since=6)
    keep_prepared_txn: bool = field(boolean, since=6)


class ListTransactionsResponse(Structure):
    class TransactionState(Structure):
        transactional_id: str = field(string)
        producer_id: int = field(int64)
        transaction_state: str = field(string)

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    unknown_state_filters: Sequence[str] = field(array(string))
    transaction_states: Sequence[TransactionState] = field(array(TransactionState))


class ListTransactionsRequest(Request[ListTransactionsResponse], api=66, versions=(0, 2), flexible_from=0):
    state_filters: Sequence[str] = field(array(string))
    producer_id_filters: Sequence[int] = field(array(int64))
    duration_filter: int = field(int64, since=1, default=-1)
    transactional_id_pattern: str | None = field(string, since=2, null_since=2, default=None)


class TxnOffsetCommitResponse(Structure):
    class TxnOffsetCommitResponseTopic(Structure):
        class TxnOffsetCommitResponsePartition(Structure):
            partition_index: int = field(int32)
            error_code: int = field(int16)

        name: str = field(string, until=5)
        topic_id: UUID = field(unique_id, since=6)
        partitions: Sequence[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition))

    throttle_time_ms: int = field(int32)
    topics: Sequence[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))


class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse], api=28, versions=(0, 6), flexible_from=3):
    class TxnOffsetCommitRequestTopic(Structure):
        class TxnOffsetCommitRequestPartition(Structure):
            partition_index: int = field(int32)
            committed_offset: int = field(int64)
            committed_leader_epoch: int = field(int32, since=2, default=-1)
            committed_metadata: str | None = field(string, null_since=0)

        name: str = field(string, until=5)
        topic_id: UUID = field(unique_id, since=6)
        partitions: Sequence[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition))

    transactional_id: str = field(string)
    group_id: str = field(string)
    producer_id: int = field(int64)
    producer_epoch: int = field(int16)
    generation_id_or_member_epoch: int = field(int32, since=3, default=-1)
    member_id: str = field(string, since=3)
    group_instance_id: str | None = field(string, since=3, null_since=3, default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


class WriteTxnMarkersResponse(Structure):
    class WritableTxnMarkerResult(Structure):
        class WritableTxnMarkerTopicResult(Structure):
            class WritableTxnMarkerPartitionResult(Structure):
                partition_index: int = field(int32)
                error_code: int = field(int16)

            name: str = field(string)
            partitions: Sequence[WritableTxnMarkerPartitionResult] = field(array(WritableTxnMarkerPartitionResult))

        producer_id: int = field(int64)
        topics: Sequence[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult))

    markers: Sequence[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult))


class WriteTxnMarkersRequest(Request[WriteTxnMarkersResponse], api=27, versions=(1, 2), flexible_from=1):
    class WritableTxnMarker(Structure):
        class WritableTxnMarkerTopic(Structure):
            name: str = field(string)
            partition_indexes: Sequence[int] = field(array(int32))

        producer_id: int = field(int64)
        producer_epoch: int = field(int16)
        transaction_result: bool = field(boolean)
        topics: Sequence[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic))
        coordinator_epoch: int = field(int32)
        transaction_version: int = field(int8, since=2)

    markers: Sequence[WritableTxnMarker] = field(array(WritableTxnMarker))
