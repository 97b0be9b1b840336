"""Halts: the requests of `pause`, `stop` and `resume` to all queries of a group, as entries of a side group. Pure.

The halt with the highest number is the group's current halt; `resume` is a halt without an effect. An entry is a
committed offset, with the same metadata in all entries of a halt. The offset is the partition's boundary, up to which
a stopped query reads. From the next trigger on, queries do not read a partition without a boundary.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum

from assignors.model import TopicPartition

# Brokers take metadata of 4096 bytes by default (offset.metadata.max.bytes).
_MAX_AUTHOR = 200


class HaltKind(str, Enum):
    """The kinds of halts."""

    PAUSE = "pause"
    """Queries stay members of the group and read nothing."""
    STOP = "stop"
    """Queries read up to the boundaries, and leave the group when all its partitions have reached their boundaries."""
    RESUME = "resume"
    """Queries read."""

    @property
    def done(self) -> str:
        """The state of the group after the request, as a word for messages."""
        return {"pause": "paused", "stop": "stopped", "resume": "resumed"}[self.value]


@dataclass(frozen=True, slots=True)
class Halt:
    """A request to all queries of a group.

    Attributes:
        kind: The kind of the request.
        author: The name and the host of the user that requested the halt.
        at_ms: The time of the halt, in milliseconds since 1970.
        number: The number of the halt in its group.
        boundaries: The boundaries of partitions; a partition without a boundary stops at its position.
    """

    kind: HaltKind
    author: str
    at_ms: int
    number: int = 1
    boundaries: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.at_ms / 1000, timezone.utc).isoformat(" ", "seconds")
        return f"{self.kind.done} by {self.author} at {at}"

    def to_json(self) -> str:
        """Return the text that `from_json` parses; the boundaries are not part of it."""
        return json.dumps(
            {"halt": self.kind.value, "n": self.number, "at": self.at_ms, "by": self.author[:_MAX_AUTHOR]}
        )

    @staticmethod
    def from_json(text: str) -> "Halt | None":
        """Return the halt that a text describes, without boundaries; None: the text describes no halt."""
        try:
            given = json.loads(text)
            return Halt(HaltKind(given["halt"]), str(given["by"]), int(given["at"]), int(given["n"]))
        except (ValueError, TypeError, KeyError):
            return None

    def entries(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        """Return the boundary and the text of each entry.

        If a halt has no boundaries, one entry in each topic is enough.
        """
        firsts = {tp.topic: tp for tp in sorted(partitions, reverse=True)}
        places = self.boundaries or dict.fromkeys(firsts.values(), 0)
        return {tp: (boundary, self.to_json()) for tp, boundary in places.items()}


def while_it_holds(newest: Halt | None) -> Halt | None:
    """Return the halt of a group; None: the newest halt is a resume, or the group was never halted."""
    return None if newest is None or newest.kind is HaltKind.RESUME else newest


def halt_of(entries: Mapping[TopicPartition, tuple[int, str]]) -> Halt | None:
    """Return a group's newest halt, from the boundaries and texts of its entries; None: the group was never halted."""
    halts = {text: halt for _, text in entries.values() if (halt := Halt.from_json(text)) is not None}
    if not halts:
        return None
    # Two programs that halt a group at the same moment may take the same number.
    newest = max(halts, key=lambda text: (halts[text].number, halts[text].at_ms, text))
    # An entry with the offset 0 has no boundary.
    return replace(halts[newest], boundaries={tp: to for tp, (to, text) in entries.items() if text == newest and to})
