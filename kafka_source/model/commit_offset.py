"""An offset as a consumer group commits it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """One partition's committed offset, with the fields that Kafka stores beside it.

    Attributes:
        offset: The next offset to read.
        leader_epoch: The leader epoch of the last record that was read; -1 if it is not known (KIP-320).
        metadata: A text of the application's own.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
