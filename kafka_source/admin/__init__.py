"""Administration of consumer groups and topics, and of the checkpoints of queries."""

from kafka_source.admin.groups import Groups
from kafka_source.admin.model import Group, GroupSummary, MemberDescription, PartitionLag, UserData
from kafka_source.admin.offsets_document import OffsetsDocument
from kafka_source.admin.rows import Rows
from kafka_source.admin.running_group import RunningRewind, rewind_running_group
from kafka_source.admin.topics import PartitionSummary, Topics, TopicSummary
from kafka_source.model.rewind_target import AtOffset, AtOffsets, AtTime, Back, LikeGroup, Move, Shift

__all__ = [
    "AtOffset",
    "AtOffsets",
    "AtTime",
    "Back",
    "Group",
    "GroupSummary",
    "Groups",
    "LikeGroup",
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
    "UserData",
    "rewind_running_group",
]
