"""Administration of consumer groups, and of the checkpoints of queries."""

from kafka_source.admin.groups import Group, Groups, MemberDescription, PartitionLag

__all__ = ["Group", "Groups", "MemberDescription", "PartitionLag"]
