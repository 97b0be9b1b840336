"""The credentials of a group member, with which any process can act as this member."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from assignors.model import TopicPartition


@dataclass(frozen=True, slots=True)
class SlotCredentials:
    """The credentials of one slot, a member of the consumer group; the coordinator checks the first four attributes.

    Attributes:
        group: `group.id`.
        generation: The group's generation in which the member joined; -1 for a commit without membership.
        member_id: The member id from the coordinator; empty for a commit without membership.
        instance_id: `group.instance.id`; None for a dynamic member.
        slot: The number of the slot in its query.
        partitions: The slot's assignment in this generation, without standby copies (replicas).
        per_member_epoch: Whether the credentials are valid for this member only. In a classic group the credentials of
            a generation are valid together, so one member may commit for all slots of its query. In the consumer
            protocol each member has an epoch of its own, and another slot may have lost its partitions already.
        right: The id of the right to commit the batch, under which new credentials are published when the slot has
            rejoined; None: no renewal. See `commits.rights`.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None
    slot: int = 0
    partitions: tuple[TopicPartition, ...] = field(default=(), repr=False)
    per_member_epoch: bool = False
    right: str | None = None

    @staticmethod
    def without_membership(group: str) -> "SlotCredentials":
        """Return the credentials of a commit to a group that has no members."""
        return SlotCredentials(group, generation=-1, member_id="", instance_id=None)


def representative_slots(slots: Iterable[SlotCredentials]) -> list[SlotCredentials]:
    """Return the slots whose membership implies the membership of all slots.

    If the coordinator accepts one slot of a classic group, the generation and assignment of all slots are valid, see
    `per_member_epoch`. A second process with the same instance ids takes slots 0, 1, 2 and so on, so tasks check the
    slot with the lowest number. If the second process joins after the check, the driver's heartbeats detect the loss.
    """
    found: dict[tuple[str, int, int], SlotCredentials] = {}
    for one in sorted(slots, key=lambda one: one.slot):
        found.setdefault((one.group, one.generation, one.slot if one.per_member_epoch else -1), one)
    return list(found.values())
