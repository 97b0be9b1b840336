"""Administration of consumer groups: list, describe, lag, rewind, delete."""

from kafka_source.admin.groups import Group, Groups, MemberDescription, PartitionLag

__all__ = ["Group", "Groups", "MemberDescription", "PartitionLag"]
