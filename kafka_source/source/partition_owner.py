"""Whose the partitions are: of the whole query without a group, or of its slots as the group's leader assigned them.

Readers see one interface, so that their path is the same with and without a group.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from assignors import Assignor, load
from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.cluster.lookup import Cluster
from kafka_source.error_codes import FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION
from kafka_source.errors import FencedError, InvalidConfigurationError, KafkaGroupError, OptionError
from kafka_source.group.member import RebalanceTimeout
from kafka_source.group.membership import GroupMembership
from kafka_source.group.model import GroupAssignment, GroupSettings, SlotCredentials
from kafka_source.model.stream_offset import Copies
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import Options
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.driver_pid import driver_pid
from kafka_source.transactions.offset_committer import TransactionalCommitter

log = logging.getLogger(__name__)

MOST_DEFAULT_SLOTS = 8
REDUNDANT = "redundant"
_JOIN_MARGIN_MS = 30_000
_COMMIT_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """The partitions that a query may read now.

    Attributes:
        slots: Each partition's slot; -1 without a group.
        count: The number of slots; 0 without a group.
        generation: The group's; -1 without one.
        copies: Each partition's slots and replicas where all copies emit rows, else empty. Then each query has
            positions of its own, and the group's offsets are those of the first copies, for those who watch.
    """

    slots: Mapping[TopicPartition, int]
    count: int = 0
    generation: int = -1
    copies: Mapping[TopicPartition, Copies] = field(default_factory=dict)

    def commits(self, tp: TopicPartition) -> bool:
        """Whether the group's offset of this partition is this query's business."""
        return tp in self.slots and (tp not in self.copies or self.copies[tp][0][1] == 0)


class PartitionOwner(Protocol):
    """Who owns which partition, and where positions are kept."""

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Note that everything before `finished` is done, then say what is owned from here on.

        In a group this commits, and then rejoins if a rebalance is due: a member rejoins between batches only.
        """
        ...

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Note that everything before `finished` is done."""
        ...

    def forget_topics(self, topics: Collection[str]) -> None:
        """Note that these are other topics by now: what was committed for them before means nothing."""
        ...

    def still_owned(self) -> bool:
        """Whether what `commit_and_rejoin` said is still so, as far as this process can know."""
        ...

    @property
    def keeps_positions(self) -> bool:
        """Whether `remember` makes positions outlive the query."""
        ...

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Note where partitions start that have no committed offset yet."""
        ...

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Note that records were lost, and the group must not stand beyond these offsets."""
        ...

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; empty without a group."""
        ...

    def credentials(self, slot: int) -> SlotCredentials | None:
        """With what a task acts as this slot; None without a group."""
        ...

    def close(self) -> None:
        """Give the partitions up."""
        ...


class Standalone:
    """Without a group: all partitions of the subscription are the query's, and nothing is committed."""

    def __init__(self, cluster: Cluster, subscription: TopicSelection) -> None:
        self._cluster = cluster
        self._subscription = subscription

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """All partitions that exist."""
        return OwnedPartitions(dict.fromkeys(self._cluster.partitions(self._subscription), -1))

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Nothing to note."""

    def forget_topics(self, topics: Collection[str]) -> None:
        """Nothing to note."""

    def still_owned(self) -> bool:
        """Always: nobody else takes them."""
        return True

    keeps_positions = False

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Nothing to note them in."""

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Nothing to note."""

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Nothing."""
        return {}

    def credentials(self, slot: int) -> None:
        """None."""
        return

    def close(self) -> None:
        """Nothing to give up."""


class GroupMemberOwner:
    """In a group: the slots are its members, and the leader's assignment says whose a partition is.

    Args:
        options: Of the query.
        settings: Of the Kafka clients.
        subscription: What the members subscribe to.
        group: The group's settings, see `group_settings`.
        commits: Whether positions that are done are committed here, by the driver.
    """

    def __init__(
        self, options: Options, settings: Settings, subscription: TopicSelection, group: GroupSettings, *, commits: bool
    ) -> None:
        self._group = group
        self._commits = commits
        self._join_seconds = (group.rebalance_timeout_ms + _JOIN_MARGIN_MS) / 1000
        self._all_copies = options["redundant.emit"] == "all"
        self._assignment: GroupAssignment | None = None
        self._owned = OwnedPartitions({})
        self._membership = GroupMembership(settings, group, subscription, strategies_of(options))
        self._committer = (
            TransactionalCommitter(settings, f"{group.group}-{group.instance_id_prefix}")
            if commits and options["commit.transactional"]
            else None
        )
        self._stops = options["group.lost"] == "stop"
        self._done: dict[TopicPartition, int] = {}
        self._anew: set[str] = set()
        self._compared = -1
        self._joined = False

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Commit `finished`, rejoin if a rebalance is due, and say what the slots own.

        Raises:
            FencedError: Another process has a slot's instance id, or the group has given the slots up and
                `group.lost` is `stop`.
        """
        self._join()
        lost = self._membership.lost()
        if lost is not None:
            self._rejoin_after(lost)
        if not self._commit_finished(finished) and self._membership.rebalance_needed() is not None:
            self._retry_commit_before_rejoin(finished)
        reason = self._membership.rebalance_needed()
        if reason is not None:
            log.info("group %s: rejoining between batches: %s", self._group.group, reason)
            self._wait_in(self._membership.rejoin)
        return self.owned()

    def still_owned(self) -> bool:
        """Whether the group has not given the slots up since."""
        return self._membership.lost() is None

    def _join(self) -> None:
        if not self._joined:
            self._wait_in(self._membership.join)
            self._joined = True

    def _wait_in(self, enter: Callable[[float], object]) -> None:
        """Join or rejoin, and go on if others take longer.

        The group waits for a member as long as the longest rebalance timeout of them all, which is not known here.
        """
        while True:
            try:
                enter(self._join_seconds)
                return
            except RebalanceTimeout as error:
                log.warning("%s This query goes on waiting.", error)

    def _rejoin_after(self, lost: str) -> None:
        if self._stops:
            raise FencedError(
                f"This query's slots are no longer members of group {self._group.group}: {lost}. It has committed "
                "nothing since, and its partitions may be another member's by now. It stops because group.lost is "
                "stop; start it again to go on where the group stands.",
                code=UNKNOWN_MEMBER_ID,
            )
        log.warning(
            "group %s: %s; nothing is committed until the query has joined again, which it does now",
            self._group.group,
            lost,
        )
        self._wait_in(self._membership.rejoin)

    def owned(self) -> OwnedPartitions:
        """What the slots own in the present generation."""
        assignment = self._membership.assignment
        if assignment is not self._assignment:
            self._assignment, self._owned = assignment, owned_by(assignment, all_copies=self._all_copies)
        return self._owned

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit what is not committed yet, all partitions in one transaction.

        A member that the group has put out commits nothing: its partitions are another's by now, and what it read
        since its last commit is read again there (at least once).
        """
        self._commit_finished(finished)

    def _commit_finished(self, finished: Mapping[TopicPartition, int]) -> bool:
        """Whether the group knows all of `finished` now that it takes; if not, it may at another try."""
        try:
            news = self._news(finished)
            if news:
                self.commit(news)
        except FencedError as error:
            if error.code == FENCED_INSTANCE_ID:
                raise
            self._rejoin_after(f"its commit was refused ({error})")
            return True
        except InvalidConfigurationError:
            raise
        except KafkaGroupError as error:
            log.warning("group %s: committing is tried again at the next batch: %s", self._group.group, error)
            # Of a topic that was deleted it takes nothing.
            return error.code == UNKNOWN_TOPIC_OR_PARTITION
        self._done.update(news)
        self._anew -= {tp.topic for tp in news}
        return True

    def _retry_commit_before_rejoin(self, finished: Mapping[TopicPartition, int]) -> None:
        """Try for half as long as the group waits to commit what could not be: after a rebalance others read it again.

        Until then the group takes commits of its old generation.
        """
        deadline = Deadline(self._group.rebalance_timeout_ms / 2000)
        while not self._commit_finished(finished) and not deadline.over:
            time.sleep(_COMMIT_PAUSE_SECONDS)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget what was committed for topics that were created anew; what is next committed may be less."""
        self._anew |= set(topics)
        self._done = {tp: offset for tp, offset in self._done.items() if tp.topic not in self._anew}

    def _news(self, finished: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """What of `finished` the group does not know yet, if committing it is the driver's business."""
        if not self._commits or not self._joined:
            return {}
        owned = self.owned()
        news = {tp: end for tp, end in finished.items() if owned.commits(tp) and self._done.get(tp) != end}
        if news and owned.generation != self._compared:
            # Another application may have read on before these partitions came (back) to us: never step back.
            for tp, offset in self.committed(sorted(tp for tp in news if tp.topic not in self._anew)).items():
                if offset is not None and offset >= news[tp]:
                    self._done[tp] = news.pop(tp)
            self._compared = owned.generation
        return news

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets as the group's.

        Raises:
            FencedError: The members are no longer the group's.
        """
        slots = self._membership.assignment.slots
        if self._committer is not None:
            # The broker checks that a member of this generation commits, not that it owns each partition.
            self._committer.commit(slots[0].credentials, offsets)
            return
        by_slot: dict[int, dict[TopicPartition, int]] = {}
        mine = self.owned().slots
        for tp, offset in offsets.items():
            by_slot.setdefault(mine[tp], {})[tp] = offset
        self._membership.commit(by_slot)

    @property
    def keeps_positions(self) -> bool:
        """Whether this driver commits, and starts where it has committed."""
        return self._commits and not self._all_copies

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit the starts, so that a query with `latest` that ends before its first batch goes on from there."""
        if self.keeps_positions and starts:
            self.commit(starts)

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit those starts that the group stands beyond."""
        stands = self.committed(sorted(starts))
        beyond = {tp: start for tp, start in starts.items() if (stands.get(tp) or 0) > start}
        if beyond:
            self.commit(beyond)

    def committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets, none of them still in an open transaction."""
        found: dict[TopicPartition, int | None] = self._membership.committed(partitions)
        return found

    def credentials(self, slot: int) -> SlotCredentials:
        """Of this slot; a replayed batch may have had more slots than there are now."""
        self._join()
        slots = self._membership.assignment.slots
        return slots[slot % len(slots)].credentials

    def detach(self) -> None:
        """Stop acting for the slots without leaving the group: tasks take them over."""
        self._membership.detach()

    def close(self) -> None:
        """Leave the group, or, with an instance id of the user's, let the slots wait for a restart."""
        self._membership.close()


def owned_by(assignment: GroupAssignment, *, all_copies: bool) -> OwnedPartitions:
    """What the slots may read: the partitions of which one is the primary, or with `all_copies` all they have."""
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for slot in assignment.slots:
        for tp in slot.partitions:
            replica = slot.replicas.get(tp, 0)
            if replica == 0 or all_copies:
                found.setdefault(tp, []).append((replica, slot.credentials.slot))
    copies = {tp: tuple((slot, replica) for replica, slot in sorted(pairs)) for tp, pairs in found.items()}
    all_emit = all_copies and assignment.assignor == REDUNDANT
    slots = {tp: of_it[0][0] for tp, of_it in copies.items()}
    return OwnedPartitions(slots, len(assignment.slots), assignment.generation, copies if all_emit else {})


def subscription_of(options: Options) -> TopicSelection:
    """What the options subscribe to."""
    if options.given("assign"):
        named = options["assign"].items()
        return TopicSelection(partitions=tuple(TopicPartition(topic, p) for topic, parts in named for p in parts))
    return TopicSelection(topics=options["subscribe"] or (), pattern=options["subscribePattern"])


def strategies_of(options: Options) -> list[Assignor]:
    """The assignors that the options name, best first.

    Raises:
        OptionError: There is no such assignor, or it does not take its options.
    """
    arguments = dict(options["assignor.options"] or {})
    names = options["kafka.partition.assignment.strategy"]
    if options.given("redundant.copies") and REDUNDANT in names:
        arguments[REDUNDANT] = {**arguments.get(REDUNDANT, {}), "copies": options["redundant.copies"]}
    if unused := sorted(set(arguments) - set(names)):
        raise OptionError(
            "assignor.options", unused[0], f"options of kafka.partition.assignment.strategy={','.join(names)}"
        )
    return [_assignor(name, arguments.get(name, {})) for name in names]


def _assignor(name: str, arguments: Mapping[str, object]) -> Assignor:
    try:
        return load(name, arguments)
    except ValueError as error:
        option = "assignor.options" if arguments else "kafka.partition.assignment.strategy"
        raise OptionError(option, arguments or name, f"what the assignor takes: {error}") from None


def in_group(options: Options) -> bool:
    """Whether the query is a member of a group."""
    return bool(options.given("kafka.group.id") and options["group.membership"])


def group_settings(options: Options, *, partitions: int, stream: bool) -> GroupSettings:
    """The group's settings of a query.

    Args:
        options: Of the query.
        partitions: How many partitions the subscription has.
        stream: Whether the driver keeps the slots; in a batch they wait for their task.
    """
    given = options["kafka.group.instance.id"]
    return GroupSettings(
        group=options["kafka.group.id"],
        instance_id_prefix=given or (_stream_instance() if stream else _batch_instance(options)),
        slots=options["group.members"] or max(1, min(partitions, MOST_DEFAULT_SLOTS)),
        session_timeout_ms=options["kafka.session.timeout.ms"] or (45_000 if stream else 300_000),
        rebalance_timeout_ms=options["kafka.max.poll.interval.ms"] or (300_000 if stream else 1_800_000),
        heartbeat_interval_ms=options["kafka.heartbeat.interval.ms"],
        rebalance_batch_ms=options["rebalance.batch.ms"],
        metadata_max_age_ms=options["kafka.metadata.max.age.ms"],
        client_id=Settings(options.kafka).client_id("member"),
        rack=options.kafka.get("client.rack"),
        leave_on_close=given is None,
    )


def _stream_instance() -> str:
    return f"kafkagroup-{uuid.uuid4().hex[:12]}"


def _batch_instance(options: Options) -> str:
    # The slots of an action that read only a part of them (show, limit) stay in the group until their session ends.
    # The next action of the same read must be the same members, or it would share the partitions with them.
    identity = (socket.gethostname(), driver_pid(), repr(sorted(map(repr, options.values.items()))))
    return f"kafkagroup-{zlib.crc32(repr(identity).encode()):08x}"
