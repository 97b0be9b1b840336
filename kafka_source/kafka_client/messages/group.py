"""Messages of consumer groups."""

from collections.abc import Sequence
from uuid import UUID

from kafka_source.kafka_client.messages.tables import (
    Request,
    Structure,
    array,
    boolean,
    field,
    int16,
    int32,
    int64,
    raw,
    string,
    unique_id,
)


class ConsumerGroupDescribeResponse(Structure):
    class DescribedGroup(Structure):
        class Member(Structure):
            class Assignment(Structure):
                class TopicPartitions(Structure):
                    topic_id: UUID = field(unique_id)
                    topic_name: str = field(string)
                    partitions: Sequence[int] = field(array(int32))

                topic_partitions: Sequence[TopicPartitions] = field(array(TopicPartitions))

            member_id: str = field(string)
            instance_id: str | None = field(string, null_since=0, default=None)
            rack_id: str | None = field(string, null_since=0, default=None)
            member_epoch: int = field(int32)
            client_id: str = field(string)
            client_host: str = field(string)
            subscribed_topic_names: Sequence[str] = field(array(string))
            subscribed_topic_regex: str | None = field(string, null_since=0, default=None)
            assignment: Assignment = field(Assignment)
            target_assignment: Assignment = field(Assignment)

        error_code: int = field(int16)
        error_message: str | None = field(string, null_since=0, default=None)
        group_id: str = field(string)
        group_state: str = field(string)
        group_epoch: int = field(int32)
        assignment_epoch: int = field(int32)
        assignor_name: str = field(string)
        members: Sequence[Member] = field(array(Member))
        authorized_operations: int = field(int32, default=-2147483648)

    throttle_time_ms: int = field(int32)
    groups: Sequence[DescribedGroup] = field(array(DescribedGroup))


class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse], api=69, versions=(0, 0), flexible_from=0):
    group_ids: Sequence[str] = field(array(string))
    include_authorized_operations: bool = field(boolean)


class ConsumerGroupHeartbeatResponse(Structure):
    class Assignment(Structure):
        class TopicPartitions(Structure):
            topic_id: UUID = field(unique_id)
            partitions: Sequence[int] = field(array(int32))

        topic_partitions: Sequence[TopicPartitions] = field(array(TopicPartitions))

    throttle_time_ms: int = field(int32)
    error_code: int = field(int16)
    error_message: str | None = field(string, null_since=0, default=None)
    member_id: str | None = field(string, null_since=0, default=None)
    member_epoch: int = field(int32)
    heartbeat_interval_ms: int = field(int32)
    assignment: Assignment | None = field(Assignment, null_since=0, default=None)


class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse], api=68, versions=(0, 1), flexible_from=0):
    class TopicPartitions(Structure):
        topic_id: UUID = field(unique_id)
        partitions: Sequence[int] = field(array(int32))

    group_id: str = field(string)
    member_id: str = field(string)
    member_epoch: int = field(int32)
    instance_id: str | None = field(string, null_since=0, default=None)
    rack_id: str | None = field(string, null_since=0, default=None)
    rebalance_timeout_ms: int = field(int32, default=-1)
    subscribed_topic_names: Sequence[str] | None = field(array(string), null_since=0, default=None)
    subscribed_topic_regex: str | None = field(string, since=1, null_since=1, default=None)
    server_assignor: str | None = field(string, null_since=0, default=None)
    topic_partitions: Sequence[TopicPartitions] | None = field(array(TopicPartitions), null_since=0, default=None)


class DeleteGroupsResponse(Structure):
    class DeletableGroupResult(Structure):
        group_id: str = field(string)
        error_code: int = field(int16)

    throttle_time_ms: int = field(int32)
    results: Sequence[DeletableGroupResult] = field(array(DeletableGroupResult))


class DeleteGroupsRequest(Request[DeleteGroupsResponse], api=42, versions=(0, 2), flexible_from=2):
    groups_names: Sequence[str] = field(array(string))


class DescribeGroupsResponse(Structure):
    class DescribedGroup(Structure):
        class DescribedGroupMember(Structure):
            member_id: str = field(string)
            group_instance_id: str | None = field(string, since=4, null_since=4, default=None)
            client_id: str = field(string)
            client_host: str = field(string)
            member_metadata: bytes = field(raw)
            member_assignment: bytes = field(raw)

        error_code: int = field(int16)
        error_message: str | None = field(string, since=6, null_since=6, default=None)
        group_id: str = field(string)
        group_state: str = field(string)
        protocol_type: str = field(string)
        protocol_data: str = field(string)
        members: Sequence[DescribedGroupMember] = field(array(DescribedGroupMember))
        authorized_operations: int = field(int32, since=3, default=-2147483648)

    throttle_time_ms: int = field(int32, since=1)
    groups: Sequence[DescribedGroup] = field(array(DescribedGroup))


class DescribeGroupsRequest(Request[DescribeGroupsResponse], api=15, versions=(0, 6), flexible_from=5):
    groups: Sequence[str] = field(array(string))
    include_authorized_operations: bool = field(boolean, since=3)


class HeartbeatResponse(Structure):
    throttle_time_ms: int = field(int32, since=1)
    error_code: int = field(int16)


class HeartbeatRequest(Request[HeartbeatResponse], api=12, versions=(0, 4), flexible_from=4):
    group_id: str = field(string)
    generation_id: int = field(int32)
    member_id: str = field(string)
    group_instance_id: str | None = field(string, since=3, null_since=3, default=None)


class JoinGroupResponse(Structure):
    class JoinGroupResponseMember(Structure):
        member_id: str = field(string)
        group_instance_id: str | None = field(string, since=5, null_since=5, default=None)
        metadata: bytes = field(raw)

    throttle_time_ms: int = field(int32, since=2)
    error_code: int = field(int16)
    generation_id: int = field(int32, default=-1)
    protocol_type: str | None = field(string, since=7, null_since=7, default=None)
    protocol_name: str | None = field(string, null_since=7)
    leader: str = field(string)
    skip_assignment: bool = field(boolean, since=9)
    member_id: str = field(string)
    members: Sequence[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))


class JoinGroupRequest(Request[JoinGroupResponse], api=11, versions=(0, 9), flexible_from=6):
    class JoinGroupRequestProtocol(Structure):
        name: str = field(string)
        metadata: bytes = field(raw)

    group_id: str = field(string)
    session_timeout_ms: int = field(int32)
    rebalance_timeout_ms: int = field(int32, since=1, default=-1)
    member_id: str = field(string)
    group_instance_id: str | None = field(string, since=5, null_since=5, default=None)
    protocol_type: str = field(string)
    protocols: Sequence[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(string, since=8, null_since=8, default=None)


class LeaveGroupResponse(Structure):
    class MemberResponse(Structure):
        member_id: str = field(string)
        group_instance_id: str | None = field(string, null_since=0)
        error_code: int = field(int16)

    throttle_time_ms: int = field(int32, since=1)
    error_code: int = field(int16)
    members: Sequence[MemberResponse] = field(array(MemberResponse), since=3)


class LeaveGroupRequest(Request[LeaveGroupResponse], api=13, versions=(0, 5), flexible_from=4):
    class MemberIdentity(Structure):
        member_id: str = field(string)
        group_instance_id: str | None = field(string, null_since=0, default=None)
        reason: str | None = field(string, since=5, null_since=5, default=None)

    group_id: str = field(string)
    member_id: str = field(string, until=2)
    members: Sequence[MemberIdentity] = field(array(MemberIdentity), since=3)


class ListGroupsResponse(Structure):
    class ListedGroup(Structure):
        group_id: str = field(string)
        protocol_type: str = field(string)
        group_state: str = field(string, since=4)
        group_type: str = field(string, since=5)

    throttle_time_ms: int = field(int32, since=1)
    error_code: int = field(int16)
    groups: Sequence[ListedGroup] = field(array(ListedGroup))


class ListGroupsRequest(Request[ListGroupsResponse], api=16, versions=(0, 5), flexible_from=3):
    states_filter: Sequence[str] = field(array(string), since=4)
    types_filter: Sequence[str] = field(array(string), since=5)


class OffsetCommitResponse(Structure):
    class OffsetCommitResponseTopic(Structure):
        class OffsetCommitResponsePartition(Structure):
            partition_index: int = field(int32)
            error_code: int = field(int16)

        name: str = field(string, until=9)
        topic_id: UUID = field(unique_id, since=10)
        partitions: Sequence[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))

    throttle_time_ms: int = field(int32, since=3)
    topics: Sequence[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))


class OffsetCommitRequest(Request[OffsetCommitResponse], api=8, versions=(2, 10), flexible_from=8):
    class OffsetCommitRequestTopic(Structure):
        class OffsetCommitRequestPartition(Structure):
            partition_index: int = field(int32)
            committed_offset: int = field(int64)
            committed_leader_epoch: int = field(int32, since=6, default=-1)
            committed_metadata: str | None = field(string, null_since=0)

        name: str = field(string, until=9)
        topic_id: UUID = field(unique_id, since=10)
        partitions: Sequence[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))

    group_id: str = field(string)
    generation_id_or_member_epoch: int = field(int32, default=-1)
    member_id: str = field(string)
    group_instance_id: str | None = field(string, since=7, null_since=7, default=None)
    retention_time_ms: int = field(int64, until=4, default=-1)
    topics: Sequence[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetDeleteResponse(Structure):
    class OffsetDeleteResponseTopic(Structure):
        class OffsetDeleteResponsePartition(Structure):
            partition_index: int = field(int32)
            error_code: int = field(int16)

        name: str = field(string)
        partitions: Sequence[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))

    error_code: int = field(int16)
    throttle_time_ms: int = field(int32)
    topics: Sequence[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))


class OffsetDeleteRequest(Request[OffsetDeleteResponse], api=47, versions=(0, 0)):
    class OffsetDeleteRequestTopic(Structure):
        class OffsetDeleteRequestPartition(Structure):
            partition_index: int = field(int32)

        name: str = field(string)
        partitions: Sequence[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))

    group_id: str = field(string)
    topics: Sequence[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


class OffsetFetchResponse(Structure):
    class OffsetFetchResponseTopic(Structure):
        class OffsetFetchResponsePartition(Structure):
            partition_index: int = field(int32)
            committed_offset: int = field(int64)
            committed_leader_epoch: int = field(int32, since=5, default=-1)
            metadata: str | None = field(string, null_since=0)
            error_code: int = field(int16)

        name: str = field(string)
        partitions: Sequence[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))

    class OffsetFetchResponseGroup(Structure):
        class OffsetFetchResponseTopics(Structure):
            class OffsetFetchResponsePartitions(Structure):
                partition_index: int = field(int32)
                committed_offset: int = field(int64)
                committed_leader_epoch: int = field(int32, default=-1)
                metadata: str | None = field(string, null_since=0)
                error_code: int = field(int16)

            name: str = field(string, until=9)
            topic_id: UUID = field(unique_id, since=10)
            partitions: Sequence[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions))

        group_id: str = field(string)
        topics: Sequence[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics))
        error_code: int = field(int16)

    throttle_time_ms: int = field(int32, since=3)
    topics: Sequence[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), until=7)
    error_code: int = field(int16, since=2, until=7)
    groups: Sequence[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), since=8)


class OffsetFetchRequest(Request[OffsetFetchResponse], api=9, versions=(1, 10), flexible_from=6):
    class OffsetFetchRequestTopic(Structure):
        name: str = field(string)
        partition_indexes: Sequence[int] = field(array(int32))

    class OffsetFetchRequestGroup(Structure):
        class OffsetFetchRequestTopics(Structure):
            name: str = field(string, until=9)
            topic_id: UUID = field(unique_id, since=10)
            partition_indexes: Sequence[int] = field(array(int32))

        group_id: str = field(string)
        member_id: str | None = field(string, since=9, null_since=9, default=None)
        member_epoch: int = field(int32, since=9, default=-1)
        topics: Sequence[OffsetFetchRequestTopics] | None = field(array(OffsetFetchRequestTopics), null_since=0)

    group_id: str = field(string, until=7)
    topics: Sequence[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic), until=7, null_since=2)
    groups: Sequence[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), since=8)
    require_stable: bool = field(boolean, since=7)


class SyncGroupResponse(Structure):
    throttle_time_ms: int = field(int32, since=1)
    error_code: int = field(int16)
    protocol_type: str | None = field(string, since=5, null_since=5, default=None)
    protocol_name: str | None = field(string, since=5, null_since=5, default=None)
    assignment: bytes = field(raw)


class SyncGroupRequest(Request[SyncGroupResponse], api=14, versions=(0, 5), flexible_from=4):
    class SyncGroupRequestAssignment(Structure):
        member_id: str = field(string)
        assignment: bytes = field(raw)

    group_id: str = field(string)
    generation_id: int = field(int32)
    member_id: str = field(string)
    group_instance_id: str | None = field(string, since=3, null_since=3, default=None)
    protocol_type: str | None = field(string, since=5, null_since=5, default=None)
    protocol_name: str | None = field(string, since=5, null_since=5, default=None)
    assignments: Sequence[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))
