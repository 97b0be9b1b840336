"""Samples of a query's source, one for each micro-batch, and the age of records (`ProductionCurve`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assignors.model import TopicPartition
from kafka_source.model.driver_figures import Commit, Rebalance

VERSION = 1


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """One partition in a micro-batch.

    Attributes:
        start: The first offset of the micro-batch.
        end: The offset after the micro-batch's last offset.
        slot: The slot that read the partition; -1 without a group.
        latest: The end offset of the partition when the micro-batch was planned.
        lag_seconds: The age of the record at offset `end` when the micro-batch was planned; 0 without such a record.
    """

    start: int
    end: int
    slot: int
    latest: int
    lag_seconds: float

    @property
    def lag(self) -> int:
        """Return the number of offsets between `end` and `latest`."""
        return max(0, self.latest - self.end)


@dataclass(frozen=True, slots=True)
class Sample:
    """The work of one source of a query in one micro-batch.

    Attributes:
        at: When the latest offsets were looked up, in seconds since 1970.
        query: The query's name, or its id if it has no name.
        query_id: The query's id, which the checkpoint stores.
        run_id: The id of this run.
        batch: The number of the micro-batch.
        source: The number of the source in the query, from 0.
        group: `kafka.group.id`; None without a group.
        generation: The group's generation; -1 without a group.
        rows: Rows that Spark got from the source.
        seconds: How long the trigger took.
        partitions: The partitions of the micro-batch; empty if the micro-batch did not read this source.
        commits: The driver's commits since the last micro-batch.
        failed_commits: The number of the driver's failed commits since the last micro-batch.
        rebalances: The rebalances since the last micro-batch.
        quota: The quota's figures; see docs/quotas.md. If a restart repeats a micro-batch, the quota, commits,
            rebalances and bad records are empty, and `halted` is false, because the checkpoint has only the previous
            run's figures.
        bad_records: How many records of the previous micro-batch could not be decoded; None: unknown, values
            are not decoded, or a bad value ends the query.
        cores_needed: Cores that the previous micro-batch needed for the target duration; None: no target, or unknown.
        halted: Whether the group was paused or stopped.
        is_look: Whether the sample is of a lookup of end offsets, not of a finished micro-batch. For a lookup, rows,
            seconds and counts are 0 or empty, and each `start` is the `end` of the last finished micro-batch.
    """

    at: float
    query: str
    query_id: str
    run_id: str
    batch: int
    source: int
    group: str | None
    generation: int
    rows: int
    seconds: float
    partitions: Mapping[TopicPartition, PartitionSample]
    commits: tuple[Commit, ...] = ()
    failed_commits: int = 0
    rebalances: tuple[Rebalance, ...] = ()
    quota: Mapping[str, Any] = field(default_factory=dict)
    bad_records: int | None = None
    cores_needed: float | None = None
    halted: bool = False
    is_look: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that `from_json` parses: one line of a file of samples."""
        partitions: dict[str, dict[str, list[int | float]]] = {}
        for tp, one in sorted(self.partitions.items()):
            row = [one.start, one.end, one.slot, one.latest, round(one.lag_seconds, 3)]
            partitions.setdefault(tp.topic, {})[str(tp.partition)] = row
        return {
            "version": VERSION,
            "at": self.at,
            "query": self.query,
            "queryId": self.query_id,
            "runId": self.run_id,
            "batch": self.batch,
            "source": self.source,
            "group": self.group,
            "generation": self.generation,
            "rows": self.rows,
            "seconds": self.seconds,
            "partitions": partitions,
            "commits": [[commit.at_ms, commit.took_ms] for commit in self.commits],
            "failedCommits": self.failed_commits,
            "rebalances": [rebalance.to_json() for rebalance in self.rebalances],
            "quota": self.quota,
            "badRecords": self.bad_records,
            "coresNeeded": self.cores_needed,
            "halted": self.halted,
            "isLook": self.is_look,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Sample:
        """Parse the result of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: The value is not a sample, or its version is newer than `VERSION`.
        """
        if value["version"] > VERSION:
            raise ValueError(f"a sample of version {value['version']}; this kafkagroup reads up to {VERSION}")
        return Sample(
            at=value["at"],
            query=value["query"],
            query_id=value["queryId"],
            run_id=value["runId"],
            batch=value["batch"],
            source=value["source"],
            group=value["group"],
            generation=value["generation"],
            rows=value["rows"],
            seconds=value["seconds"],
            partitions={
                TopicPartition(topic, int(partition)): PartitionSample(*row)
                for topic, rows in value["partitions"].items()
                for partition, row in rows.items()
            },
            commits=tuple(Commit(at, took) for at, took in value["commits"]),
            failed_commits=value["failedCommits"],
            rebalances=tuple(Rebalance.from_json(one) for one in value["rebalances"]),
            quota=value["quota"],
            bad_records=value.get("badRecords"),
            cores_needed=value.get("coresNeeded"),
            halted=value.get("halted", False),
            is_look=value.get("isLook", False),
        )


class ProductionCurve:
    """The end offsets of one partition over time.

    The time of an offset between two end offsets is interpolated, as in Kafka Lag Exporter. Frequent lookups make
    the interpolated time exact.

    Args:
        max_points: The maximum number of end offsets. Above this maximum, every second end offset of the older half
            is dropped. None: no maximum.
    """

    def __init__(self, max_points: int | None = 256) -> None:
        self._max_points = max_points
        self._times: list[float] = []
        self._ends: list[int] = []

    def observe(self, at: float, end: int) -> None:
        """Record the end offset at a time in seconds since 1970, unless a later end offset is known."""
        if self._times and at <= self._times[-1]:
            # A lookup took long, or a restart repeats a micro-batch.
            return
        if self._ends and end < self._ends[-1]:
            # The topic was created again, or its log was truncated: earlier end offsets are invalid.
            self._times, self._ends = [], []
        if len(self._ends) > 1 and self._ends[-2] == end:
            # No record was written: move the time of the last end offset.
            self._times[-1] = at
            return
        self._times.append(at)
        self._ends.append(end)
        if self._max_points is not None and len(self._ends) > self._max_points:
            half = self._max_points // 2
            self._times[1:half] = self._times[2:half:2]
            self._ends[1:half] = self._ends[2:half:2]

    def forget_before(self, offset: int) -> None:
        """Drop the lookups that are needed only for earlier offsets."""
        first = max(0, bisect_right(self._ends, offset) - 1)
        del self._times[:first], self._ends[:first]

    def covers(self, offset: int) -> bool:
        """Return whether the record at this offset was written after the first lookup."""
        return bool(self._ends) and offset >= self._ends[0]

    def written_at(self, offset: int) -> float | None:
        """Return the approximate time at which the record at this offset was written, in seconds since 1970.

        None: the log has not reached the offset. For an offset before the first lookup, the write rate since that
        lookup gives the time. If the rate is 0, the result is the time of the first lookup, which is too late.
        """
        if not self._ends or offset >= self._ends[-1]:
            return None
        # The write of this record moved the end offset from `offset` to `offset + 1`.
        after = bisect_right(self._ends, offset)
        if after == 0:
            span, produced = self._times[-1] - self._times[0], self._ends[-1] - self._ends[0]
            early = (self._ends[0] - offset) * span / produced if produced else 0.0
            return self._times[0] - early
        t0, t1 = self._times[after - 1], self._times[after]
        e0, e1 = self._ends[after - 1], self._ends[after]
        return t0 + (t1 - t0) * (offset - e0) / (e1 - e0)

    def age(self, position: int, now: float) -> float:
        """Return how many seconds ago the record at `position` was written; 0 if it is not written yet."""
        written = self.written_at(position)
        return 0.0 if written is None else max(0.0, now - written)
