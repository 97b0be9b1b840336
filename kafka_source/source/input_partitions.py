"""Turn a plan into Spark's input partitions: tasks with credentials and quota tickets, and the hand-off to the sink."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from assignors.model import TopicPartition
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.identity import ids_of_ranges
from kafka_source.quota.bounds import Ticket
from kafka_source.source.plan import PlannedInput, bundles
from kafka_source.source.read_task import ReadTask, TaskBundle
from kafka_source.source.sink_commit_replay import handoffs_of


@dataclass(frozen=True, slots=True)
class TaskFactory:
    """Make the read tasks of one batch.

    Attributes:
        credentials: Returns the credentials of a slot; None without a group.
        cluster: The id of the cluster that is read; None: unknown.
        topics: The ids of the topics that are read, as far as they have one.
        rewinds: The rewind of the group that each partition follows; without partitions that were never rewound.
        stream: The id of the stream; None in a batch.
        uncommitted: The partitions in which no task commits.
    """

    credentials: Callable[[int], SlotCredentials | None]
    cluster: str | None
    topics: Mapping[str, str]
    rewinds: Mapping[TopicPartition, str] = field(default_factory=dict)
    stream: str | None = None
    uncommitted: frozenset[TopicPartition] = frozenset()

    def task(self, planned: PlannedInput) -> ReadTask:
        """Return the task that reads `planned`, without a quota."""
        topics = ids_of_ranges(planned.ranges, self.topics)
        # By the task's own partitions: a walk over those of the query, for each task, costs slots times partitions.
        rewinds = {tp: self.rewinds[tp] for r in planned.ranges if (tp := r.topic_partition) in self.rewinds}
        return ReadTask(
            planned.ranges,
            self.credentials(planned.slot),
            cluster=self.cluster,
            topics=topics,
            rewinds=rewinds,
            stream=self.stream,
            uncommitted=self.uncommitted & {r.topic_partition for r in planned.ranges},
        )


def bundle_tasks(
    planned: Sequence[PlannedInput],
    tasks: TaskFactory,
    *,
    min_offsets: int,
    ticket: Callable[[int, float], Ticket] | None,
) -> list[TaskBundle]:
    """Return the input partitions of a micro-batch.

    Args:
        planned: What the batch reads.
        tasks: Makes the tasks.
        min_offsets: Tasks with fewer offsets share input partitions, see `plan.bundles`.
        ticket: Returns a task's part of the quota from its number and its share of the batch; None: no quota. The
            number is the slot's, or without a group the task's own.
    """
    total = sum(one.size for one in planned)
    numbers = itertools.count()

    def with_ticket(one: PlannedInput) -> ReadTask:
        task, number = tasks.task(one), next(numbers)
        if ticket is None:
            return task
        return replace(task, ticket=ticket(one.slot if one.slot >= 0 else number, one.size / max(1, total)))

    return [TaskBundle(tuple(with_ticket(one) for one in bundle)) for bundle in bundles(planned, min_offsets)]


def add_handoff(
    found: Sequence[TaskBundle], planned: Sequence[PlannedInput], stream: str, topic_ids: Mapping[str, str]
) -> list[TaskBundle]:
    """Let the first bundle tell the sink what the whole batch reads (`commit=sink`).

    Args:
        found: The bundles of the batch.
        planned: What they read.
        stream: The stream's id.
        topic_ids: The ids of the topics that the batch was planned with.

    Raises:
        ValueError: The tasks have no credentials of a group, whose offsets the sink could commit.
    """
    if not found:
        return []
    first, *others = found
    members = {task.credentials.slot: task.credentials for one in found for task in one.tasks if task.credentials}
    if not members:
        raise ValueError("commit=sink needs tasks of a group's members")
    return [replace(first, handoffs=handoffs_of(planned, members, stream, topic_ids)), *others]
