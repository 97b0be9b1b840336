"""The owner of partitions that a group assigns: members of either protocol, their commits, rejoins and removal."""

import functools
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import end_offsets
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.kept import offsets_of, offsets_of_members
from kafka_source.commits.policy import CommitPolicy
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import FencedError
from kafka_source.group.classic.balance import Pace
from kafka_source.group.classic.member import RebalanceTimeout
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.membership import Membership
from kafka_source.group.model import BatchInFlight, GroupAssignment, GroupSettings, OwnedPartitions, group_settings
from kafka_source.group.siblings import Siblings
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.options.assignment_strategies import REDUNDANT, strategies_of
from kafka_source.runtime.deadline import Deadline
from kafka_source.source.owners import OwnerEvents, PartitionOwner
from kafka_source.source.positions import Positions

log = logging.getLogger(__name__)

_JOIN_MARGIN_MS = 30_000
_COMMIT_PAUSE_SECONDS = 1.0


class GroupMemberOwner(PartitionOwner):
    """The owner in a group: the slots are members, and the leader's assignment says which partitions they own.

    Args:
        options: The query's options.
        policy: The query's commit policy.
        subscription: The topics or partitions that the members subscribe to.
        group: The result of `group_settings`.
        positions: The query's positions; None: the query has no checkpoint.
        siblings: The other reads of this driver and group; None: they cannot be found.
    """

    def __init__(
        self,
        options: ReadOptions,
        policy: CommitPolicy,
        subscription: TopicSelection,
        group: GroupSettings,
        *,
        siblings: Siblings | None = None,
        positions: Positions | None = None,
    ) -> None:
        self._positions = positions or Positions()
        self._group = group
        self._join_seconds = (group.rebalance_timeout_ms + _JOIN_MARGIN_MS) / 1000
        self._all_copies = options.redundant_emit == "all"
        self._assignment: GroupAssignment | None = None
        self._owned = OwnedPartitions({})
        self._stops = options.group_on_lost == "stop"
        self._membership = _membership_of(options, subscription, group, siblings)
        self._pace = Pace()
        # The finished offsets that the last commit has not committed.
        self._uncommitted: Mapping[TopicPartition, int] = {}
        self._right, self._right_id = policy.right, policy.right_id
        self.has_joined = False
        self.offsets = offsets_of_members(options, policy, self._positions, self._membership, self.owned)

    def rebalance_paused(self) -> AbstractContextManager[None]:
        """Return a context in which the slots rejoin only by calls within it; see `Membership.rebalance_paused`."""
        return self._membership.rebalance_paused()

    def batch_planned(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> None:
        """Measure the query's speed from now until the next call of `commit`.

        If the slots have to rejoin before the micro-batch is finished, they claim the micro-batch's partitions.
        """
        self._pace = self._pace.planned(time.monotonic(), starts, ends, latest)
        self._positions.add_in_flight({tp: end for tp, end in ends.items() if end > starts[tp]})
        self._membership.set_batch_in_flight(BatchInFlight(self._positions.in_flight))

    def tasks_made(self, ends: Mapping[TopicPartition, int]) -> None:
        """Prevent rejoins that would invalidate the credentials with which tasks or the sink commit."""
        self._positions.add_in_flight(ends)
        self._membership.set_batch_in_flight(BatchInFlight(self._positions.in_flight, self._right))

    def _nothing_in_flight(self) -> None:
        self._positions.clear_in_flight()
        self._membership.set_batch_in_flight(BatchInFlight())

    def commit(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit `finished`; if that fails, its partitions stay in flight. Raises as `rejoin_if_due`."""
        self._join_if_needed()
        committed = self._commit_finished(finished)
        self._uncommitted = {} if committed else finished
        self.offsets.check_late(now=False)
        if committed:
            self._nothing_in_flight()

    def rejoin_if_due(self) -> OwnedPartitions:
        """Rejoin the group if a rebalance is due, and return the slots' current partitions.

        Members rejoin when a reader calls this between two micro-batches. If another read of this driver waits in a
        join, members rejoin without this call, and claim the partitions of the micro-batch that is not committed yet.

        Before a rejoin, retry a failed commit for half of the rebalance timeout. Only this method knows whether a
        rejoin follows, because a heartbeat may make a rebalance due at any time.

        Raises:
            FencedError: Another process uses a slot's instance id, or the group has removed the slots and
                `group.on.lost` is `stop`.
        """
        self._join_if_needed()
        reason = self._membership.rebalance_needed()
        if reason is not None and self._uncommitted:
            self._commit_before_rejoin()
            # If the commit was refused, the slots have rejoined already.
            reason = self._membership.rebalance_needed()
        if reason is not None:
            self.offsets.check_late(now=True)
            self._nothing_in_flight()
            log.info("rejoin group=%s reason=%r", self._group.group, reason)
            self._wait_in(self._membership.rejoin)
        return self.owned()

    def _join_if_needed(self) -> None:
        """Join if the slots are not members yet, or if the group has removed them; report the query's rate."""
        self._pace = self._pace.finished(time.monotonic())
        self._membership.record_throughput(self._pace.speed, self._pace.growth.rates)
        self.join()
        lost = self._membership.lost()
        if lost is not None:
            self._rejoin_after(lost)

    @property
    def joins(self) -> int:
        """The number of joins of the group, with rejoins for other reads of the driver."""
        return self.owned().joins

    def still_owned(self) -> bool:
        """Return False if this process knows that the group has removed the slots."""
        return self._membership.lost() is None

    def ask(self) -> None:
        """Ask the coordinator whether the slots are still members."""
        self._membership.ask()

    def rebalance_due(self) -> bool:
        """Return whether the slots have to rejoin; raises as `rejoin_if_due`."""
        return self._membership.lost() is not None or self._membership.rebalance_needed() is not None

    def join(self) -> None:
        """Join with all slots, unless they have joined already."""
        if not self.has_joined:
            self._wait_in(self._membership.join)
            self.has_joined = True

    def _wait_in(self, enter: Callable[[float], object]) -> None:
        """Join or rejoin, however long the other members take.

        The group waits up to the longest rebalance timeout of its members, and this process does not know this timeout.
        """
        while True:
            try:
                enter(self._join_seconds)
                return
            except RebalanceTimeout as error:
                log.warning("%s The query keeps waiting.", error)

    def _rejoin_after(self, lost: str) -> None:
        if self._stops:
            raise FencedError(
                f"This query's slots are no longer members of group {self._group.group}: {lost}. Nothing was committed "
                "since then, and other members may own the partitions now. The query stops because group.on.lost is "
                "stop; start it again to continue from the group's committed offsets.",
                code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
        log.warning("rejoin group=%s reason=%r: nothing is committed until the rejoin", self._group.group, lost)
        self._nothing_in_flight()
        self._wait_in(self._membership.rejoin)

    def owned(self) -> OwnedPartitions:
        """Return the slots' partitions in the current generation."""
        assignment = self._membership.assignment
        if assignment is not self._assignment:
            joined = owned_by(assignment, all_copies=self._all_copies)
            self._assignment, self._owned = assignment, replace(joined, joins=self._owned.joins + 1)
            self.offsets.begin_generation()
        return self._owned

    def _commit_finished(self, finished: Mapping[TopicPartition, int]) -> bool:
        """Commit the offsets that the group does not have; return False if another attempt may commit them."""
        try:
            return self.offsets.finish(finished)
        except FencedError as error:
            if error.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            self._rejoin_after(f"its commit was refused ({error})")
            return True

    def _commit_before_rejoin(self) -> None:
        """Retry the commit for half of the rebalance timeout, while the coordinator accepts the old generation.

        After the rebalance other members would read uncommitted records again.
        """
        deadline = Deadline(self._group.rebalance_timeout_ms / 2000)
        while not self._commit_finished(self._uncommitted) and not deadline.over:
            time.sleep(_COMMIT_PAUSE_SECONDS)
        self._uncommitted = {}

    def credentials(self, slot: int) -> SlotCredentials:
        """Return the credentials of slot `slot` modulo the slots; a replayed batch may have had more slots."""
        self.join()
        slots = self._membership.credentials
        return replace(slots[slot % len(slots)], right=self._right_id)

    def take_events(self) -> OwnerEvents:
        """Return the driver's commits and the slots' rebalances since the last call."""
        return replace(super().take_events(), rebalances=self._membership.take_rebalances())

    def leave(self) -> None:
        """Leave the group immediately, even if the user has set instance ids."""
        self._membership.leave()

    def detach(self, kept: Collection[int]) -> None:
        """Stop acting for the kept slots, which another process resumes; the other slots leave the group.

        Only batches, whose slots are members of the classic protocol, call this method.
        """
        self._membership.detach(kept)

    def close(self) -> None:
        """Leave the group; slots with the user's instance ids stay members and wait for a restart."""
        self.offsets.close()
        self._membership.close()


def _membership_of(
    options: ReadOptions, subscription: TopicSelection, group: GroupSettings, siblings: Siblings | None
) -> Membership:
    if options.group_protocol == "consumer":
        return ConsumerMembership(options.settings, group, subscription, recovers=options.group_on_lost != "stop")
    return ClassicMembership(
        options.settings,
        group,
        subscription,
        strategies_of(options),
        siblings,
        functools.partial(end_offsets, read_committed=options.read_committed),
    )


def owned_by(assignment: GroupAssignment, *, all_copies: bool) -> OwnedPartitions:
    """Return the partitions whose first copy (with `all_copies`: any copy) the slots have."""
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    ids: dict[TopicPartition, str] = {}
    for slot in assignment.slots:
        ids = {**slot.topic_ids, **ids}
        for tp in slot.partitions:
            replica = slot.replicas.get(tp, 0)
            if replica == 0 or all_copies:
                found.setdefault(tp, []).append((replica, slot.credentials.slot))
    copies = {tp: tuple((slot, replica) for replica, slot in sorted(pairs)) for tp, pairs in found.items()}
    all_emit = all_copies and assignment.assignor == REDUNDANT
    slots = {tp: of_it[0][0] for tp, of_it in copies.items()}
    kept = copies if all_emit else {}
    return OwnedPartitions(slots, len(assignment.slots), assignment.generation, kept, topic_ids=ids)


def owner_of(
    options: ReadOptions,
    policy: CommitPolicy,
    cluster: Cluster,
    selection: TopicSelection,
    partitions: int,
    siblings: Siblings | None,
    positions: Positions,
    *,
    static: bool,
) -> PartitionOwner:
    """Return the owner of a stream's partitions.

    Args:
        options: The stream's options.
        policy: The stream's commit policy.
        cluster: The stream's cluster.
        selection: The topics or partitions that the stream selects.
        partitions: The current number of selected partitions.
        siblings: The other reads of this driver and group; None: they cannot be found.
        positions: The stream's positions.
        static: Whether the stream's members are static, even if the user sets no instance id.
    """
    if not options.is_member:
        return PartitionOwner(cluster, selection, offsets_of(options, policy, positions))
    # The consumer protocol refuses the new process of a static slot until the session of the old process ends.
    static = static and options.group_protocol == "classic"
    group = group_settings(options, partitions=partitions, stream=True, static=static)
    return GroupMemberOwner(options, policy, selection, group, siblings=siblings, positions=positions)
