"""Membership in a consumer group: slots that join together, sessions that act as a slot elsewhere."""

from kafka_source.group.generic_member import GenericMember, MemberState
from kafka_source.group.member import MemberSettings, RebalanceTimeout
from kafka_source.group.membership import GroupMembership
from kafka_source.group.model import (
    CommitOffset,
    GroupAssignment,
    GroupSettings,
    SlotAssignment,
    SlotCredentials,
    TopicFilter,
    Topics,
)
from kafka_source.group.slot_session import SlotSession

__all__ = [
    "CommitOffset",
    "GenericMember",
    "GroupAssignment",
    "GroupMembership",
    "GroupSettings",
    "MemberSettings",
    "MemberState",
    "RebalanceTimeout",
    "SlotAssignment",
    "SlotCredentials",
    "SlotSession",
    "TopicFilter",
    "Topics",
]
