"""Administration of consumer groups and topics, and of the checkpoints of queries."""

from kafka_source.model.rewind_target import AtOffset, AtOffsets, AtTime, ByDuration, FromGroup, Move, Shift
from kafkagroup.admin.groups import Groups
from kafkagroup.admin.offsets_document import OffsetsDocument
from kafkagroup.admin.rows import Group, GroupSummary, MemberDescription, PartitionLag, Rows
from kafkagroup.admin.rows import UserData as UserData
from kafkagroup.admin.running_group import RunningRewind, rewind_running_group
from kafkagroup.admin.topics import PartitionSummary, Topics, TopicSummary

__all__ = [
    "AtOffset",
    "AtOffsets",
    "AtTime",
    "ByDuration",
    "FromGroup",
    "Group",
    "GroupSummary",
    "Groups",
    "MemberDescription",
    "Move",
    "OffsetsDocument",
    "PartitionLag",
    "PartitionSummary",
    "Rows",
    "RunningRewind",
    "Shift",
    "TopicSummary",
    "Topics",
    "rewind_running_group",
]
