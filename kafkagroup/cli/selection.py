"""Topics and partitions as users select them: `orders` for all partitions of a topic, `orders:0,1` for two of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from assignors.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Selection:
    """What `--topic` selects.

    Attributes:
        topics: Topics of which all partitions are selected.
        partitions: Single partitions of other topics.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all topics."""
        return frozenset(self.topics) | {tp.topic for tp in self.partitions}

    def has(self, topic: str, partition: int) -> bool:
        """Return whether a partition is selected; every one is, if nothing was given."""
        if not self.topics and not self.partitions:
            return True
        return topic in self.topics or (topic, partition) in self.partitions


def parse_topics(given: Iterable[str] | None, hint: str = "--topic") -> Selection:
    """Return the selection of texts such as `orders` and `orders:0,1`.

    Raises:
        typer.BadParameter: A partition is no number.
    """
    # Imported here, because the package of the assignors reads the metadata of installed distributions.
    from assignors.model import TopicPartition

    topics: dict[str, None] = {}
    partitions: dict[TopicPartition, None] = {}
    for text in given or ():
        # The name of a topic has no colon.
        topic, colon, numbers = text.partition(":")
        if not colon:
            topics[topic] = None
            continue
        for number in numbers.split(","):
            if not number.strip().isdigit():
                raise typer.BadParameter(f"{text!r} must be TOPIC or TOPIC:0,1", param_hint=hint)
            partitions[TopicPartition(topic, int(number))] = None
    return Selection(tuple(topics), tuple(tp for tp in partitions if tp.topic not in topics))
