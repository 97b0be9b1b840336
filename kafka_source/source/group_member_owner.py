"""The owner in a group: classic or consumer members, when it commits and rejoins, what it commits for lost slots."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import end_offsets
from kafka_source.commits.policy import CommitPolicy
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    RetriableError,
    UnknownOutcomeError,
    UnknownTopicError,
)
from kafka_source.group.classic.balance import Pace
from kafka_source.group.classic.member import RebalanceTimeout
from kafka_source.group.classic.membership import ClassicMembership
from kafka_source.group.consumer.membership import ConsumerMembership
from kafka_source.group.membership import Membership
from kafka_source.group.model import BatchInFlight, GroupAssignment, GroupSettings
from kafka_source.group.siblings import Siblings
from kafka_source.model.commits import CommitOffset, check_one_topic
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import format_partitions
from kafka_source.model.topic_selection import TopicSelection
from kafka_source.options import ReadOptions
from kafka_source.options.assignment_strategies import REDUNDANT, strategies_of
from kafka_source.runtime.deadline import Deadline
from kafka_source.runtime.failpoints import failpoint
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.source.late_commits import LateCommits
from kafka_source.source.owners import CommittingOwner, OwnedPartitions, OwnerEvents, SlotsRemovedError
from kafka_source.source.positions import Positions
from kafka_source.transactions.offset_committer import (
    TransactionalCommitter,
    commits_plainly_after,
    coordinator_seconds,
    transactional_id_of,
)

log = logging.getLogger(__name__)

_JOIN_MARGIN_MS = 30_000
_COMMIT_PAUSE_SECONDS = 1.0
_COMMIT_PAUSES = RetryPolicy(_COMMIT_PAUSE_SECONDS, _COMMIT_PAUSE_SECONDS)
_TRANSIENT = (RetriableError, AbortableError, UnknownOutcomeError)


class GroupMemberOwner(CommittingOwner):
    """The owner in a group: the slots are members, and the leader's assignment says which partitions they own.

    Args:
        options: Of the query.
        policy: Its commit policy.
        subscription: The topics or partitions that the members subscribe to.
        group: From `group_settings`.
        positions: The query's positions; None: it has no checkpoint.
        siblings: Where to meet the other reads of this driver and group; None: nowhere.
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
        super().__init__(policy, positions or Positions())
        self._group = group
        self._join_seconds = (group.rebalance_timeout_ms + _JOIN_MARGIN_MS) / 1000
        self._all_copies = options.redundant_emit == "all"
        self._assignment: GroupAssignment | None = None
        self._owned = OwnedPartitions({})
        self._stops = options.group_on_lost == "stop"
        self._membership = _membership_of(options, subscription, group, siblings)
        self._pace = Pace()
        self._settings = options.settings
        # Also where tasks or the sink commit: a commit of where reading starts, handled after one of theirs, would set
        # the group back.
        self._transactional = policy.driver_id is not None and options.commit_transactional is not False
        self._commit_transactional = options.commit_transactional
        self._coordinator_seconds = coordinator_seconds(options)
        self._committer: TransactionalCommitter | None = None
        # The join since which the group's offsets were compared; see `OwnedPartitions.joins`.
        self._compared_join = 0
        self._joined = False
        self._finished: Mapping[TopicPartition, int] = {}
        self._late = LateCommits(self._settings.seconds("request.timeout.ms", 30_000))

    def rebalance_paused(self) -> AbstractContextManager[None]:
        """Return a block in which the slots rejoin only by its own calls; see `ClassicMembership.rebalance_paused`."""
        return self._membership.rebalance_paused()

    def batch_planned(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> None:
        """Measure how fast the query reads, from this micro-batch to the next call of `commit_and_rejoin`.

        The slots claim the partitions that it reads, should they have to rejoin before it is finished.
        """
        self._pace = self._pace.planned(time.monotonic(), starts, ends, latest)
        self._positions.add_in_flight({tp: end for tp, end in ends.items() if end > starts[tp]})
        self._membership.set_batch_in_flight(BatchInFlight(self._positions.in_flight))

    def tasks_made(self, ends: Mapping[TopicPartition, int]) -> None:
        """Let the slots rejoin only if that does not invalidate credentials with which tasks or the sink commit."""
        self._positions.add_in_flight(ends)
        self._membership.set_batch_in_flight(BatchInFlight(self._positions.in_flight, self._policy.right))

    def _nothing_in_flight(self) -> None:
        self._positions.clear_in_flight()
        self._membership.set_batch_in_flight(BatchInFlight())

    def commit_and_rejoin(self, finished: Mapping[TopicPartition, int]) -> OwnedPartitions:
        """Commit `finished`, rejoin the group if a rebalance is due, and return what the slots own now.

        Members rejoin in the calls of the readers between two micro-batches. If another read of this driver waits for
        them, they have rejoined before, and have claimed the partitions of the micro-batch that is committed here.

        Raises:
            FencedError: Another process uses a slot's instance id, or the group has removed the slots and
                `group.on.lost` is `stop`.
        """
        self._pace = self._pace.finished(time.monotonic())
        self._membership.record_throughput(self._pace.speed, self._pace.growth.rates)
        self.join()
        lost = self._membership.lost()
        if lost is not None:
            self._rejoin_after(lost)
        committed = self._commit_finished(finished)
        if not committed and self._membership.rebalance_needed() is not None:
            self._retry_commit_before_rejoin(finished)
        reason = self._membership.rebalance_needed()
        self._repair_set_back(finished, now=reason is not None)
        if committed or reason is not None:
            self._nothing_in_flight()
        if reason is not None:
            log.info("rejoin group=%s reason=%r", self._group.group, reason)
            self._wait_in(self._membership.rejoin)
        return self.owned()

    def still_owned(self) -> bool:
        """Return whether the slots are still members, as far as this process knows."""
        return self._membership.lost() is None

    def ask(self) -> None:
        """Ask the coordinator whether the slots are still members."""
        self._membership.ask()

    def rebalance_due(self) -> bool:
        """Return whether the slots have to rejoin; raises as `commit_and_rejoin`."""
        return self._membership.lost() is not None or self._membership.rebalance_needed() is not None

    def join(self) -> None:
        """Join with all slots, unless they have joined before."""
        if not self._joined:
            self._wait_in(self._membership.join)
            self._joined = True

    def _wait_in(self, enter: Callable[[float], object]) -> None:
        """Join or rejoin, however long the other members take.

        The group waits for each member for the longest rebalance timeout of all members, which is not known here.
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
        log.warning("rejoin group=%s reason=%r: nothing is committed until then", self._group.group, lost)
        self._nothing_in_flight()
        self._wait_in(self._membership.rejoin)

    def owned(self) -> OwnedPartitions:
        """Return what the slots own in the present generation."""
        assignment = self._membership.assignment
        if assignment is not self._assignment:
            joined = owned_by(assignment, all_copies=self._all_copies)
            self._assignment, self._owned = assignment, replace(joined, joins=self._owned.joins + 1)
            self._late.forget()
            # In each generation anew: another member may have owned the id in between. The id is taken in the
            # background.
            commits = [tp for tp in (*self._owned.slots, *assignment.held) if self._commits_of(tp)]
            self._close_committer()
            self._committer = (
                TransactionalCommitter(
                    self._settings, self._transactional_id(commits), coordinator_seconds=self._coordinator_seconds
                )
                if self._transactional and commits
                else None
            )
        return self._owned

    def _transactional_id(self, partitions: Collection[TopicPartition]) -> str:
        return f"{transactional_id_of(self._group.group, partitions)}{self._policy.driver_id}"

    def _close_committer(self) -> None:
        if self._committer is not None:
            self._committer.close()

    def _commits_of(self, tp: TopicPartition) -> bool:
        return self.owned().commits(tp) or tp in self._membership.assignment.held

    def finish(self, finished: Mapping[TopicPartition, int]) -> None:
        """Commit what the group does not have yet; all partitions in one transaction with `commit.transactional`.

        Members that the group has removed commit nothing. Other members own their partitions then, and read again what
        was read since the last commit (at least once).
        """
        self._commit_finished(finished)
        self._repair_set_back(finished, now=True)

    def _commit_finished(self, finished: Mapping[TopicPartition, int]) -> bool:
        """Commit what the group does not have yet; return False if another try may commit it."""
        try:
            offsets = self._not_committed(finished)
            began = time.monotonic()
            committed = self._commit_existing(offsets)
        except FencedError as error:
            self._count_failure()
            if error.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            self._rejoin_after(f"its commit was refused ({error})")
            return True
        except InvalidConfigurationError:
            raise
        except KafkaGroupError as error:
            self._count_failure()
            log.warning("commit group=%s failed, the next micro-batch tries again: %s", self._group.group, error)
            return False
        if committed:
            self._count_commit(began)
            failpoint("offsets-committed")
        self._positions.as_committed(committed)
        return True

    def _commit_existing(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Commit these offsets, except for deleted topics, which the group refuses; return what is committed."""
        if not offsets:
            return {}
        try:
            self.commit(offsets)
            return offsets
        except UnknownTopicError as error:
            log.warning("commit group=%s by topic: %s", self._group.group, error)
        committed: dict[TopicPartition, int] = {}
        for topic in {tp.topic for tp in offsets}:
            of_topic = {tp: offset for tp, offset in offsets.items() if tp.topic == topic}
            try:
                self.commit(of_topic)
                committed |= of_topic
            except UnknownTopicError:
                log.warning("commit group=%s topic=%s left out: the topic does not exist", self._group.group, topic)
        return committed

    def _retry_commit_before_rejoin(self, finished: Mapping[TopicPartition, int]) -> None:
        """Try again to commit, for half of the rebalance timeout: after the rebalance others would read it again.

        Until then the coordinator takes commits of the old generation.
        """
        deadline = Deadline(self._group.rebalance_timeout_ms / 2000)
        while not self._commit_finished(finished) and not deadline.over:
            time.sleep(_COMMIT_PAUSE_SECONDS)

    def _not_committed(self, finished: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the part of `finished` that the driver has to commit."""
        due = self._policy.before_plan(finished) if self._joined else {}
        missing = self._positions.missing({tp: end for tp, end in due.items() if self._commits_of(tp)})
        if not missing:
            return {}
        joins = self.owned().joins
        if joins != self._compared_join:
            missing = self._positions.not_behind(missing, self.committed(sorted(missing)))
            self._compared_join = joins
        return missing

    def commit(self, offsets: Mapping[TopicPartition, int], *, has_looked: bool = True) -> None:
        """Commit these offsets as the group's; arguments as in `PartitionOwner`.

        Raises:
            FencedError: The members are no longer the group's.
            UnknownTopicError: A topic was deleted, or nobody `has_looked`; nothing is committed.
            KafkaGroupError: Any other category.
        """
        lost = self._membership.lost()
        if lost is not None:
            raise FencedError(
                f"This member has lost its place in group {self._group.group}: {lost}. Nothing was committed; whoever "
                "owns the partitions now reads from the committed offsets.",
                code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
        owned, assignment = self.owned(), self._membership.assignment
        slot_of = {**assignment.held, **owned.slots}
        if gone := sorted(offsets.keys() - slot_of.keys()):
            raise FencedError(
                f"Group {self._group.group} has assigned {format_partitions(gone)} to another member, which "
                "reads the records again. Nothing was committed.",
                code=ErrorCode.ILLEGAL_GENERATION,
            )
        marked = self._positions.with_notes(offsets)
        by_slot: dict[int, dict[TopicPartition, CommitOffset]] = {}
        for tp, entry in marked.items():
            by_slot.setdefault(slot_of[tp], {})[tp] = entry
        while True:
            used = self._membership.credentials
            try:
                self._commit_as(used, marked, by_slot, has_looked=has_looked)
                return
            except FencedError:
                if not self._membership.ask_for_newer_credentials(used):
                    raise

    def _commit_as(
        self,
        slots: Sequence[SlotCredentials],
        offsets: Mapping[TopicPartition, CommitOffset],
        by_slot: Mapping[int, Mapping[TopicPartition, CommitOffset]],
        *,
        has_looked: bool,
    ) -> None:
        if self._committer is not None:
            # In a classic group the coordinator checks that a member of this generation commits, not that it owns each
            # partition.
            parts = [(slots[number], part) for number, part in sorted(by_slot.items())]
            try:
                self._committer.commit_as(
                    parts if slots[0].per_member_epoch else [(slots[0], offsets)], has_looked=has_looked
                )
                return
            except InvalidConfigurationError as error:
                if not commits_plainly_after(error, self._group.group, self._commit_transactional):
                    raise
            self._close_committer()
            self._committer, self._transactional = None, False
        if not has_looked:
            check_one_topic(offsets)
        self._late.add(offsets, time.monotonic())
        self._membership.commit(by_slot, has_looked=has_looked)

    def _repair_set_back(self, finished: Mapping[TopicPartition, int], *, now: bool) -> None:
        """Commit again where a commit without a transaction was handled late, and has set the group back.

        The members' generation is still that of both, and what anybody else has committed is left alone.
        """
        if self._transactional or not self._joined:
            return
        self.owned()
        at = time.monotonic()
        if finished != self._finished and (late := self._policy.may_come_late(finished)):
            self._late.add(self._positions.with_notes(late), at)
        self._finished = finished
        partitions = [tp for tp in self._late.due(math.inf if now else at) if self._commits_of(tp)]
        if not partitions:
            return
        try:
            again = self._late.set_back(self._membership.committed_entries(partitions, stable=False))
            if again:
                log.warning(
                    "group=%s was set back in %s by a late commit: it is committed again",
                    self._group.group,
                    format_partitions(sorted(again)),
                )
                self.commit(again)
            self._late.looked(at)
        except KafkaGroupError as error:
            log.warning("looking for late commits group=%s failed, it is tried again: %s", self._group.group, error)

    def rewind_committed(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back where this query commits; see `PartitionOwner.rewind_committed`."""
        super().rewind_committed({tp: start for tp, start in starts.items() if self.owned().commits(tp)})

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit starting offsets; see `PartitionOwner`."""
        # Where all copies of a partition emit rows, a committed offset would be that of one copy only.
        if not self._all_copies:
            super().remember(starts)

    def _commit_patiently(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as `commit` does; a coordinator that is away or loads the group is waited for.

        Raises:
            SlotsRemovedError: The group has removed the slots, and they join again when the trigger begins again.
        """
        deadline = Deadline(self._group.coordinator_timeout_ms / 1000)
        try:
            retry(lambda: self.commit(offsets), _COMMIT_PAUSES, on=_TRANSIENT, deadline=deadline, again=_is_transient)
        except FencedError as error:
            if self._stops or error.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            self.ask()
            raise SlotsRemovedError(str(error)) from error
        self._positions.as_committed(offsets)

    def _entries(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommitOffset]:
        return self._membership.committed_entries(partitions)

    def credentials(self, slot: int) -> SlotCredentials:
        """Return the slot's credentials; a replayed batch may have had more slots than there are now."""
        self.join()
        slots = self._membership.credentials
        return replace(slots[slot % len(slots)], right=self._policy.right_id)

    def take_events(self) -> OwnerEvents:
        """Return the driver's commits and the slots' rebalances since the last call."""
        return replace(super().take_events(), rebalances=self._membership.take_rebalances())

    def leave(self) -> None:
        """Leave the group at once, also with instance ids of the user's."""
        self._membership.leave()

    def detach(self, kept: Collection[int]) -> None:
        """Stop acting for the slots that are kept, which another process resumes; the others leave the group.

        Only a batch does so, and its slots are members of the classic protocol.
        """
        self._membership.detach(kept)

    def close(self) -> None:
        """Leave the group. With an instance id of the user's the slots stay members and wait for a restart."""
        self._close_committer()
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


def _is_transient(error: Exception, _: int, __: float) -> bool:
    log.info("commit failed and is tried again: %s", error)
    return not isinstance(error, UnknownTopicError)


def owned_by(assignment: GroupAssignment, *, all_copies: bool) -> OwnedPartitions:
    """Return the partitions of which the slots have the first copy, or with `all_copies` any copy."""
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
