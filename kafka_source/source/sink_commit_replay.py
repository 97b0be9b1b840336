"""What is different for a stream whose sink commits its offsets (`commit=sink`).

A batch that was planned and not decided has left nothing behind, in the output or in the group. While the query was
down other members may have read on, so what is left of its batch is what the group still gives to it. A batch that was
decided is replayed whole, since operators between source and sink want to see its rows again; the sink drops them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from assignors.model import TopicPartition
from kafka_source.client_config import Settings
from kafka_source.group.committed_offsets import fetch_all_committed
from kafka_source.group.model import CommitOffset, SlotCredentials
from kafka_source.kafka_client import Deadline, cached_client
from kafka_source.model.stream_offset import Range
from kafka_source.source_sink_handoff import Handoff

Planned = Sequence[tuple[int, tuple[Range, ...]]]
"""Ranges by slot, as `plan` gives them."""

_SECONDS = 60.0


def committed_with_marks(settings: Settings, group: str) -> dict[TopicPartition, CommitOffset]:
    """The group's offsets; the sink has marked its own with the stream's id."""
    client = cached_client(settings)
    return client.run(fetch_all_committed(client, group, Deadline(_SECONDS)))


def left_of(
    planned: Planned, owned: Collection[TopicPartition], committed: Mapping[TopicPartition, CommitOffset], stream: str
) -> list[tuple[int, tuple[Range, ...]]]:
    """What a replayed batch reads.

    Args:
        planned: By the batch's end offset.
        owned: The query's partitions now.
        committed: By the group.
        stream: The stream's id.
    """
    left = []
    for slot, ranges in planned:
        kept = [r for r in (_left_of(r, owned, committed.get(r.topic_partition), stream) for r in ranges) if r.size]
        if kept:
            left.append((slot, tuple(kept)))
    return left


def _left_of(r: Range, owned: Collection[TopicPartition], committed: CommitOffset | None, stream: str) -> Range:
    stands = r.start if committed is None else committed.offset
    if committed is not None and committed.metadata == stream and stands > r.start:
        return r
    # Its new owner begins where the group stands.
    return replace(r, start=max(r.start, stands) if r.topic_partition in owned else r.end)


def goes_on_at(
    tp: TopicPartition, position: int | None, committed: Mapping[TopicPartition, CommitOffset], stream: str | None
) -> int | None:
    """Where a partition goes on that the checkpoint has at `position`.

    Once the sink has committed for this stream the group's offsets are what is in the output. Before that, and for a
    stream that has just begun to leave it to its sink, the furthest is the right one.
    """
    stands = committed[tp].offset if tp in committed else None
    if stands is None or position is None:
        return position if stands is None else stands
    established = any(entry.metadata == stream for entry in committed.values())
    return stands if established else max(stands, position)


def handoff_of(planned: Planned, member: SlotCredentials, stream: str) -> Handoff:
    """What a batch tells the sink; `member` is any of the query's, since a broker does not ask who owns what."""
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for _, parts in planned:
        for r in parts:
            start, end = ranges.get(r.topic_partition, (r.start, r.end))
            ranges[r.topic_partition] = (min(start, r.start), max(end, r.end))
    bare = SlotCredentials(member.group, member.generation, member.member_id, member.instance_id)
    return Handoff(bare, ranges, stream)
