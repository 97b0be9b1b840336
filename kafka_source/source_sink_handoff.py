"""Passes a micro-batch's offset ranges from the source to the exactly-once sink, which commits them (`commit=sink`).

Spark connects a source and a sink of a query by rows alone: their drivers are different processes, and a row no longer
has the source's offset when the sink writes it. But the tasks of both know the query, its run and the batch. So the
first task of the source publishes the ranges of the whole batch, and the member that reads them, as committed offsets
of a separate group, `{group}-read-by-{query}`. The metadata of each offset holds the run and the batch. The sink's
driver collects the offsets of exactly its run and batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark import TaskContext

from assignors.model import TopicPartition
from kafka_source.errors import FencedError, InvalidConfigurationError, KafkaGroupError
from kafka_source.group.committed_offsets import commit_offsets, fetch_all_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commits import CommitOffset
from kafka_source.model.credentials import SlotCredentials


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
    def of_task() -> BatchOfRun:
        """Return the batch of the task that runs in this process.

        Raises:
            KafkaGroupError: This is no task of a streaming query.
        """
        task = TaskContext.get()
        local: Callable[[str], str | None] = task.getLocalProperty if task is not None else lambda _: None
        query, number = local("sql.streaming.queryId"), local("streaming.sql.batchId")
        if query is None or number is None:
            raise KafkaGroupError("Not running in a task of a streaming query: there is no query id and no batch id.")
        return BatchOfRun(query, local("spark.jobGroup.id") or "", int(number))


@dataclass(frozen=True, slots=True)
class Handoff:
    """The offset ranges that a member reads in one batch.

    Attributes:
        member: The credentials for the commit. A broker refuses them when the group has replaced the member.
        ranges: Start (included) and end (excluded) offset of each partition.
        stream: The stream's id, from its checkpoint.
    """

    member: SlotCredentials
    ranges: Mapping[TopicPartition, tuple[int, int]]
    stream: str


def _group(group: str, query: str) -> str:
    return f"{group}-read-by-{query}"


async def publish(client: KafkaClient, batch: BatchOfRun, handoff: Handoff, deadline: Deadline) -> None:
    """Publish the ranges that a batch reads. To publish them again changes nothing.

    A batch of thousands of partitions takes several commits. If only some of them succeed, the task fails, and
    `collect` finds fewer partitions than the entries name.
    """
    member = handoff.member
    identity = (
        batch.run,
        batch.number,
        len(handoff.ranges),
        member.generation,
        member.member_id,
        member.instance_id,
        handoff.stream,
        member.renewed_by,
    )
    entries = {
        tp: CommitOffset(end, metadata=json.dumps([start, *identity])) for tp, (start, end) in handoff.ranges.items()
    }
    no_member = SlotCredentials.without_membership(_group(member.group, batch.query))
    await commit_offsets(client, no_member, entries, deadline)


async def collect(client: KafkaClient, group: str, batch: BatchOfRun, deadline: Deadline) -> list[Handoff] | None:
    """Return the ranges that the sources of a batch have published, one hand-off for each member.

    The list is empty if the batch has no new data. The result is None if no source has ever published anything for this
    group and query.

    Raises:
        FencedError: A part of a hand-off is missing.
        InvalidConfigurationError: Another program commits in the group of the hand-off.
    """
    entries = await fetch_all_committed(client, _group(group, batch.query), deadline)
    if not entries:
        return None
    found: dict[tuple[int, int, str, str | None, str, str | None], dict[TopicPartition, tuple[int, int]]] = {}
    for tp, entry in entries.items():
        try:
            start, run, number, *source = json.loads(entry.metadata)
        except (TypeError, ValueError, RecursionError):
            raise InvalidConfigurationError(
                f"Group {_group(group, batch.query)} has offset {entry.offset} of {tp.topic}-{tp.partition} with "
                f"metadata that no source has written, so another program commits there. No record of batch "
                f"{batch.number} is visible. Stop that program, delete this group, and restart the query: its source "
                "publishes there anew."
            ) from None
        if (run, number) == (batch.run, batch.number):
            found.setdefault(tuple(source), {})[tp] = (start, entry.offset)
    for (count, *_), ranges in found.items():
        if len(ranges) < count:
            raise FencedError(
                f"The source of batch {batch.number} reads {count} partitions, but group {_group(group, batch.query)} "
                f"names {len(ranges)} of them: another run of this query has published there too, or a topic was "
                "deleted. No record of the batch is visible. Make sure that the query runs only once, and restart it."
            )
    return [
        Handoff(SlotCredentials(group, generation, member_id, instance_id, renewed_by=renewed_by), ranges, stream)
        for (_, generation, member_id, instance_id, stream, renewed_by), ranges in found.items()
    ]
