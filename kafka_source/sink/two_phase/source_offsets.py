"""The offsets of a query's source, which the sink commits with its decision (`commit=sink`)."""

from __future__ import annotations

from kafka_source.errors import FencedError, InvalidConfigurationError
from kafka_source.group.committed_offsets import fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.source_sink_handoff import BatchOfRun, Handoff, collect
from kafka_source.transactions.offset_transaction import GroupOffsets


async def offsets_of_sources(
    client: KafkaClient, group: str, batch: BatchOfRun, deadline: Deadline, *, wrote: bool
) -> tuple[GroupOffsets, ...]:
    """Return the offsets that the source's group commits for a batch that is not decided yet.

    Args:
        client: Client of the cluster that the source reads from and the sink writes to.
        group: The source's `kafka.group.id`.
        batch: The batch.
        deadline: Limit for the whole call.
        wrote: Whether the batch has rows.

    Raises:
        InvalidConfigurationError: The batch has rows, but no source has published what it read.
        FencedError: Another member of the group has committed offsets inside the batch's ranges, so it has read the
            same records.
    """
    handoffs = await collect(client, group, batch, deadline)
    if handoffs is None and wrote:
        raise InvalidConfigurationError(
            f"Option commit.group is {group}, but no source of this query has published what it read. Give the source "
            f"kafka.group.id={group} and commit=sink; it must read from the cluster that the sink writes to."
        )
    for handoff in handoffs or ():
        await _check_not_read_by_others(client, handoff, deadline)
    return tuple(
        GroupOffsets(
            handoff.member,
            {tp: CommitOffset(end, metadata=handoff.stream) for tp, (_, end) in handoff.ranges.items()},
        )
        for handoff in handoffs or ()
    )


async def _check_not_read_by_others(client: KafkaClient, handoff: Handoff, deadline: Deadline) -> None:
    # A member that commits after this check belongs to a newer generation, and then the broker refuses our commit.
    group = handoff.member.group
    committed = await fetch_committed(client, group, handoff.ranges, deadline)
    for tp, (start, _) in handoff.ranges.items():
        offset = committed[tp]
        if offset is not None and offset > start:
            raise FencedError(
                f"The batch begins at offset {start} of {tp.topic}-{tp.partition}, but group {group} has committed "
                f"offset {offset}: another member has read the records in between. No record of the batch is visible. "
                "Restart the query; it continues from the group's offsets."
            )
