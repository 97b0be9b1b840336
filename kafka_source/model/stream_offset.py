"""Positions and ranges, and the stream's offset: our own versioned JSON.

The offset of a micro-batch says where each partition starts and ends in that batch and which slot reads it, so that
the plan of a batch depends on its end offset alone and a replay reads the same rows in the same input partitions.
It never holds a secret: checkpoints are plain files.

    {"version": 1, "cluster": "…", "generation": 7, "slots": 4, "split": [null, null, 1000],
     "topics": {"orders": "aVJo0ssOTxOMQ4bkUl_1Sw"},
     "partitions": {"orders": {"0": [100, 250, 0], "1": [90, 180, 1]}}}

Where all copies of a partition emit rows (`redundant.emit=all`), a fourth element lists who reads it:
[[slot, replica], …].
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assignors.model import TopicPartition
from kafka_source.errors import InvalidConfigurationError

VERSION = 1

Copies = tuple[tuple[int, int], ...]
"""Pairs of a slot and the number of the copy (replica) that it has; 0 is the primary's."""


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Records of one partition, `[start, end)` in offsets; `replica` says for which of its copies."""

    topic: str
    partition: int
    start: int
    end: int
    replica: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets, which gaps may make more than the number of records."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Span:
    """Where one partition starts and ends in a micro-batch, and the slot that reads it.

    Attributes:
        start: The first offset.
        end: The one after the last.
        slot: Who reads it; -1 without a group.
        copies: Only where all copies emit rows: each of ours, as its slot and replica, that of `slot` first.
    """

    start: int
    end: int
    slot: int
    copies: Copies = ()

    @property
    def readers(self) -> Copies:
        """Each slot that reads it, and as which replica."""
        return self.copies or ((self.slot, 0),)

    @staticmethod
    def from_json(value: Sequence[Any]) -> Span:
        """Read `[start, end, slot]`, or the same with copies."""
        start, end, slot, *copies = value
        return Span(int(start), int(end), int(slot), tuple((int(s), int(r)) for s, r in (copies[0] if copies else ())))

    def to_json(self) -> list[Any]:
        """What `from_json` reads."""
        copies = [[list(copy) for copy in self.copies]] if self.copies else []
        return [self.start, self.end, self.slot, *copies]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A stream's offset: everything the plan of the micro-batch that ends here needs.

    Attributes:
        partitions: The partitions that are this query's at that time.
        topics: The ids of their topics, as far as brokers have any.
        cluster: The cluster's id; None: not known.
        generation: The group's generation when it was planned; -1 without a group.
        slots: The number of slots; 0 without a group, where each range is an input partition.
        min_partitions: The option's value at planning, part of the plan.
        max_records: Likewise of maxRecordsPerPartition.
        task_records: Likewise of min.records.per.task.
        stream: The stream's own id, kept from batch to batch, where its sink commits (`commit=sink`).
    """

    partitions: Mapping[TopicPartition, Span] = field(default_factory=dict)
    cluster: str | None = None
    generation: int = -1
    slots: int = 0
    min_partitions: int | None = None
    max_records: int | None = None
    task_records: int = 1
    topics: Mapping[str, str] = field(default_factory=dict)
    stream: str | None = None

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where each partition goes on after this batch."""
        return {tp: span.end for tp, span in self.partitions.items()}

    def without(self, topics: Collection[str]) -> StreamOffset:
        """The same as if these topics had never been read."""
        kept = {tp: span for tp, span in self.partitions.items() if tp.topic not in topics}
        return replace(self, partitions=kept, topics={t: i for t, i in self.topics.items() if t not in topics})

    def same_topic(self, other: StreamOffset, name: str) -> bool:
        """Whether both mean the same topic by a name, as far as is known."""
        return self.topics.get(name) in (None, other.topics.get(name, self.topics.get(name)))

    def to_json(self) -> dict[str, Any]:
        """The dict that Spark writes to the checkpoint; equal offsets give equal text."""
        partitions: dict[str, dict[str, list[Any]]] = {}
        for tp, span in sorted(self.partitions.items()):
            partitions.setdefault(tp.topic, {})[str(tp.partition)] = span.to_json()
        return {
            "version": VERSION,
            "cluster": self.cluster,
            "generation": self.generation,
            "slots": self.slots,
            "split": [self.min_partitions, self.max_records, self.task_records],
            "topics": dict(sorted(self.topics.items())),
            "partitions": partitions,
            **({} if self.stream is None else {"stream": self.stream}),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> StreamOffset:
        """Read an offset that `to_json` wrote.

        Raises:
            InvalidConfigurationError: It is of a newer version, or not ours.
        """
        version = value.get("version")
        if not isinstance(version, int):
            raise InvalidConfigurationError(
                f"the checkpoint's offset is not one of kafkagroup's: {str(value)[:200]}; "
                "a checkpoint of another source cannot be continued, start with a new checkpointLocation"
            )
        if version > VERSION:
            raise InvalidConfigurationError(
                f"the checkpoint's offset has version {version}, this kafkagroup reads up to {VERSION}; upgrade it"
            )
        try:
            minimum, maximum, least = (*value["split"], 1)[:3]
            return StreamOffset(
                {
                    TopicPartition(topic, int(partition)): Span.from_json(span)
                    for topic, spans in value["partitions"].items()
                    for partition, span in spans.items()
                },
                value["cluster"],
                value["generation"],
                value["slots"],
                minimum,
                maximum,
                least,
                # Offsets of kafkagroup's first days have none.
                dict(value.get("topics", {})),
                value.get("stream"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidConfigurationError(
                f"the checkpoint's offset is damaged ({error!r}): {str(value)[:200]}"
            ) from None
