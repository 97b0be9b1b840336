"""How fast each member of a group gets on, from two looks at the group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from assignors.model import TopicPartition
from kafkagroup.admin.model import MemberDescription


def rates_of(
    before: Iterable[MemberDescription],
    committed_before: Mapping[TopicPartition, int],
    now: Iterable[MemberDescription],
    committed: Mapping[TopicPartition, int],
    seconds: float,
) -> dict[str, float | None]:
    """Return the offsets a second that each member has committed, by member id.

    Only partitions that the member has in both looks count, and of these only the ones with a committed offset in the
    first look. A partition that went back, because the group was rewound, counts as 0.

    Args:
        before: The members at the first look.
        committed_before: The group's committed offsets at the first look.
        now: The members at the second look.
        committed: The group's committed offsets at the second look.
        seconds: The time between both.

    Returns:
        None for a member that was not there at the first look, or none of whose partitions can be compared.
    """
    had = {member.member_id: set(member.partitions) for member in before}
    rates: dict[str, float | None] = {}
    for member in now:
        partitions = [tp for tp in member.partitions if tp in had.get(member.member_id, ()) and tp in committed_before]
        known = member.member_id in had and (partitions or not member.partitions)
        moved = sum(max(0, committed.get(tp, 0) - committed_before[tp]) for tp in partitions)
        rates[member.member_id] = moved / seconds if known and seconds > 0 else None
    return rates
