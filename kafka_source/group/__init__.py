"""Membership in a consumer group: slots that join together, sessions that act as a slot elsewhere."""

from kafka_source.group.coordinator import GroupMembership
from kafka_source.group.general import GeneralMember, MemberState
from kafka_source.group.member import MemberSettings, RebalanceTimeout
from kafka_source.group.model import (
    CommitOffset,
    GroupAssignment,
    GroupSettings,
    SlotAssignment,
    SlotCredentials,
    Topics,
    TopicSubscription,
)
from kafka_source.group.session import SlotSession

__all__ = [
    "CommitOffset",
    "GeneralMember",
    "GroupAssignment",
    "GroupMembership",
    "GroupSettings",
    "MemberSettings",
    "MemberState",
    "RebalanceTimeout",
    "SlotAssignment",
    "SlotCredentials",
    "SlotSession",
    "TopicSubscription",
    "Topics",
]
