"""Membership in a consumer group: slots that join together, sessions that act as a slot elsewhere."""

from kafka_source.group.coordinator import GroupMembership
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
    "GroupAssignment",
    "GroupMembership",
    "GroupSettings",
    "SlotAssignment",
    "SlotCredentials",
    "SlotSession",
    "TopicSubscription",
    "Topics",
]
