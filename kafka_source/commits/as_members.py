"""The offsets of a group whose members are a query's slots: the driver commits as these members.

Before its first commit in a generation, the driver fetches the group's offsets, because other members may have
committed higher offsets or rewound the group. If a late commit without a transaction has set the group back, the driver
commits again (`late_commits`).
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from assignors.model import TopicPartition
from kafka_source.commits.offsets import KeptOffsets, ReadPositions
from kafka_source.commits.policy import CommitPolicy
from kafka_source.error_codes import ErrorCode
from kafka_source.errors import (
    AbortableError,
    FencedError,
    InvalidConfigurationError,
    RefreshRetriableError,
    RetriableError,
    UnknownOutcomeError,
    UnknownTopicError,
)
from kafka_source.group.membership import Membership
from kafka_source.group.model import OwnedPartitions
from kafka_source.kafka_client import Deadline
from kafka_source.model.commits import CommitOffset, check_one_topic
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.partition_runs import format_partitions
from kafka_source.options import ReadOptions
from kafka_source.runtime.retry import RetryPolicy, retry
from kafka_source.transactions.offset_committer import (
    TransactionalCommitter,
    commits_plainly_after,
    coordinator_seconds,
    transactional_id_of,
)

log = logging.getLogger(__name__)

_COMMIT_PAUSES = RetryPolicy(1.0, 1.0)
_TRANSIENT = (RetriableError, AbortableError, UnknownOutcomeError)


class SlotsRemovedError(RefreshRetriableError):
    """The group has removed the query's slots; the trigger begins again in the generation that the slots join next."""


class AsMembers(KeptOffsets):
    """The offsets of a query in a group.

    Args:
        options: The query's options.
        policy: The query's commit policy.
        known: The positions of the query's partitions.
        members: The query's members.
        owned: Returns the query's partitions in the current generation.
    """

    def __init__(
        self,
        options: ReadOptions,
        policy: CommitPolicy,
        known: ReadPositions,
        members: Membership,
        owned: Callable[[], OwnedPartitions],
    ) -> None:
        super().__init__(options, policy, known)
        self._members, self._owned = members, owned
        self._all_copies = options.redundant_emit == "all"
        self._stops = options.group_on_lost == "stop"
        self._settings = options.settings
        self._patience = options.coordinator_timeout_ms / 1000
        # This is set even if tasks or the sink commit, because a late commit of starting offsets would set the group
        # back.
        self._transactional = policy.driver_id is not None and options.commit_transactional is not False
        self._commit_transactional = options.commit_transactional
        self._coordinator_seconds = coordinator_seconds(options)
        self._committer: TransactionalCommitter | None = None
        # The join after which the group's offsets were last compared; see `OwnedPartitions.joins`.
        self._compared_join = 0
        self._finished: Mapping[TopicPartition, int] = {}

    def begin_generation(self) -> None:
        """Commit in a new generation from now on."""
        # Take the transactional id in each generation, because another member may take the id between two generations.
        commits = [tp for tp in (*self._owned().slots, *self._members.assignment.held) if self._commits_of(tp)]
        self.close()
        self._committer = (
            TransactionalCommitter(
                self._settings, self._transactional_id(commits), coordinator_seconds=self._coordinator_seconds
            )
            if self._transactional and commits
            else None
        )

    def commit(self, offsets: Mapping[TopicPartition, int], *, has_looked: bool = True) -> None:
        """Commit these offsets; arguments as in `Offsets`.

        Raises:
            FencedError: The group has removed the members.
            UnknownTopicError: A topic was deleted, or the caller has not compared the topics; nothing is committed.
            KafkaGroupError: The commit has failed for another reason.
        """
        lost = self._members.lost()
        if lost is not None:
            raise lost_place(self._group, lost)
        owned, assignment = self._owned(), self._members.assignment
        slot_of = {**assignment.held, **owned.slots}
        if gone := sorted(offsets.keys() - slot_of.keys()):
            raise FencedError(
                f"Group {self._group} has assigned {format_partitions(gone)} to another member, which "
                "reads the records again. Nothing was committed.",
                code=ErrorCode.ILLEGAL_GENERATION,
            )
        marked = self._known.with_notes(offsets)
        by_slot: dict[int, dict[TopicPartition, CommitOffset]] = {}
        for tp, entry in marked.items():
            by_slot.setdefault(slot_of[tp], {})[tp] = entry
        while True:
            used = self._members.credentials
            try:
                self._commit_as(used, marked, by_slot, has_looked=has_looked)
                return
            except FencedError:
                if not self._members.ask_for_newer_credentials(used):
                    raise

    def finish(self, finished: Mapping[TopicPartition, int]) -> bool:
        """Commit the finished offsets; see `Offsets`.

        With `commit.transactional` one transaction has all partitions. Members that the group has removed commit
        nothing; the new owners of their partitions read again from the last commit on (at least once).
        """
        has_committed = super().finish(finished)
        if not self._transactional and finished != self._finished and (late := self._policy.may_come_late(finished)):
            self._late.add(self._known.with_notes(late), time.monotonic())
        self._finished = finished
        return has_committed

    def rewind(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set the group's offsets back in the partitions in which this query commits; see `Offsets`."""
        super().rewind({tp: start for tp, start in starts.items() if self._owned().commits(tp)})

    def remember(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit starting offsets; see `Offsets`."""
        # If all copies of a partition emit rows, a committed offset would describe one copy only.
        if not self._all_copies:
            super().remember(starts)

    def close(self) -> None:
        """Stop taking the transactional id."""
        if self._committer is not None:
            self._committer.close()

    def _send(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        # The group refuses offsets of deleted topics.
        try:
            self.commit(offsets)
            return offsets
        except UnknownTopicError as error:
            log.warning("commit group=%s repeated for each topic: %s", self._group, error)
        committed: dict[TopicPartition, int] = {}
        for topic in {tp.topic for tp in offsets}:
            of_topic = {tp: offset for tp, offset in offsets.items() if tp.topic == topic}
            try:
                self.commit(of_topic)
                committed |= of_topic
            except UnknownTopicError:
                log.warning("commit group=%s topic=%s left out: the topic does not exist", self._group, topic)
        return committed

    def _committable(self, due: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {tp: end for tp, end in due.items() if self._commits_of(tp)}

    def _compared(self, missing: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        joins = self._owned().joins
        if joins != self._compared_join:
            missing = self._not_behind(missing, missing)
            self._compared_join = joins
        return missing

    def _commit_as(
        self,
        slots: Sequence[SlotCredentials],
        offsets: Mapping[TopicPartition, CommitOffset],
        by_slot: Mapping[int, Mapping[TopicPartition, CommitOffset]],
        *,
        has_looked: bool,
    ) -> None:
        if self._committer is not None:
            # In a classic group the coordinator checks the member's generation, not whether it owns each partition.
            parts = [(slots[number], part) for number, part in sorted(by_slot.items())]
            try:
                self._committer.commit_as(
                    parts if slots[0].per_member_epoch else [(slots[0], offsets)], has_looked=has_looked
                )
                return
            except InvalidConfigurationError as error:
                if not commits_plainly_after(error, self._group, self._commit_transactional):
                    raise
            self.close()
            self._committer, self._transactional = None, False
        if not has_looked:
            check_one_topic(offsets)
        try:
            self._members.commit(by_slot, has_looked=has_looked)
        finally:
            # A process may be suspended before the request, so the time begins with its end.
            self._late.add(offsets, time.monotonic())

    def _send_patiently(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as `commit` does, and wait for a coordinator that is unreachable or is loading the group.

        Raises:
            SlotsRemovedError: The group has removed the slots, which join again in the trigger's next attempt.
        """
        deadline = Deadline(self._patience)
        try:
            retry(lambda: self.commit(offsets), _COMMIT_PAUSES, on=_TRANSIENT, deadline=deadline, again=_is_transient)
        except FencedError as error:
            if self._stops or error.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            self._members.ask()
            raise SlotsRemovedError(str(error)) from error

    def _fetch(self, partitions: list[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, CommitOffset]:
        return self._members.committed_entries(partitions, stable=stable)

    def _transactional_id(self, partitions: Collection[TopicPartition]) -> str:
        return f"{transactional_id_of(self._group, partitions)}{self._policy.driver_id}"

    def _commits_of(self, tp: TopicPartition) -> bool:
        return self._owned().commits(tp) or tp in self._members.assignment.held


def lost_place(group: str | None, why: str = "the group has removed it") -> FencedError:
    """Return the error of a member that is no longer in the group."""
    return FencedError(
        f"This member is no longer in group {group}: {why}. Nothing was committed; the current owners of the "
        "partitions read from the committed offsets.",
        code=ErrorCode.UNKNOWN_MEMBER_ID,
    )


def _is_transient(error: Exception, _: int, __: float) -> bool:
    log.info("commit failed, retrying: %s", error)
    return not isinstance(error, UnknownTopicError)
