"""A driver's figures in its query's progress: commits, rebalances and their causes, latest offsets, bad records.

Spark gives a Python source no way to report metrics, but shows the end offset of each micro-batch in the query's
progress, even to a client of Spark Connect. So the driver process writes these figures beside the offset, under
`metrics`, and `kafkagroup.metrics` reads them in the user's program. `StreamOffset.from_json` ignores the figures.

    {"at": 1700000000123, "group": "billing", "commits": [[1700000000120, 12]], "failedCommits": 1,
     "rebalances": [{"at": …, "generation": 7, "cause": "members", …}], "latest": {"orders": {"0": 250}}}
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from assignors.model import TopicPartition
from kafka_source.model.halt import Halt
from kafka_source.model.partition_runs import numbers_by_topic

KEY = "metrics"
"""The name of the figures in the JSON of the end offset."""


def group_of(offset: Mapping[str, Any]) -> str | None:
    """Return the group of the query that wrote an offset; None: no group, or unknown.

    Args:
        offset: The JSON of an end offset, as it is in the checkpoint.
    """
    figures = offset.get(KEY)
    group = figures.get("group") if isinstance(figures, dict) else None
    return group if isinstance(group, str) else None


class RebalanceCause(str, Enum):
    """The cause of a join or rejoin."""

    START = "start"
    """The query started."""
    MEMBERS = "members"
    """A member joined, left or changed its subscription."""
    TOPICS = "topics"
    """Topics or partitions appeared, disappeared or were created again."""
    LOST = "lost"
    """The group had removed the slots, or the slots had left because Spark had not called the reader."""
    REVOKED = "revoked"
    """The group revoked partitions while a micro-batch read them."""
    SIBLING = "sibling"
    """Another read of the same driver and group waited in a join."""
    REWIND = "rewind"
    """The group was rewound while the query ran."""
    BALANCE = "balance"
    """The leader's assignor found that the members' work is too unequal."""
    STALE = "stale"
    """The assignment that the slots got back after a restart did not match subscriptions and topics."""
    REQUEST = "request"
    """The query requested the rejoin."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance of the slots of a query.

    Attributes:
        at_ms: When the rebalance ended, in milliseconds since 1970.
        generation: The generation that the rebalance began.
        cause: Why the slots rejoined.
        reason: The cause in words, with names.
        took_ms: Milliseconds from the first request to the last slot's assignment. In the consumer protocol,
            milliseconds from the response that changes the slots' partitions until the slots have followed it.
        members: The number of members of the group; None: unknown.
        came: Members that the previous generation did not have: instance ids, or member ids of dynamic members.
        went: Members that only the previous generation had.
        gained: Partitions that are new to this query.
        lost: Partitions that this query has lost.
    """

    at_ms: int
    generation: int
    cause: RebalanceCause
    reason: str
    took_ms: int
    members: int | None = None
    came: tuple[str, ...] = ()
    went: tuple[str, ...] = ()
    gained: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `from_json` parses."""
        return {
            "at": self.at_ms,
            "generation": self.generation,
            "cause": self.cause.value,
            "reason": self.reason,
            "tookMs": self.took_ms,
            "members": self.members,
            "came": list(self.came),
            "went": list(self.went),
            "gained": numbers_by_topic(self.gained),
            "lost": numbers_by_topic(self.lost),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Rebalance":
        """Parse the JSON of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: The value has another form.
        """
        return Rebalance(
            value["at"],
            value["generation"],
            RebalanceCause(value["cause"]),
            value["reason"],
            value["tookMs"],
            value["members"],
            tuple(value["came"]),
            tuple(value["went"]),
            _from_topics(value["gained"]),
            _from_topics(value["lost"]),
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """A successful commit of the group's offsets: its end and its duration, both in milliseconds."""

    at_ms: int
    took_ms: float


@dataclass(frozen=True, slots=True)
class TimeAlignment:
    """How `maxTimestampSkew` has kept the partitions of a micro-batch in step.

    Attributes:
        time_ms: The least timestamp among the next records of partitions that are behind, in ms since 1970.
        held_by: The partition whose next record has this timestamp.
        skew_before_ms: The greatest timestamp of a next record minus `time_ms`; None: the plan looked up no times.
        skew_after_ms: The same as `skew_before_ms` after the micro-batch, for partitions whose ranges no limit has cut;
            None: no such partition.
    """

    time_ms: int
    held_by: TopicPartition
    skew_before_ms: int | None = None
    skew_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DriverFigures:
    """The figures of one micro-batch.

    Attributes:
        at_ms: When the latest offsets were looked up, in milliseconds since 1970.
        group: `kafka.group.id`; None without a group.
        commits: The commits of the driver since the last planned micro-batch.
        failed_commits: The number of commits of the driver that failed since the last planned micro-batch.
        rebalances: The rebalances since the last planned micro-batch.
        latest: The latest offsets, if Spark does not show them (before 4.2); else empty.
        max_offsets: The maximum number of offsets of the micro-batch; None: without `targetTriggerDuration`.
        bad_records: The number of records with values that could not be decoded, from the tasks' reports since the last
            planned micro-batch. None: tasks of the previous batch have not reported, the query has no previous batch,
            values are not decoded, or the first bad value ends the query.
        cores_needed: The busy seconds of the previous batch's tasks, divided by `targetTriggerDuration`; None: this
            option is not set, or tasks of the previous batch have not reported.
        alignment: How the partitions were kept in step; None: no `maxTimestampSkew`, or all partitions read to the end.
        halt: The halt of the query's group; None: the query reads.
    """

    at_ms: int
    group: str | None = None
    commits: tuple[Commit, ...] = ()
    failed_commits: int = 0
    rebalances: tuple[Rebalance, ...] = ()
    latest: Mapping[TopicPartition, int] = field(default_factory=dict)
    max_offsets: int | None = None
    bad_records: int | None = None
    cores_needed: float | None = None
    alignment: TimeAlignment | None = None
    halt: Halt | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `from_json` parses, without empty parts."""
        latest: dict[str, dict[str, int]] = {}
        for tp, offset in sorted(self.latest.items()):
            latest.setdefault(tp.topic, {})[str(tp.partition)] = offset
        everything: dict[str, Any] = {
            "at": self.at_ms,
            "group": self.group,
            "commits": [[commit.at_ms, commit.took_ms] for commit in self.commits],
            "failedCommits": self.failed_commits,
            "rebalances": [rebalance.to_json() for rebalance in self.rebalances],
            "latest": latest,
            "maxOffsets": self.max_offsets,
            "halt": None if self.halt is None else self.halt.to_json(),
        }
        if (step := self.alignment) is not None:
            everything["alignment"] = [step.time_ms, *step.held_by, step.skew_before_ms, step.skew_after_ms]
        counted: dict[str, Any] = {} if self.bad_records is None else {"badRecords": self.bad_records}
        if self.cores_needed is not None:
            counted["coresNeeded"] = round(self.cores_needed, 3)
        return {name: value for name, value in everything.items() if value} | counted

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "DriverFigures":
        """Parse the JSON of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: The value has another form.
        """
        return DriverFigures(
            value["at"],
            value.get("group"),
            tuple(Commit(at, took) for at, took in value.get("commits", ())),
            value.get("failedCommits", 0),
            tuple(Rebalance.from_json(one) for one in value.get("rebalances", ())),
            {
                TopicPartition(topic, int(partition)): offset
                for topic, offsets in value.get("latest", {}).items()
                for partition, offset in offsets.items()
            },
            value.get("maxOffsets"),
            value.get("badRecords"),
            value.get("coresNeeded"),
            None if (step := value.get("alignment")) is None else _alignment(*step),
            Halt.from_json(value.get("halt", "")),
        )


def _alignment(time: int, topic: str, partition: int, before: int | None, after: int | None) -> TimeAlignment:
    return TimeAlignment(time, TopicPartition(topic, partition), before, after)


def _from_topics(value: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for topic, numbers in value.items() for number in numbers)
