"""The offsets of a query's source, to be committed with the sink's decision."""

from __future__ import annotations

from kafka_source.errors import FencedError, InvalidConfigurationError
from kafka_source.group.committed_offsets import fetch_committed
from kafka_source.kafka_client import Deadline, KafkaClient
from kafka_source.model.commit_offset import CommitOffset
from kafka_source.source_sink_handoff import BatchOfRun, Handoff, take
from kafka_source.transactions.offset_transaction import GroupOffsets


async def offsets_of_sources(
    client: KafkaClient, group: str, batch: BatchOfRun, deadline: Deadline, *, wrote: bool
) -> tuple[GroupOffsets, ...]:
    """What the group has read in a batch that was not decided yet.

    Args:
        client: Of the cluster, which is the source's as well.
        group: The source's.
        batch: Which one.
        deadline: For all of it.
        wrote: Whether the batch has rows.

    Raises:
        InvalidConfigurationError: The source tells nothing.
        FencedError: Another member of the group has read on from where the batch began: its rows are another's.
    """
    handoffs = await take(client, group, batch, deadline)
    if handoffs is None and wrote:
        raise InvalidConfigurationError(
            f"Option commit.group is {group}, but no source of this query has told what it read. Give the source "
            f"kafka.group.id={group} and commit=sink; it must read from the cluster that is written to."
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
    # A member that commits later than this look is of a newer generation, and then the broker refuses ours.
    committed = await fetch_committed(client, handoff.member.group, handoff.ranges, deadline)
    for tp, (start, _) in handoff.ranges.items():
        stands = committed[tp]
        if stands is not None and stands > start:
            raise FencedError(
                f"The batch begins at offset {start} of {tp.topic}-{tp.partition}, but group {handoff.member.group} "
                f"stands at {stands}: another member has read on from there meanwhile. Nothing of the batch is "
                "visible; when the query restarts it reads what is left to it."
            )
