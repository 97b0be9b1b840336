"""What `kafkagroup checkpoint show` shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafkagroup.admin.checkpoints import Position
from kafkagroup.admin.rows import Rows


@dataclass(frozen=True, slots=True)
class PositionRow:
    """Where a source of a query continues in one partition.

    Attributes:
        source: The number of the source in the query, from 0.
        topic: The topic.
        partition: The partition number.
        next_offset: The next offset to read; everything before it is in finished batches.
        pending_end: Where the batch ends that is planned and not finished; None: there is none.
    """

    source: int
    topic: str
    partition: int
    next_offset: int
    pending_end: int | None


def position_rows(positions: Iterable[Position]) -> Rows[PositionRow]:
    """Return a row for each partition of each source."""
    return Rows(
        PositionRow,
        (
            PositionRow(
                one.source, tp.topic, tp.partition, offset, None if one.pending is None else one.pending.get(tp)
            )
            for one in positions
            for tp, offset in sorted(one.offsets.items())
        ),
    )
