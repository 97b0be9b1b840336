"""A stream's offset as JSON, of kafkagroup or Spark's Kafka source: fields and versions. No files are read.

The end offset of a micro-batch has each partition's first offset, end and slot, and the options that cut ranges into
input partitions, for `source.plan`. An offset never contains a secret, because checkpoints are plain files.

    {"version": 1, "cluster": "…", "generation": 7, "slots": 4, "split": [null, null, 1000],
     "topics": {"orders": "aVJo0ssOTxOMQ4bkUl_1Sw"},
     "partitions": {"orders": {"0": [100, 250, 0], "1": [90, 180, 1]}}}

"split" is [minPartitions, maxRecordsPerPartition, min.records.per.task]. If all copies of a partition emit rows
(`redundant.emit=all`), a fourth element of a partition lists its readers: [[slot, replica], …]. The key of the stream's
id is "stream" with `commit=sink`, and "committer" if the driver or tasks commit. If the group was rewound, "rewinds"
has, by topic and partition, the id of the last rewind. "epochs" has the leader epochs, by which a query detects a
truncated log. If a registry's schema decodes values, "schemas" has the schema's id: {"value": 7}.

A query that was started with Spark's own Kafka source continues from offsets of that source, which have only the end of
each partition: {"orders": {"0": 250, "1": 180}}.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from assignors.model import TopicPartition
from kafka_source.errors import NEW_OUTPUT, InvalidConfigurationError

VERSION = 1

_V = TypeVar("_V")

Copies = tuple[tuple[int, int], ...]
"""Pairs of a slot and its replica number of a partition; 0 is the primary."""


class Range(NamedTuple):
    """A range of one partition, `[start, end)` in offsets.

    It is a tuple, because a frozen dataclass takes three times as long in micro-batches of thousands of partitions.

    Attributes:
        topic: The topic.
        partition: The partition number.
        start: The first offset.
        end: The offset after the last record.
        replica: The replica number of the slot that reads the range; 0 is the primary.
        from_earliest: Whether a batch from `earliest` begins with this range, which starts at the current first offset.
        skip_deleted: Whether the first records may be missing, which is no data loss in a batch from `earliest`.
        to_latest: Whether a batch to `latest` ends with this range, which the task reads to the latest offset.
        epoch: The epoch of a leader whose log had the whole range (KIP-320); -1: unknown.
    """

    topic: str
    partition: int
    start: int
    end: int
    replica: int = 0
    from_earliest: bool = False
    skip_deleted: bool = False
    to_latest: bool = False
    epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition, without the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Return the number of offsets; the range may have fewer records, because offsets can be missing in a log."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class Span(NamedTuple):
    """The range of one partition in a micro-batch, and the slot that reads it; a tuple for the same reason as `Range`.

    Attributes:
        start: The first offset.
        end: The offset after the last record.
        slot: The slot that reads the range; -1 without a group.
        copies: If all copies emit rows, the slot and replica of each copy of this query, beginning with `slot`.
    """

    start: int
    end: int
    slot: int
    copies: Copies = ()

    @property
    def readers(self) -> Copies:
        """Return the slots that read the range, each with its replica number."""
        return self.copies or ((self.slot, 0),)

    @staticmethod
    def from_json(value: Sequence[Any]) -> Span:
        """Parse `[start, end, slot]` or `[start, end, slot, copies]`."""
        start, end, slot, *copies = value
        return Span(int(start), int(end), int(slot), tuple((int(s), int(r)) for s, r in (copies[0] if copies else ())))

    def to_json(self) -> list[Any]:
        """Return the list that `from_json` parses."""
        copies = [[list(copy) for copy in self.copies]] if self.copies else []
        return [self.start, self.end, self.slot, *copies]


class PlannedInput(NamedTuple):
    """The ranges of one input partition.

    Attributes:
        slot: The slot that reads; -1 without a group.
        ranges: The ranges that the slot reads.
    """

    slot: int
    ranges: tuple[Range, ...]

    @property
    def size(self) -> int:
        """The number of offsets in all ranges."""
        return sum(r.size for r in self.ranges)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The offset of a stream: the end of a micro-batch, and the plan of its input partitions.

    Attributes:
        partitions: The partitions that the query owned when the batch was planned.
        topics: The ids of the partitions' topics, if the brokers have ids (Kafka 2.8 and later).
        cluster: The cluster's id; None: unknown.
        generation: The group's generation in which the batch was planned; -1 without a group.
        slots: The number of slots; 0 without a group, where each range is an input partition.
        min_partitions: `minPartitions` when the batch was planned; None: not set.
        max_records: `maxRecordsPerPartition` when the batch was planned; None: not set.
        task_records: `min.records.per.task` when the batch was planned, or its default.
        stream: The stream's id, the same in all batches of a checkpoint; None: the stream commits in no group.
        by_sink: Whether the batch was planned with `commit=sink`, so that the sink commits with the batch's decision.
        schemas: The ids of the schemas to which values were resolved when the batch was planned, by column.
        epochs: The epoch of the leader whose log had all records before the partition's end (KIP-320). A partition
            with an unknown epoch is left out.
        rewinds: The id of the last rewind of the group that the positions follow, by partition; see `group.strategies`.
        of_spark: Whether this is an offset of Spark's own Kafka source. Then the previous offset has the batch's start.
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
    of_spark: bool = False
    rewinds: Mapping[TopicPartition, str] = field(default_factory=dict)
    by_sink: bool = False
    schemas: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the offset at which each partition continues after this batch."""
        return {tp: span.end for tp, span in self.partitions.items()}

    def without(self, topics: Collection[str]) -> StreamOffset:
        """Return this offset as if these topics had never been read."""
        kept = {tp: span for tp, span in self.partitions.items() if tp.topic not in topics}
        ids = {t: i for t, i in self.topics.items() if t not in topics}
        rewinds = {tp: i for tp, i in self.rewinds.items() if tp.topic not in topics}
        epochs = {tp: epoch for tp, epoch in self.epochs.items() if tp.topic not in topics}
        return replace(self, partitions=kept, topics=ids, rewinds=rewinds, epochs=epochs)

    def in_cluster(self, cluster_id: str | None) -> StreamOffset:
        """Return the parts of this offset that are valid in the cluster with this id; None: unknown.

        Migrated topics (`cluster.moved.from`) have other ids and leader epochs in the new cluster.
        """
        return self if self.cluster in (None, cluster_id) else replace(self, topics={}, epochs={})

    def epoch_of(self, tp: TopicPartition, offset: int) -> int:
        """Return the leader epoch at a partition's end, if the end is this offset; -1: unknown."""
        span = self.partitions.get(tp)
        return -1 if span is None or span.end != offset else self.epochs.get(tp, -1)

    def same_topic(self, other: StreamOffset, name: str) -> bool:
        """Return whether both offsets have the same topic under this name; an unknown id counts as the same."""
        return self.topics.get(name) in (None, other.topics.get(name, self.topics.get(name)))

    def to_json(self) -> dict[str, Any]:
        """Return the dict that Spark writes to the checkpoint; equal offsets give equal dicts, in the same order."""
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
            **({} if self.stream is None else {"stream" if self.by_sink else "committer": self.stream}),
            **({"rewinds": _by_topic(self.rewinds)} if self.rewinds else {}),
            **({"schemas": dict(self.schemas)} if self.schemas else {}),
            **({"epochs": _by_topic(self.epochs)} if self.epochs else {}),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> StreamOffset:
        """Parse an offset that `to_json` or Spark's own Kafka source has written.

        Unknown keys, such as a quota's figures, are ignored.

        Raises:
            InvalidConfigurationError: The offset is of a newer version, of another source, or damaged.
        """
        if is_of_spark(value):
            return StreamOffset(
                {
                    TopicPartition(topic, int(partition)): Span(offset, offset, -1)
                    for topic, offsets in value.items()
                    for partition, offset in offsets.items()
                },
                of_spark=True,
            )
        version = value.get("version")
        if not isinstance(version, int):
            raise InvalidConfigurationError(
                f"the checkpoint's offset is neither one of kafkagroup nor one of Spark's Kafka source: "
                f"{str(value)[:200]}; such a checkpoint cannot be continued, start with a new checkpointLocation. "
                f"{NEW_OUTPUT}"
            )
        if version > VERSION:
            raise InvalidConfigurationError(
                f"the checkpoint's offset has version {version}, but this kafkagroup reads versions up to {VERSION}; "
                "upgrade kafkagroup"
            )
        try:
            min_partitions, max_records, task_records = value["split"]
            return StreamOffset(
                {
                    TopicPartition(topic, int(partition)): Span.from_json(span)
                    for topic, spans in value["partitions"].items()
                    for partition, span in spans.items()
                },
                value["cluster"],
                value["generation"],
                value["slots"],
                min_partitions,
                max_records,
                task_records,
                dict(value["topics"]),
                value.get("stream", value.get("committer")),
                rewinds={tp: str(rewind_id) for tp, rewind_id in _by_partition(value.get("rewinds", {})).items()},
                by_sink="stream" in value,
                schemas={column: int(schema_id) for column, schema_id in value.get("schemas", {}).items()},
                epochs={tp: int(epoch) for tp, epoch in _by_partition(value.get("epochs", {})).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidConfigurationError(
                f"the checkpoint's offset is damaged ({error!r}): {str(value)[:200]}"
            ) from None


def _by_topic(values: Mapping[TopicPartition, _V]) -> dict[str, dict[str, _V]]:
    found: dict[str, dict[str, _V]] = {}
    for tp, value in sorted(values.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = value
    return found


def _by_partition(values: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic, int(partition)): value
        for topic, of_topic in values.items()
        for partition, value in of_topic.items()
    }


class RecentOffsets:
    """The last offsets of a stream, parsed.

    Spark passes each offset to the reader three times: as the end of a planned batch, as the end of a finished batch,
    and as the start of the next batch. With 2,000 partitions each parse takes 6 ms.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[Mapping[str, Any], StreamOffset]] = deque(maxlen=2)

    def add(self, value: Mapping[str, Any], offset: StreamOffset) -> None:
        """Remember that `value` is parsed as `offset`."""
        self._recent.append((value, offset))

    def parse(self, value: Mapping[str, Any]) -> StreamOffset:
        """Return the result of `StreamOffset.from_json`."""
        for known, offset in self._recent:
            if known == value:
                return offset
        offset = StreamOffset.from_json(value)
        self.add(value, offset)
        return offset


def is_of_spark(value: Mapping[str, Any]) -> bool:
    """Return whether an offset in a checkpoint has the form of Spark's own Kafka source (`KafkaSourceOffset`)."""
    return all(
        isinstance(offsets, dict)
        and all(str(partition).isdigit() and type(offset) is int for partition, offset in offsets.items())
        for offsets in value.values()
    )
