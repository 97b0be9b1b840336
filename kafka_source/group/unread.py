"""Partitions that no member reads: two descriptions of the group find them, and an assignment is requested once.

A lost message between a coordinator and a member can leave a partition without a reader, while the group counts as
stable. `decide` and the functions that make a `Look` are pure; `UnreadWatch` describes and heals groups of both
protocols.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from assignors import TopicPartition
from kafka_source.errors import KafkaGroupError
from kafka_source.group.model import GroupSettings
from kafka_source.group.requests import STABLE
from kafka_source.kafka_client import Snapshot
from kafka_source.kafka_client.messages.group import ConsumerGroupDescribeResponse
from kafka_source.model.partition_runs import format_partitions

log = logging.getLogger(__name__)

_Partitions = frozenset[TopicPartition]
_NONE: _Partitions = frozenset()
# A larger description is requested less often.
_LARGE_BYTES = 1 << 20
_LARGE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Look:
    """The description of a stable group.

    Attributes:
        epoch: The group's generation in the classic protocol, the group's epoch in the consumer protocol.
        existing: The partitions of the subscribed topics, without topics that the user may not describe.
        read: The partitions that a member has, claims or is about to take.
    """

    epoch: int
    existing: _Partitions
    read: _Partitions


@dataclass(frozen=True, slots=True)
class Found:
    """What the descriptions of a group have shown until now.

    Attributes:
        last: The last description.
        unread: The partitions that existed in the last two descriptions of the group, and had no reader in the last.
        asked: The partitions that were healed and have had no reader since.
        heal: The partitions to heal now, because they had no reader in two descriptions of one epoch.
        warn: The partitions to warn of, because healing did not help.
        warned: The partitions that a warning named, and that have had no reader since.
    """

    last: Look = Look(-1, _NONE, _NONE)
    unread: _Partitions = _NONE
    asked: _Partitions = _NONE
    heal: _Partitions = _NONE
    warn: _Partitions = _NONE
    warned: _Partitions = _NONE


def decide(found: Found, look: Look) -> Found:
    """Return what one more description of the group shows; a new partition counts from its second description on."""
    unread = (look.existing & found.last.existing) - look.read
    again = unread & found.unread if look.epoch == found.last.epoch else _NONE
    asked, warned = found.asked & unread, found.warned & unread
    heal, warn = again - asked, (again & asked) - warned
    return Found(look, unread, asked | heal, heal, warn, warned | warn)


def existing(snapshot: Snapshot, topics: Collection[str]) -> _Partitions:
    """Return the partitions of these topics that the brokers describe."""
    return frozenset(
        TopicPartition(name, number)
        for name in topics
        if name in snapshot.topics
        for number in snapshot.topics[name].partitions
    )


def read_as_assigned_by_brokers(
    described: ConsumerGroupDescribeResponse.DescribedGroup, own: Mapping[str, Collection[TopicPartition]]
) -> _Partitions | None:
    """Return the partitions that members of the consumer protocol read or are to take; see `read_by_members`."""
    members = {member.member_id: member for member in described.members}
    is_stable = described.group_state == STABLE and described.group_epoch == described.assignment_epoch
    if not is_stable or not own.keys() <= members.keys():
        return None
    of_others = (
        TopicPartition(topic.topic_name, number)
        for member_id, member in members.items()
        if member_id not in own
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )
    return frozenset(of_others).union(*own.values())


class UnreadWatch:
    """Describes the group once in `metadata.max.age.ms`, heals and warns, on the event loop of the membership.

    Args:
        settings: The group id, and the interval between lookups.
        look: Describes the group; returns the description (None: unknown), and the size of the response in bytes.
        heal: Heals partitions; its second argument names them as text.
    """

    def __init__(
        self,
        settings: GroupSettings,
        look: Callable[[], Awaitable[tuple[Look | None, int]]],
        heal: Callable[[str], None],
    ) -> None:
        self._settings, self._look, self._heal = settings, look, heal
        self._found, self._bytes = Found(), 0

    async def watch(self) -> None:
        """Wait for the next lookup, and describe the group once."""
        seconds = self._settings.metadata_max_age_ms / 1000
        await asyncio.sleep(max(seconds, _LARGE_SECONDS) if self._bytes > _LARGE_BYTES else seconds)
        try:
            look, self._bytes = await self._look()
        except KafkaGroupError as error:
            # For example the user lacks the right to describe the group.
            log.debug("describe group=%s: %s", self._settings.group, error)
            return
        if look is None:
            return
        self._found = decide(self._found, look)
        if self._found.heal:
            named = format_partitions(sorted(self._found.heal))
            log.info("group=%s epoch=%d: no member reads %s: healing", self._settings.group, look.epoch, named)
            self._heal(f"{named} is read by no member")
        if self._found.warn:
            log.warning(
                "group=%s: no member reads %s, although the group is stable and its assignment was requested again. "
                "Check whether the group's strategy leaves partitions out, else restart the group's leader.",
                self._settings.group,
                format_partitions(sorted(self._found.warn)),
            )
