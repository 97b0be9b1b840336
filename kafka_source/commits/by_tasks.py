"""Each task commits its ranges as its slot, after its last record (`commit=task`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Protocol
from uuid import uuid4

from assignors.model import TopicPartition
from kafka_source.commits.attached import AttachedTask, CommitRead, Sessions, attached
from kafka_source.commits.policy import CommitPolicy, Replay, StreamGroup, Task, ends_of
from kafka_source.commits.rights import Renewal, Right, SlotSession
from kafka_source.errors import InvalidConfigurationError
from kafka_source.group.requests import fetch_entries
from kafka_source.model.commits import CommitOffset, check_one_topic, with_notes
from kafka_source.model.stream_offset import PlannedInput, Range, Span, StreamOffset
from kafka_source.options import ReadOptions
from kafka_source.runtime.failpoints import failpoint
from kafka_source.transactions.offset_committer import (
    TransactionalCommitter,
    commits_plainly_after,
    coordinator_seconds,
    transactional_id_of,
    was_without_transactions,
)


class ByTasks(CommitPolicy):
    """Each task commits the ends of its ranges."""

    keeps = signs = True
    driver_id = "-driver"
    joins_slots = False

    @cached_property
    def right_id(self) -> str:
        """The id by which a batch's keeper recognises the batch's commits, even if the right is not renewed."""
        return uuid4().hex

    @cached_property
    def right(self) -> Right:
        """The tasks' right to commit a batch."""
        return Right(self.right_id if self._renews else None)

    @property
    def _renews(self) -> bool:
        return self._options.group_on_lost != "stop"

    def may_come_late(self, finished: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the whole batch, because an attempt of a task may outlive its job."""
        return finished

    def replay(self, planned: list[PlannedInput], batch: StreamOffset, group: StreamGroup) -> Replay:
        """Return the ranges of a replay, and the partitions in which its tasks must not commit.

        Tasks must not commit in a partition that was rewound since the plan, or that another member owns or has read.
        The coordinator would accept a commit in another member's partition, because it only checks the generation.
        """
        owned = group.rejoined()
        planned = split_by_slots(planned, owned.slots, owned.count)
        ends = ends_of(planned)
        committed = group.committed(sorted(ends))
        targets = {tp: committed[tp].offset for tp in group.rewound(committed)}
        read_on = {tp for tp, entry in committed.items() if entry.offset > ends[tp]}
        uncommitted = frozenset({*targets, *read_on, *(ends.keys() - owned.slots.keys())})
        return Replay(before_rewinds(planned, targets), uncommitted)

    @contextmanager
    def in_task(self, tasks: Sequence[Task]) -> Iterator[AttachedTask]:
        """Act as the slot of one task, and commit the task's ranges when they are read."""
        (task,) = tasks
        slots = [] if task.credentials is None else [task.credentials]
        renewal = renewal_of(task) if self._renews else None
        with attached(self._options, slots, commits=True, renewal=renewal) as sessions:
            yield _CommittingTask(sessions, task, self._options)


def committed_ranges(task: Task) -> list[Range]:
    """Return the ranges whose ends a task commits: of redundant copies of a partition only the primary (replica 0)."""
    return [r for r in task.ranges if r.replica == 0 and r.topic_partition not in task.uncommitted]


def renewal_of(task: Task) -> Renewal | None:
    """Return how a task gets new credentials if its slot is lost; None: the task ends."""
    ranges = {r.topic_partition: (r.start, r.end) for r in committed_ranges(task)}
    if task.credentials is None or task.credentials.right is None or not ranges:
        return None
    return Renewal(task.credentials.group, task.credentials.right, ranges, task.stream, task.rewinds)


class _Commit(Protocol):
    """Commits offsets; raises UnknownTopicError if the topics may differ from the plan's topics."""

    def __call__(self, ends: Mapping[TopicPartition, CommitOffset], *, has_looked: bool) -> None: ...


class _CommittingTask(AttachedTask):
    def __init__(self, sessions: Sessions, task: Task, options: ReadOptions) -> None:
        super().__init__(sessions)
        self._task, self._options = task, options
        self._ranges = committed_ranges(task)

    def commit(self, existing: Callable[[StreamOffset, CommitRead], None]) -> None:
        """Commit the ends of the task's ranges, except in topics that were deleted or created again since the plan.

        Raises:
            DataLossError: A topic was deleted or created again, and `failOnDataLoss` is set.
        """
        spans = {r.topic_partition: Span(r.start, r.end, 0) for r in self._ranges}
        for session in self._sessions() if spans else ():
            existing(
                StreamOffset(spans, topics=self._task.topics), partial(self._commit_ends, self._committer(session))
            )
            failpoint("task-committed")

    def _commit_ends(self, commit: _Commit, read: StreamOffset, *, has_looked: bool) -> None:
        task, epochs = self._task, {r.topic_partition: r.epoch for r in self._ranges}
        # The offset's metadata have the id of the stream or, in a batch, the id of the right.
        by = task.stream if task.stream is not None or task.credentials is None else task.credentials.right
        commit(with_notes(read.ends, task.rewinds, by, epochs, task.topics, task.cluster), has_looked=has_looked)

    def _committer(self, session: SlotSession) -> _Commit:
        """Return the function that commits as this slot."""
        patience = self._options.coordinator_timeout_ms / 1000
        transactional = self._options.commit_transactional

        def commit_plainly(ends: Mapping[TopicPartition, CommitOffset], *, has_looked: bool) -> None:
            if not has_looked:
                check_one_topic(ends)
            session.commit(ends, patience, has_looked=has_looked)

        if transactional is False or (transactional is None and was_without_transactions(session.credentials.group)):
            return commit_plainly
        # All attempts, and all batches of a generation, use one id, so that their commits have an order. In a replay
        # the slot may read partitions that it does not own.
        owned = session.credentials.partitions or [r.topic_partition for r in self._task.ranges]
        name = transactional_id_of(session.credentials.group, owned)
        committer = TransactionalCommitter(
            self._options.settings,
            name,
            timeout=patience,
            coordinator_seconds=coordinator_seconds(self._options),
            attempt=fetch_entries,
        )

        def commit(ends: Mapping[TopicPartition, CommitOffset], *, has_looked: bool) -> None:
            try:
                session.commit_by(partial(committer.commit_as, has_looked=has_looked), ends, patience)
            except InvalidConfigurationError as error:
                if not commits_plainly_after(error, session.credentials.group, transactional):
                    raise
                commit_plainly(ends, has_looked=has_looked)

        return commit


def split_by_slots(
    planned: Iterable[PlannedInput], owned: Mapping[TopicPartition, int], slots: int
) -> list[PlannedInput]:
    """Return the inputs of a batch whose tasks commit: an input for each current slot, with one range per partition.

    Several tasks that commit as one slot would have to take turns with the slot's transactional id. The batch may have
    been planned with other slots, with pieces of partitions, or without a group.

    Args:
        planned: The batch's inputs, as its end offset defines them.
        owned: The partitions that the query owns now, with their slots.
        slots: The current number of slots.
    """
    found: dict[int, dict[tuple[TopicPartition, int], Range]] = {}
    for slot, ranges in planned:
        for r in ranges:
            owner = (owned.get(r.topic_partition, slot) if r.replica == 0 else slot) % slots
            of_slot, copy = found.setdefault(owner, {}), (r.topic_partition, r.replica)
            before = of_slot.get(copy, r)
            of_slot[copy] = r._replace(start=min(r.start, before.start), end=max(r.end, before.end))
    return [PlannedInput(slot, tuple(of_slot.values())) for slot, of_slot in sorted(found.items())]


def before_rewinds(planned: Iterable[PlannedInput], targets: Mapping[TopicPartition, int]) -> list[PlannedInput]:
    """Return the ranges of a batch whose tasks commit, cut at the targets of rewinds since the plan.

    The next batch begins at the target. Records before the target are in no output, even if the tasks have committed.

    Args:
        planned: The batch.
        targets: The group's offsets in the rewound partitions.
    """

    def before(r: Range) -> Range:
        return r._replace(end=min(r.end, max(r.start, targets.get(r.topic_partition, r.end))))

    cut = (one._replace(ranges=tuple(c for r in one.ranges if (c := before(r)).size)) for one in planned)
    return [one for one in cut if one.ranges]
