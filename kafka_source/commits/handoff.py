"""Passes a micro-batch's offset ranges from the source to the exactly-once sink, which commits them (`commit=sink`).

Spark connects a source and a sink of a query by rows alone. The drivers of source and sink are different processes, and
the rows that the sink writes no longer have the source's offsets. But the tasks of source and sink know the query, run
and batch. So the first task of the source publishes all ranges of the batch, with their member, as committed offsets of
a separate group, `{group}-read-by-{query}`. The metadata of each offset holds the run and the batch. The sink's driver
collects the offsets of exactly its run and batch. In the transaction of the sink's decision, a mark replaces each range
that the driver has found. If a later batch finds unmarked ranges of another batch, a replaced task or a slow request
has published these ranges late. Late ranges may have overwritten the later batch's own ranges.

The same transaction records the decided ranges as offsets of `{group}-read-by-{stream}`: a source knows its stream, but
not its query. A replay reads exactly these ranges, independently of the group's offsets. The source writes a first
record when the query starts, and renews it. So a missing record is a lost record.

While the batch runs, a topic may be deleted and created again. The deleted topic's offsets are invalid in the new
topic. So the metadata also has the topic's id, and source and sink leave out offsets of another topic of the same name.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from assignors.model import TopicPartition
from kafka_source.commits.side_groups import READ_BY, beyond, within
from kafka_source.errors import (
    AuthenticationError,
    FencedError,
    InvalidConfigurationError,
    KafkaGroupError,
    UnknownTopicError,
)
from kafka_source.group.requests import commit_offsets, fetch_all_committed, fetch_by_ids, fetch_entries
from kafka_source.kafka_client import Deadline, KafkaClient, topic_id_of
from kafka_source.model.commits import RENEW_SECONDS, CommitOffset, is_of_other_topic, with_notes
from kafka_source.model.credentials import SlotCredentials
from kafka_source.model.identity import is_recreated
from kafka_source.transactions.offset_transaction import GroupOffsets

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.1
# Brokers' metadata lack a topic for a moment after it was created, and while its leaders change.
_DELETED_SECONDS = 5.0


class SparkTask(Protocol):
    """The part of Spark's TaskContext that is used here."""

    def getLocalProperty(self, key: str, /) -> str | None:  # noqa: N802 - Spark's name
        """Return a property that Spark has set for the task's job."""


@dataclass(frozen=True, slots=True)
class BatchOfRun:
    """A micro-batch in one run of a query, as Spark identifies it to tasks.

    Attributes:
        query: The query's id, the same after every restart.
        run: The id of this run; every start of the query is a new run.
        number: The batch's number.
    """

    query: str
    run: str
    number: int

    @staticmethod
    def of_task(task: SparkTask | None) -> "BatchOfRun":
        """Return the batch of a task. The caller passes the task, because `kafkagroup.arrow` runs without Spark.

        Raises:
            KafkaGroupError: This is no task of a streaming query.
        """
        local: Callable[[str], str | None] = task.getLocalProperty if task is not None else lambda _: None
        query, number = local("sql.streaming.queryId"), local("streaming.sql.batchId")
        if query is None or number is None:
            raise KafkaGroupError("Not running in a task of a streaming query: there is no query id and no batch id.")
        return BatchOfRun(query, local("spark.jobGroup.id") or "", int(number))


@dataclass(frozen=True, slots=True)
class Handoff:
    """The offset ranges that a member reads in one batch.

    Attributes:
        member: The credentials for the commit. A broker refuses the credentials of a replaced member.
        ranges: Start (included) and end (excluded) offset of each partition.
        stream: The stream's id, from its checkpoint.
        plan: The id of the batch in the checkpoint, see `by_sink.plan_id`.
        topic_ids: The ids of the topics, by name; brokers before 2.8 do not return ids.
        epochs: The known leader epochs of the ends (KIP-320), which are published with the offsets.
    """

    member: SlotCredentials
    ranges: Mapping[TopicPartition, tuple[int, int]]
    stream: str
    plan: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    def ends(self, rewinds: Mapping[TopicPartition, str], cluster: str | None) -> dict[TopicPartition, CommitOffset]:
        """Return the offsets to commit for the ends of the ranges, with the marks of these rewinds of the group."""
        ends = {tp: end for tp, (_, end) in self.ranges.items()}
        return with_notes(ends, rewinds, self.stream, self.epochs, self.topic_ids, cluster)

    def published_end_of(self, tp: TopicPartition, metadata: str) -> CommitOffset:
        """Return the offset to publish for the end of a partition's range."""
        end = beyond(self.ranges[tp][1])
        return CommitOffset(end, self.epochs.get(tp, -1), metadata, self.topic_ids.get(tp.topic))


@dataclass(frozen=True, slots=True)
class Published:
    """The hand-offs that the sources of a query have published for a batch.

    Attributes:
        handoffs: The batch's hand-offs, one for each member; empty if the batch has no new data.
        taken: The marks to commit with the batch's decision.
        committed: The offsets of the source's group in the partitions of `handoffs`.
        late: The topics for which only another batch has published ranges since the last decision; sorted.
    """

    handoffs: tuple[Handoff, ...]
    taken: GroupOffsets
    committed: Mapping[TopicPartition, CommitOffset]
    late: tuple[str, ...]


_TAKEN = "taken"
"""The metadata of an offset that a sink has marked."""


_T = TypeVar("_T", "Record", "Entry")


def _parse(kind: type[_T], metadata: str) -> _T:
    """Return a record or an entry; fields that a later version has appended are ignored."""
    return kind(*islice(json.loads(metadata), len(kind._fields)))


class Record(NamedTuple):
    """The metadata of a partition's entry in a record; the entry's offset is a range's end plus `BEYOND_ALL_LOGS`.

    Attributes:
        plan: See `Handoff`; empty before the first decision.
        start: The start of the range.
        partitions: The number of the topic's partitions that have a range in the decision.
    """

    plan: str
    start: int
    partitions: int


class Entry(NamedTuple):
    """The metadata of one published offset; the offset is the end of a range plus `BEYOND_ALL_LOGS`.

    Attributes:
        start: The start of the range.
        run: See `BatchOfRun`.
        number: See `BatchOfRun`.
        partitions: The number of the topic's partitions that the batch reads.
        topic_id: The topic's id; None if the brokers do not return the id.
        generation: The generation of the member that reads.
        member_id: The id of the member that reads.
        instance_id: The instance id of the member that reads.
        stream: The stream's id.
        plan: See `Handoff`.
        right: See `SlotCredentials`.
    """

    start: int
    run: str
    number: int
    partitions: int
    topic_id: str | None
    generation: int
    member_id: str
    instance_id: str | None
    stream: str
    plan: str
    right: str | None


async def publish(client: KafkaClient, batch: BatchOfRun, handoffs: Sequence[Handoff], deadline: Deadline) -> None:
    """Publish the ranges that all members read in a batch. A repetition changes nothing.

    A batch of thousands of partitions takes several commits. If only some commits succeed, the task fails, and
    `collect` finds fewer partitions than the entries name. Topics that were deleted or created again are left out.
    """
    no_member = SlotCredentials.without_membership(READ_BY.of(handoffs[0].member.group, batch.query))
    counts = Counter(tp.topic for handoff in handoffs for tp in handoff.ranges)
    ids = {tp.topic: handoff.topic_ids.get(tp.topic) for handoff in handoffs for tp in handoff.ranges}
    lost: dict[str, bool] | None = None
    while True:
        entries = {
            tp: handoff.published_end_of(
                tp,
                json.dumps(
                    Entry(
                        start,
                        batch.run,
                        batch.number,
                        counts[tp.topic],
                        ids[tp.topic],
                        handoff.member.generation,
                        handoff.member.member_id,
                        handoff.member.instance_id,
                        handoff.stream,
                        handoff.plan,
                        handoff.member.right,
                    )
                ),
            )
            for handoff in handoffs
            for tp, (start, _) in handoff.ranges.items()
            if tp.topic not in (lost or ())
        }
        try:
            if entries:
                await commit_offsets(
                    client, no_member, entries, deadline, fail_on_unknown_topic=True, has_looked=lost is not None
                )
            return
        except UnknownTopicError:
            # The topic was deleted, or was created a moment ago and the coordinator does not know it yet.
            if deadline.over:
                raise
            if lost is not None:
                await asyncio.sleep(_PAUSE_SECONDS)
            lost = await _lost_topics(client, ids, deadline)


async def collect(client: KafkaClient, group: str, batch: BatchOfRun, deadline: Deadline) -> Published | None:
    """Return the hand-offs of a batch's sources; None: no source has published a hand-off for this group and query.

    Topics that were deleted or created again are left out, because there is nothing to commit for them.

    Raises:
        FencedError: A part of a hand-off is missing.
        InvalidConfigurationError: Another program commits in the group of the hand-off.
    """
    no_member = SlotCredentials.without_membership(READ_BY.of(group, batch.query))
    published = await fetch_all_committed(client, no_member.group, deadline)
    if not published:
        return None
    own: dict[TopicPartition, Entry] = {}
    others: dict[TopicPartition, Entry] = {}
    for tp, offset in published.items():
        if offset.metadata == _TAKEN:
            continue
        try:
            entry = _parse(Entry, offset.metadata)
        except (TypeError, ValueError, RecursionError):
            raise InvalidConfigurationError(
                f"Group {no_member.group} has offset {offset.offset} of {tp.topic}-{tp.partition} with metadata that "
                f"no source has written, so another program commits there. No record of batch {batch.number} is "
                "visible. Stop that program, delete this group, and restart the query: its source publishes again."
            ) from None
        (own if (entry.run, entry.number) == (batch.run, batch.number) else others)[tp] = entry
    committed, lost = await _committed(client, group, others | own, deadline)
    if lost_own := sorted({tp.topic for tp in own}.intersection(lost)):
        log.warning("batch %d commits no offsets of %s: deleted or created again", batch.number, ", ".join(lost_own))
    # A task that read a topic before it was created again may have replaced ranges of the current topic.
    others = {tp: entry for tp, entry in others.items() if lost.get(tp.topic, True)}
    late = tuple(sorted({tp.topic for tp in others} - {tp.topic for tp in own}))
    own = {tp: entry for tp, entry in own.items() if tp.topic not in lost}
    _check_complete(batch, no_member.group, own)
    marks = {tp: CommitOffset(published[tp].offset, metadata=_TAKEN) for tp in own | others}
    return Published(
        _handoffs(group, {tp: (published[tp], entry) for tp, entry in own.items()}),
        GroupOffsets(no_member, marks),
        committed,
        late,
    )


def record_of(group: str, handoffs: Sequence[Handoff]) -> tuple[GroupOffsets, ...]:
    """Return each stream's record of a decision about these hand-offs, with one entry for each partition."""
    counts = Counter((handoff.stream, tp.topic) for handoff in handoffs for tp in handoff.ranges)
    entries: dict[str, dict[TopicPartition, CommitOffset]] = {}
    for handoff in handoffs:
        for tp, (start, end) in handoff.ranges.items():
            found = Record(handoff.plan, start, counts[handoff.stream, tp.topic])
            entries.setdefault(handoff.stream, {})[tp] = CommitOffset(beyond(end), metadata=json.dumps(found))
    return tuple(
        GroupOffsets(SlotCredentials.without_membership(READ_BY.of(group, stream)), of_stream)
        for stream, of_stream in entries.items()
    )


class DecisionRecord:
    """The record of the sink's last decision about a stream, as the source keeps and reads the record.

    Args:
        client: The client of the group's cluster.
        group: The source's `kafka.group.id`.
        seconds: The time limit of a call.
        clock: The time in seconds; only differences count.
    """

    def __init__(
        self, client: KafkaClient, group: str, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._group, self._seconds, self._clock = client, group, seconds, clock
        # The time of the last write, and the topics at that time, with their known ids.
        self._kept: tuple[float, dict[str, str | None]] | None = None

    def name(self, stream: str) -> str:
        """Return the name of the record's group."""
        return READ_BY.of(self._group, stream)

    def keep(self, stream: str, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]) -> None:
        """Write a stream's first record, or repeat the record before brokers discard it, or after its topics changed.

        With a topic, brokers delete the topic's part of the record.

        Args:
            stream: The stream's id.
            partitions: The partitions in which the first record may be written.
            topic_ids: The known ids of their topics.

        Raises:
            AuthenticationError: This user may not commit in the record's group.
            KafkaGroupError: The coordinator does not answer in time.
        """
        topics = {tp.topic: topic_ids.get(tp.topic) for tp in partitions}
        if self._kept is not None and self._kept[1] == topics and self._clock() - self._kept[0] < RENEW_SECONDS:
            return
        with self._rights(stream):
            if self._client.run(self._renew(stream, partitions, Deadline(self._seconds))):
                self._kept = self._clock(), topics

    async def _renew(self, stream: str, partitions: Collection[TopicPartition], deadline: Deadline) -> bool:
        no_member = SlotCredentials.without_membership(self.name(stream))
        entries = await fetch_all_committed(self._client, no_member.group, deadline)
        first = CommitOffset(beyond(0), metadata=json.dumps(Record("", 0, 0)))
        # Brokers delete the entry of a deleted topic.
        entries = entries or {
            min(tp for tp in partitions if tp.topic == name): first for name in {*map(_topic, partitions)}
        }
        if entries:
            # The entries of existing topics are committed in spite of the error.
            with contextlib.suppress(UnknownTopicError):
                await commit_offsets(self._client, no_member, entries, deadline, fail_on_unknown_topic=True)
        return bool(entries)

    def decided(
        self, stream: str, plan: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]] | None:
        """Return the decided ranges of a batch; empty: the batch is not decided; None: there is no record.

        Args:
            stream: The stream's id.
            plan: See `Handoff`.
            partitions: The existing partitions of the batch.

        Raises:
            AuthenticationError: This user may not read the record.
            InvalidConfigurationError: A part of the record is missing.
        """
        with self._rights(stream):
            entries = self._client.run(self._entries(stream, partitions, Deadline(self._seconds)))
        found = {tp: _parse(Record, entry.metadata) for tp, entry in entries.items()}
        of_plan = {tp: one for tp, one in found.items() if one.plan == plan}
        counts = Counter(map(_topic, of_plan))
        if any(counts[tp.topic] < one.partitions for tp, one in of_plan.items()):
            raise InvalidConfigurationError(
                f"Group {self.name(stream)} names {len(of_plan)} partitions of the last decided batch, but the "
                "decision had more: another program has committed there too. Nothing was read. Start the query "
                "with a new checkpointLocation: it continues at the group's offsets."
            )
        return {tp: (one.start, within(entries[tp].offset)) for tp, one in of_plan.items()} if found else None

    async def _entries(
        self, stream: str, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, CommitOffset]:
        # Fetch by name first, because a fetch of all offsets omits a partition whose first offset is in an open
        # transaction.
        named = await fetch_entries(self._client, self.name(stream), partitions, deadline)
        return {**await fetch_all_committed(self._client, self.name(stream), deadline), **named}

    @contextlib.contextmanager
    def _rights(self, stream: str) -> Iterator[None]:
        try:
            yield
        except AuthenticationError as error:
            raise AuthenticationError(
                f"With commit=sink the group {self.name(stream)} records the decisions, and this user has no right to "
                "the group. Nothing was read. Give the user READ (kafka-acls.sh --add --allow-principal User:NAME "
                f"--operation Read --group {self._group} --resource-pattern-type prefixed). ({error})",
                code=error.code,
            ) from error


def _topic(tp: TopicPartition) -> str:
    return tp.topic


def _handoffs(group: str, own: Mapping[TopicPartition, tuple[CommitOffset, Entry]]) -> tuple[Handoff, ...]:
    by_member: dict[tuple[SlotCredentials, str, str], dict[TopicPartition, tuple[CommitOffset, Entry]]] = {}
    for tp, (end, entry) in own.items():
        member = SlotCredentials(group, entry.generation, entry.member_id, entry.instance_id, right=entry.right)
        by_member.setdefault((member, entry.stream, entry.plan), {})[tp] = end, entry
    return tuple(
        Handoff(
            member,
            {tp: (entry.start, within(end.offset)) for tp, (end, entry) in entries.items()},
            stream,
            plan,
            {tp.topic: entry.topic_id for tp, (_, entry) in entries.items() if entry.topic_id is not None},
            {tp: end.leader_epoch for tp, (end, _) in entries.items()},
        )
        for (member, stream, plan), entries in by_member.items()
    )


def _check_complete(batch: BatchOfRun, group: str, own: Mapping[TopicPartition, Entry]) -> None:
    """Raise an error if some partitions of a topic are missing."""
    partitions = {tp.topic: entry.partitions for tp, entry in own.items()}
    for topic, count in sorted(Counter(tp.topic for tp in own).items()):
        if count < partitions[topic]:
            raise FencedError(
                f"The source of batch {batch.number} reads {partitions[topic]} partitions of {topic}, but group "
                f"{group} names {count} of them: another run of this query has published there too. No record of the "
                "batch is visible. Make sure that the query runs only once, and restart it."
            )


async def _committed(
    client: KafkaClient, group: str, entries: Mapping[TopicPartition, Entry], deadline: Deadline
) -> tuple[dict[TopicPartition, CommitOffset], dict[str, bool]]:
    """Return a group's committed offsets of these topics, and the lost topics as `_lost_topics` returns them.

    A coordinator that compares topic ids finds these topics. For other coordinators, the driver requests metadata.
    """
    found, lost = await _committed_by_name(client, group, entries, deadline)
    cluster = client.cluster_id
    return {tp: one for tp, one in found.items() if not is_of_other_topic(one, entries[tp].topic_id, cluster)}, lost


async def _committed_by_name(
    client: KafkaClient, group: str, entries: Mapping[TopicPartition, Entry], deadline: Deadline
) -> tuple[dict[TopicPartition, CommitOffset], dict[str, bool]]:
    if not entries:
        return {}, {}
    ids = {tp.topic: entry.topic_id for tp, entry in entries.items()}
    known = {name: found for name, topic_id in ids.items() if (found := topic_id_of(topic_id)) is not None}
    if known.keys() == ids.keys():
        with contextlib.suppress(UnknownTopicError):
            return await fetch_by_ids(client, group, entries, known, deadline, stable=True), {}
    lost = await _lost_topics(client, ids, deadline)
    kept = [tp for tp in entries if tp.topic not in lost]
    return await fetch_entries(client, group, kept, deadline), lost


async def _lost_topics(client: KafkaClient, ids: Mapping[str, str | None], deadline: Deadline) -> dict[str, bool]:
    """Return the topics that were deleted, and whether each was created again; `ids` has their previous ids."""
    names = sorted(ids)
    patience = Deadline(min(_DELETED_SECONDS, deadline.left))
    while names:
        snapshot = await client.retrying(lambda: client.metadata(names, deadline), deadline)
        absent = [name for name in names if name not in snapshot.topics and name not in snapshot.refused]
        # A changed id is proof. An absent topic is no proof yet, because a broker may receive the topic's metadata
        # late.
        if not absent or patience.over:
            others = (t.name for t in snapshot.topics.values() if is_recreated(ids.get(t.name), t.id_text))
            return {**dict.fromkeys(absent, False), **dict.fromkeys(others, True)}
        await asyncio.sleep(_PAUSE_SECONDS)
    return {}
