"""Commit policies: which process commits the offsets of a read, and the consequences for plans, replays and tasks.

A read has one policy, from `choose`. Callers of a policy know neither the option `commit` nor the other policies.

| | `by_driver` | `by_tasks` | `by_sink` | `by_program` |
| --- | --- | --- | --- | --- |
| commits | the driver, before the next plan | each task, after its last record | the sink, in its decision | the \
caller |
| the right of a batch | | of its tasks | of its sink | |
| a replay reads | the plan | the plan, by the current slots | the decision, or from the group's offsets on | |

A new policy needs a file with a class, a line in the tables of `choose`, a word in `options/kinds.py`, and its refused
combinations in `options/combinations.py`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from assignors.model import TopicPartition
from kafka_source.commits.attached import AttachedTask, attached
from kafka_source.commits.handoff import Handoff
from kafka_source.commits.rights import Right
from kafka_source.group.model import OwnedPartitions
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials, representative_slots
from kafka_source.model.stream_offset import PlannedInput, Range, StreamOffset
from kafka_source.options import ReadOptions

Rule = Callable[[int | None, int | None], int | None]
"""Returns which offset counts, the query's own or its group's; None: unknown."""


Committed = Callable[[list[TopicPartition]], Mapping[TopicPartition, CommitOffset]]
"""Returns the committed offsets of a group."""


@dataclass(frozen=True)
class Task:
    """The ranges and the member of a task.

    Attributes:
        ranges: The ranges to read, at most one for each partition and replica.
        credentials: The slot's credentials from the driver or planner; None without a group.
        cluster: The id of the cluster in which the offsets are valid; None: unknown.
        topics: The known ids of the ranges' topics.
        rewinds: The id of the group's last rewind before the plan, by partition.
        stream: The id of the stream; None in a batch.
        uncommitted: The partitions in which the task must not commit; see `ByTasks.replay`.
    """

    ranges: tuple[Range, ...]
    credentials: SlotCredentials | None = None
    cluster: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    rewinds: Mapping[TopicPartition, str] = field(default_factory=dict)
    stream: str | None = None
    uncommitted: frozenset[TopicPartition] = frozenset()


class StreamGroup(Protocol):
    """The part of a stream's group that the stream's policy uses."""

    def rejoined(self) -> OwnedPartitions:
        """Rejoin if a rebalance is due, and return the stream's partitions of the current topics."""

    def committed(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, CommitOffset]:
        """Return the group's committed offsets."""

    def rewound(self, committed: Mapping[TopicPartition, CommitOffset]) -> Collection[TopicPartition]:
        """Return the partitions that were rewound since the stream's last batch."""


class Replay(NamedTuple):
    """The inputs of a replayed batch.

    Attributes:
        planned: The inputs.
        uncommitted: The partitions in which the batch's tasks must not commit.
    """

    planned: list[PlannedInput]
    uncommitted: frozenset[TopicPartition] = frozenset()


class CommitPolicy:
    """The policy of a read that commits nothing, such as a read without a group; the base of the other policies.

    Attributes:
        keeps: Whether the read keeps the group's offsets up to date. If so, the driver also commits starts and rewinds.
        signs: Whether commits carry the stream's id, so that a stream recognises its own commits.
        is_output: Whether the group's offsets match the output, from the policy's first batch on.
        driver_id: The suffix of the driver's transactional id; None: the driver commits without transactions.
        joins_slots: Whether one task may read for several slots.
    """

    keeps = False
    signs = False
    is_output = False
    driver_id: str | None = None
    joins_slots = True

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    # ---- in the driver

    @property
    def right_id(self) -> str | None:
        """The id in the credentials of the batches' tasks, see `Right`; None: no renewal."""
        return None

    @property
    def right(self) -> Right | None:
        """The right of the tasks or the sink to commit a batch; None: neither commits."""
        return None

    def before_plan(self, finished: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the finished offsets that the driver commits before it plans."""
        return {}

    def may_come_late(self, finished: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the finished offsets that a process may still commit after the next batch."""
        return {}

    def counts(self, start: StreamOffset) -> Rule:
        """Return the rule by which a query with this offset in its checkpoint continues."""
        return max_offset

    def keep_record(
        self, stream: str | None, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> None:
        """Keep the record for a replay of the stream's next batch, which reads these partitions.

        Args:
            stream: The stream's id.
            partitions: The partitions.
            topic_ids: The known ids of their topics.
        """

    def check_finished(self, batch: StreamOffset, committed: Committed, *, has_new: bool) -> None:
        """Check that a finished batch of this process was committed.

        Args:
            batch: The end offset of a batch with records.
            committed: Returns the group's committed offsets.
            has_new: Whether another batch is to be planned.

        Raises:
            InvalidConfigurationError: The batch was not committed, and another batch is to be planned.
        """

    @property
    def may_plan_empty(self) -> bool:
        """Whether a batch without records may be planned."""
        return True

    def replay(self, planned: list[PlannedInput], batch: StreamOffset, group: StreamGroup) -> Replay:
        """Return the ranges of a batch's replay.

        Args:
            planned: The batch's inputs, as its end offset defines them.
            batch: The end offset.
            group: The group.
        """
        return Replay(planned)

    def tasks_made(
        self,
        planned: Sequence[PlannedInput],
        members: Mapping[int, SlotCredentials],
        batch: StreamOffset,
        topic_ids: Mapping[str, str],
    ) -> tuple[Handoff, ...]:
        """Return the hand-offs that the first task of a batch publishes for the sink.

        Args:
            planned: The ranges of the tasks.
            members: The slots' credentials, by slot number.
            batch: The batch's end offset.
            topic_ids: The ids that the topics had when the batch was planned.
        """
        return ()

    # ---- in an executor

    @contextmanager
    def in_task(self, tasks: Sequence[Task]) -> Iterator[AttachedTask]:
        """Within the context, act as all slots whose ranges one Spark task reads; the slots attach at the same time.

        Raises:
            KafkaGroupError: See `attached`.
        """
        slots = representative_slots(task.credentials for task in tasks if task.credentials is not None)
        with attached(self._options, slots, is_output=self.is_output) as sessions:
            yield AttachedTask(sessions)


def max_offset(own: int | None, committed: int | None) -> int | None:
    """Return the larger of a query's position and the group's committed offset; None if both are unknown.

    Another application of the group may have read the partition while this query did not own it.
    """
    return max((offset for offset in (own, committed) if offset is not None), default=None)


def ends_of(planned: Iterable[PlannedInput]) -> dict[TopicPartition, int]:
    """Return the next offset after the planned ranges, by partition; a partition may have several ranges."""
    ends: dict[TopicPartition, int] = {}
    for one in planned:
        for r in one.ranges:
            if r.replica == 0:
                ends[r.topic_partition] = max(r.end, ends.get(r.topic_partition, 0))
    return ends
