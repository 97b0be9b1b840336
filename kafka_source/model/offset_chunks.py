"""Split the offsets of a group into commits that a coordinator accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from assignors.model import TopicPartition
from kafka_source.model.commit_offset import CommitOffset

# A coordinator appends the offsets of one request as one record batch, and refuses a batch above the broker's
# message.max.bytes (1,048,588 by default) with INVALID_COMMIT_OFFSET_SIZE. A quarter leaves room for lower settings,
# and for the records of other requests that the coordinator appends together with them.
MOST_BYTES = 256 * 1024
# The lengths, numbers, timestamp and topic id of an offset's record (OffsetCommitKey, OffsetCommitValue).
_RECORD_BYTES = 80


def chunks(
    group: str, offsets: Mapping[TopicPartition, CommitOffset], most_bytes: int = MOST_BYTES
) -> Iterator[dict[TopicPartition, CommitOffset]]:
    """Yield the offsets in parts, each small enough for one request; no part is empty.

    Args:
        group: The group id, which each record repeats.
        offsets: The offsets to commit.
        most_bytes: The maximum size of a part in the coordinator's log, in bytes.
    """
    part: dict[TopicPartition, CommitOffset] = {}
    size = 0
    for tp, entry in sorted(offsets.items()):
        record = _RECORD_BYTES + sum(len(text.encode()) for text in (group, tp.topic, entry.metadata))
        if part and size + record > most_bytes:
            yield part
            part, size = {}, 0
        part[tp] = entry
        size += record
    if part:
        yield part
