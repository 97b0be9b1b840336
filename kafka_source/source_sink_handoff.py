"""How a query's source tells its sink what a batch has read, so that the sink commits it (`commit=sink`).

Spark gives a source and a sink nothing in common: their drivers are different processes, and rows carry no offsets of
the source by the time they are written. What they share is that tasks of both know the query, its run and the batch. So
the first task of the source writes down what the whole batch reads, and for which member, as committed offsets of a
group of their own, `{group}-read-by-{query}`; the sink's driver takes what has the mark of exactly its run and batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark import TaskContext

from assignors.model import TopicPartition
from kafka_source.errors import FencedError, KafkaGroupError
from kafka_source.group.committed_offsets import commit_offsets, fetch_all_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.model.credentials import SlotCredentials


@dataclass(frozen=True, slots=True)
class BatchOfRun:
    """A micro-batch as tasks know it.

    Attributes:
        query: The query's id, the same after every restart.
        run: The id of this start of the query.
        number: Of the batch.
    """

    query: str
    run: str
    number: int

    @staticmethod
    def of_task() -> BatchOfRun:
        """Of the task that runs here.

        Raises:
            KafkaGroupError: This is no task of a streaming query.
        """
        task = TaskContext.get()
        told: Callable[[str], str | None] = task.getLocalProperty if task is not None else lambda _: None
        query, number = told("sql.streaming.queryId"), told("streaming.sql.batchId")
        if query is None or number is None:
            raise KafkaGroupError("This is no task of a streaming query, so Spark does not tell its query and batch.")
        return BatchOfRun(query, told("spark.jobGroup.id") or "", int(number))


@dataclass(frozen=True, slots=True)
class Handoff:
    """What the source reads in one batch.

    Attributes:
        member: As whom: the sink commits with these credentials, and a broker refuses them once the group has replaced
            the member.
        ranges: From and to, for each partition.
        stream: The stream's own id, which its checkpoint keeps.
    """

    member: SlotCredentials
    ranges: Mapping[TopicPartition, tuple[int, int]]
    stream: str


def _group(group: str, query: str) -> str:
    return f"{group}-read-by-{query}"


async def leave(client: KafkaClient, batch: BatchOfRun, handoff: Handoff, deadline: Deadline) -> None:
    """Write down what the batch reads; the same again changes nothing."""
    member = handoff.member
    mark = (
        batch.run,
        batch.number,
        len(handoff.ranges),
        member.generation,
        member.member_id,
        member.instance_id,
        handoff.stream,
    )
    entries = {
        tp: CommitOffset(end, metadata=json.dumps([start, *mark])) for tp, (start, end) in handoff.ranges.items()
    }
    nobody = SlotCredentials(_group(member.group, batch.query), -1, "", None)
    await commit_offsets(client, nobody, entries, deadline)


async def take(client: KafkaClient, group: str, batch: BatchOfRun, deadline: Deadline) -> list[Handoff] | None:
    """What the sources of a batch in this group read; none if it had no new data, None if no source ever told any.

    Raises:
        FencedError: A part of it is no longer there.
    """
    entries = await fetch_all_committed(client, _group(group, batch.query), deadline)
    if not entries:
        return None
    found: dict[tuple[int, int, str, str | None, str], dict[TopicPartition, tuple[int, int]]] = {}
    for tp, entry in entries.items():
        start, run, number, *source = json.loads(entry.metadata)
        if (run, number) == (batch.run, batch.number):
            found.setdefault(tuple(source), {})[tp] = (start, entry.offset)
    for (count, *_), ranges in found.items():
        if len(ranges) < count:
            raise FencedError(
                f"The source of batch {batch.number} reads {count} partitions, but group {_group(group, batch.query)} "
                f"names {len(ranges)} of them: another start of this query has written there too, or a topic was "
                "deleted. Nothing of the batch is visible. See that the query runs only once, and start it again."
            )
    return [
        Handoff(SlotCredentials(group, generation, member_id, instance_id), ranges, stream)
        for (_, generation, member_id, instance_id, stream), ranges in found.items()
    ]
