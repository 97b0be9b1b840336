"""Pause, stop and resume the queries of a group from another process, and describe a halted group."""

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, TypeAlias

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.halts import (
    Obeyed,
    fetch_halt,
    fetch_idle,
    fetch_newest_halt,
    fetch_obeyed,
    user_and_host,
    write_halt,
)
from kafka_source.errors import AuthenticationError, InvalidConfigurationError, OptionError
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.halt import Halt, HaltKind
from kafka_source.model.partition_runs import first_names
from kafka_source.model.rewind_target import AtTime, FromGroup
from kafka_source.model.topic_selection import TopicSelection
from kafkagroup.admin.group_requests import list_groups, unknown_group
from kafkagroup.admin.lag import GroupPositions, moves_now, positions_of
from kafkagroup.admin.rows import Group, MemberDescription, Rows

log = logging.getLogger(__name__)

_CALL_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 0.5
_MAX_NAMED = 5
# The suffixes of the client ids of kafkagroup's members; see `GroupSettings.client_id`.
_OUR_CLIENT_ID = "-member"

At: TypeAlias = Literal["now", "end"] | AtTime | FromGroup | Mapping[TopicPartition, int]
"""The boundaries at which a group halts.

Its current offsets, the ends of the logs, or the offsets that a time, another group or a mapping gives.
"""


@dataclass(frozen=True, slots=True)
class Stand:
    """The state of one partition of a halted group.

    Attributes:
        topic: The topic.
        partition: The partition number.
        boundary: The offset at which the group stops; None: the group's current offset.
        committed: The group's committed offset; None: no committed offset.
        member: The name of the member that owns the partition; None: no member.
        obeys: Whether the member has committed all records that it has read, and reads no further. True for a
            partition without a member, or with a member of another client.
    """

    topic: str
    partition: int
    boundary: int | None
    committed: int | None
    member: str | None
    obeys: bool

    @property
    def is_there(self) -> bool:
        """Return whether the group's committed offset is the boundary."""
        return self.boundary is None or self.committed == self.boundary


@dataclass(frozen=True, slots=True)
class Halted:
    """A halt of a group, and the state of the group.

    Attributes:
        group: The group id.
        halt: The pause or stop that the group's queries have to obey.
        partitions: The state of each partition.
        members: The members of kafkagroup that the group still has.
    """

    group: str
    halt: Halt
    partitions: Rows[Stand]
    members: tuple[MemberDescription, ...]

    @property
    def is_done(self) -> bool:
        """Return whether all boundaries are committed and no query reads on; a stopped group must have no queries."""
        if self.halt.kind is HaltKind.RESUME or not self.members:
            is_still = True
        else:
            # During a rebalance, a group without committed offsets has no known partition.
            is_still = self.halt.kind is HaltKind.PAUSE and bool(self.partitions)
        return is_still and all(
            one.obeys and (one.boundary is None or (one.committed is not None and one.committed >= one.boundary))
            for one in self.partitions
        )


def halt_of_group(settings: Settings, group: str) -> Halt | None:
    """Return the halt of a group; None: the group was resumed or never halted, or the user may not see its halt."""
    with closing(KafkaClient(settings)) as client:
        try:
            return client.run(fetch_halt(client, group, Deadline(_CALL_SECONDS)))
        except AuthenticationError:
            # The user may have the permission to describe the group, but not its halt.
            return None


def idle_queries(settings: Settings, group: str) -> tuple[str, ...]:
    """Return the processes that have reported an idle query of a stopped group in the last three minutes."""
    with closing(KafkaClient(settings)) as client:
        return client.run(fetch_idle(client, group, round(time.time() * 1000), Deadline(_CALL_SECONDS)))


def pause(
    settings: Settings, group: str, at: At = "now", *, others_go_on: bool = False, dry_run: bool = False
) -> Halted:
    """Let the queries of a group read up to boundaries, stay members, and read nothing more until `resume`.

    The pause outlasts restarts of queries, and ends with `resume` only.

    Args:
        settings: The Kafka client settings, with `bootstrap.servers`. The user needs READ on the group
            `GROUP-kafkagroup-halt` and on the group's topics.
        group: The group id.
        at: The boundary of each partition. Partitions that a mapping does not name halt at their current offset.
        others_go_on: Whether the group may have members of other clients, which continue to read.
        dry_run: Only check, and return the boundaries.

    Raises:
        UnknownGroupError: The group has neither members nor committed offsets.
        InvalidConfigurationError: The group has members of other clients, or has passed a boundary.
        OptionError: The time is in the future.
        KafkaGroupError: The user lacks the permission, or the brokers do not answer.
    """
    return _halt(settings, group, HaltKind.PAUSE, at, others_go_on=others_go_on, dry_run=dry_run)


def resume(settings: Settings, group: str, *, dry_run: bool = False) -> Halted:
    """Let the queries of a paused or stopped group continue. Arguments and errors are those of `pause`."""
    return _halt(settings, group, HaltKind.RESUME, "now", others_go_on=True, dry_run=dry_run)


def stop(
    settings: Settings, group: str, at: At = "now", *, others_go_on: bool = False, dry_run: bool = False
) -> Halted:
    """Let the queries of a group read up to boundaries, and leave the group when all boundaries are committed.

    A query that starts in a stopped group stays idle until `resume`. Arguments and errors are those of `pause`.
    """
    return _halt(settings, group, HaltKind.STOP, at, others_go_on=others_go_on, dry_run=dry_run)


def wait_until_halted(settings: Settings, group: str, halt: Halt, *, timeout: float = 330.0) -> Halted:
    """Wait until a group is at its boundaries and, if stopped, has no queries; return the group's state.

    With hourly triggers the wait may take two hours: one trigger reads the rest, and the next commits the offsets.

    Args:
        settings: As for `pause`.
        group: The group id.
        halt: The result of `pause` or `stop`.
        timeout: Seconds after which to return, halted or not.
    """
    deadline = Deadline(timeout)
    with closing(KafkaClient(settings)) as client:
        while True:
            # A member commits before it confirms, so offsets fetched after the confirmations include its commits.
            obeyed = client.run(fetch_obeyed(client, group, Deadline(_CALL_SECONDS)))
            positions = client.run(positions_of(client, (group,), Deadline(_CALL_SECONDS)))[group]
            partitions = {*positions.committed, *halt.boundaries, *positions.owners()}
            found = _standing(group, halt, positions, partitions, obeyed)
            if found.is_done or deadline.over:
                return found
            time.sleep(min(_LOOK_AGAIN_SECONDS, max(0.0, deadline.left)))


def _halt(settings: Settings, group: str, kind: HaltKind, at: At, *, others_go_on: bool, dry_run: bool) -> Halted:
    with closing(KafkaClient(settings)) as client:
        cluster = Cluster(settings, client=client)
        positions = client.run(positions_of(client, (group,), Deadline(_CALL_SECONDS)))[group]
        partitions = _partitions(cluster, positions)
        # Brokers may have deleted the offsets of a stopped group.
        has_halt = client.run(fetch_newest_halt(client, group, Deadline(_CALL_SECONDS))) is not None
        if positions.group is None and not (kind is HaltKind.RESUME and has_halt):
            known = client.run(list_groups(client, Deadline(_CALL_SECONDS)))
            raise unknown_group(group, (one.group for one in known))
        if not partitions and not (kind is HaltKind.RESUME and has_halt):
            raise InvalidConfigurationError(
                f"Group {group} has no committed offsets, and its members own no partitions yet: wait until they own "
                f"partitions, and repeat the {kind.value}."
            )
        if positions.group is not None and not others_go_on:
            _check_members(positions.group, kind)
        other: Mapping[TopicPartition, int] = {}
        if isinstance(at, FromGroup):
            other = client.run(positions_of(client, (at.group,), Deadline(_CALL_SECONDS)))[at.group].committed
        boundaries = _boundaries(cluster, at, partitions, positions.committed, other)
        _check_not_passed(group, boundaries, positions.committed)
        halt = Halt(kind, user_and_host(), round(time.time() * 1000), boundaries=boundaries)
        if not dry_run:
            halt = client.run(write_halt(client, group, halt, partitions, Deadline(_CALL_SECONDS)))
            log.info("group=%s %s", group, halt)
    return _standing(group, halt, positions, partitions, {})


def _partitions(cluster: Cluster, positions: GroupPositions) -> set[TopicPartition]:
    """Return a group's existing partitions: with a committed offset, with an owner, or of subscribed topics."""
    members = () if positions.group is None else positions.group.members
    found = {*positions.committed, *(tp for one in members for tp in one.partitions)}
    topics = cluster.topics({*(tp.topic for tp in found), *(topic for one in members for topic in one.topics)})
    exist = tuple(sorted(name for name, topic in topics.items() if topic is not None))
    every = cluster.partitions(TopicSelection(topics=exist)) if exist else []
    subscribed = {topic for one in members for topic in one.topics}
    return {tp for tp in every if tp in found or tp.topic in subscribed}


def _boundaries(
    cluster: Cluster,
    at: At,
    partitions: set[TopicPartition],
    committed: Mapping[TopicPartition, int],
    other: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if at == "now":
        return {}
    if isinstance(at, FromGroup) and not partitions & other.keys():
        raise InvalidConfigurationError(f"Group {at.group} has committed no offset in these partitions.")
    if isinstance(at, Mapping):
        if unknown := sorted(at.keys() - partitions):
            names = first_names([f"{tp.topic}-{tp.partition}" for tp in unknown], _MAX_NAMED)
            raise InvalidConfigurationError(
                f"The group does not read {names}: these partitions can have no boundaries."
            )
        return dict(at)
    if isinstance(at, AtTime) and at.timestamp_ms > time.time() * 1000:
        problem = f"The time {at.timestamp_ms} (ms since 1970) is in the future: its first record has no offset yet."
        raise OptionError("at", at.timestamp_ms, problem=f"{problem} Halt the group after that time, or at offsets.")
    moves = moves_now(cluster, "latest" if at == "end" else at, partitions, committed, other)
    return {one.topic_partition: one.offset for one in moves}


def _check_not_passed(
    group: str, boundaries: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> None:
    passed = [
        f"{tp.topic}-{tp.partition} is at {committed[tp]}, beyond {boundary}"
        for tp, boundary in sorted(boundaries.items())
        if committed.get(tp, 0) > boundary
    ]
    if passed:
        raise InvalidConfigurationError(
            f"Group {group} has passed these boundaries already: {first_names(passed, _MAX_NAMED)}. Nothing was "
            "changed. Halt the group at later boundaries, or at its current offsets (`--at now`), and then rewind it."
        )


def _check_members(group: Group, kind: HaltKind) -> None:
    others = [one for one in group.members if not _is_ours(one)]
    if others:
        names = first_names([f"{one.name} ({one.client_id}) at {one.host}" for one in others], _MAX_NAMED)
        raise InvalidConfigurationError(
            f"Group {group.group} has members of other clients, which ignore a {kind.value}: {names}. These "
            "members would continue to read, even the partitions that queries leave. Stop these members first, or "
            "allow them with --others-go-on (others_go_on=True)."
        )


def _is_ours(member: MemberDescription) -> bool:
    return member.client_id.endswith(_OUR_CLIENT_ID)


def _standing(
    group: str,
    halt: Halt,
    positions: GroupPositions,
    partitions: Iterable[TopicPartition],
    obeyed: Mapping[TopicPartition, Obeyed],
) -> Halted:
    owners = positions.owners()
    members = () if positions.group is None else tuple(one for one in positions.group.members if _is_ours(one))
    # In a rebalance no member has confirmed the halt for the partitions that it will get.
    owned = {(tp, one.member_id) for one in members for tp in one.partitions}
    is_settled = not members or positions.group is None or positions.group.state == "Stable"
    confirmed = {(tp, one.member) for tp, one in obeyed.items() if one.number == halt.number}
    waits = {tp for tp, _ in owned} - {tp for tp, _ in owned & confirmed}
    rows = (
        Stand(
            tp.topic,
            tp.partition,
            halt.boundaries.get(tp),
            positions.committed.get(tp),
            owners.get(tp),
            halt.kind is HaltKind.RESUME or (is_settled and tp not in waits),
        )
        for tp in sorted(partitions)
    )
    return Halted(group, halt, Rows(Stand, rows), members)
