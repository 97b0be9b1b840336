"""How much of what there is a micro-batch takes, in bytes and records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assignors.model import TopicPartition

# Of a record that nobody has seen yet. Too many would keep the first batch for long, too few make it short.
UNKNOWN_RECORD_BYTES = 65_536.0


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """What a micro-batch may have at most; None: any number."""

    bytes: float | None = None
    records: float | None = None


def admit(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    record_bytes: Mapping[TopicPartition, float],
    room: BatchBudget,
) -> dict[TopicPartition, int]:
    """Where each partition ends so that the batch fits.

    Each gets a share in proportion to what it has, and one with anything new at least one offset, so that none starves.

    Args:
        starts: Where each partition stands.
        ends: Where each would end otherwise.
        record_bytes: Measured bytes of an offset; a partition without one is taken to be as the others are.
        room: What the batch may have.
    """
    known = [record_bytes[tp] for tp in starts if tp in record_bytes]
    otherwise = sum(known) / len(known) if known else UNKNOWN_RECORD_BYTES
    sizes = {tp: max(0, ends[tp] - start) for tp, start in starts.items()}
    total_bytes = sum(size * record_bytes.get(tp, otherwise) for tp, size in sizes.items())
    part = min(_part(room.bytes, total_bytes), _part(room.records, sum(sizes.values())))
    if part >= 1.0:
        return {tp: ends[tp] for tp in starts}
    admitted, owed = {}, 0.0
    for tp, size in sizes.items():
        # What is left of an offset goes to the next partition: with large records it is some percent of a batch.
        owed += size * part
        taken = min(size, max(1, int(owed)))
        owed = max(0.0, owed - taken)
        admitted[tp] = starts[tp] + taken
    return admitted


def _part(most: float | None, total: float) -> float:
    return 1.0 if most is None or total <= most else most / total
