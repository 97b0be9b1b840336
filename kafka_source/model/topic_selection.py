"""The topics that a query selects, and a topic's id and number of partitions."""

from dataclasses import dataclass

from assignors.model import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The partitions that a query reads; exactly one attribute is set.

    Attributes:
        topics: All partitions of these topics (`subscribe`).
        pattern: All topics that `topic_pattern.matching` finds (`subscribePattern`).
        partitions: Exactly these partitions (`assign`).
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"pattern {self.pattern}"
        return ", ".join(self.topics or [f"{tp.topic}-{tp.partition}" for tp in self.partitions])


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its brokers describe it: its id (None before Kafka 2.8), and its number of partitions."""

    id: str | None
    partitions: int
