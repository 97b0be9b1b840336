"""Membership in a consumer group: slots that join together, sessions that act as a slot elsewhere.

Public are the names of `__all__`, for groups of any kind. What a query's members need is imported from its module.
"""

from kafka_source.group.generic_member import GenericMember, MemberState
from kafka_source.group.member import MemberSettings, RebalanceTimeout

__all__ = ["GenericMember", "MemberSettings", "MemberState", "RebalanceTimeout"]
