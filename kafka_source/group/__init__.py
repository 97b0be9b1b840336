"""Group membership: the members (slots) of a query, tasks that act as a slot, and generic members.

Only the names in `__all__` are public; they are for groups of any kind.
"""

from kafka_source.group.classic.generic_member import GenericMember, MemberState
from kafka_source.group.classic.member import MemberSettings, RebalanceTimeout

__all__ = ["GenericMember", "MemberSettings", "MemberState", "RebalanceTimeout"]
