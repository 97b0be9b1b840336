"""Choose where the offsets of a read are kept."""

from collections.abc import Callable

from kafka_source.commits.as_members import AsMembers
from kafka_source.commits.offsets import Offsets, ReadPositions
from kafka_source.commits.policy import CommitPolicy
from kafka_source.commits.without_members import WithoutMembers
from kafka_source.group.membership import Membership
from kafka_source.group.model import OwnedPartitions
from kafka_source.options import ReadOptions


def offsets_of(options: ReadOptions, policy: CommitPolicy, known: ReadPositions) -> Offsets:
    """Return the offsets of a read without members: of its group with `assign`, or of no group."""
    return WithoutMembers(options, policy, known) if options.in_group else Offsets()


def offsets_of_members(
    options: ReadOptions,
    policy: CommitPolicy,
    known: ReadPositions,
    members: Membership,
    owned: Callable[[], OwnedPartitions],
) -> Offsets:
    """Return the offsets of a read whose slots are members; see `AsMembers` for the arguments.

    A subclass of `AsMembers` that replaces `_fetch` and `_commit_as` keeps the offsets in another place, and inherits
    the checks that a member still owns what it commits.
    """
    return AsMembers(options, policy, known, members, owned)
