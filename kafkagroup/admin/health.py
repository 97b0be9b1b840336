"""Decide whether a group is stalled: partitions have lag, and their committed offsets have not moved. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assignors.model import TopicPartition
from kafka_source.model.partition_runs import format_partitions
from kafkagroup.admin.rows import PartitionLag

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """The samples of one partition of a group.

    Attributes:
        committed: The committed offset in the last sample; None: the group has committed no offset.
        lag: The lag in the last sample, in offsets; without a committed offset, the number of offsets in the log.
        since: The time, in seconds, of the first sample with this committed offset and a lag. Without a lag: the time
            of the last sample.
    """

    committed: int | None
    lag: int
    since: float


Seen = Mapping[TopicPartition, PartitionSeen]


def look_again(before: Seen, now: Iterable[PartitionLag], at: float) -> dict[TopicPartition, PartitionSeen]:
    """Return the samples of each partition, updated by a new sample.

    Args:
        before: The previous samples; empty for the first sample, which treats all committed offsets as advanced.
        now: The group's lag. A partition without a leader has no lag, and is left out because it cannot be read.
        at: The time of the sample in seconds. If the clock went back, all committed offsets are treated as advanced.
    """
    seen = {}
    for row in now:
        partition = TopicPartition(row.topic, row.partition)
        known = before.get(partition)
        if row.behind is None:
            continue
        since = at
        # After a sample without lag, the current lag may be new, even if that sample is old.
        if known is not None and known.lag > 0 and row.behind > 0 and row.committed == known.committed:
            since = min(at, known.since)
        seen[partition] = PartitionSeen(row.committed, row.behind, since)
    return seen


def stalled(seen: Seen, at: float, within: float) -> dict[TopicPartition, PartitionSeen]:
    """Return the lagging partitions whose committed offset has not moved for `within` seconds."""
    return {tp: one for tp, one in seen.items() if one.lag > 0 and at - one.since >= within}


def sentence(group: str, seen: Seen, bad: Seen, at: float) -> str:
    """Return one line about the group, for the log of a probe."""
    if bad:
        longest = at - min(one.since for one in bad.values())
        names = format_partitions(sorted(bad))
        behind = sum(one.lag for one in bad.values())
        return (
            f"Group {group} is stalled: for up to {longest:.0f} s the committed offsets of {names} have not moved, and "
            f"their lag is {behind}."
        )
    lag = sum(one.lag for one in seen.values())
    return f"Group {group} makes progress: its lag is {lag} in {len(seen)} partitions."


def to_text(group: str, seen: Seen) -> str:
    """Return the samples as the text of a state file."""
    rows = [[tp.topic, tp.partition, one.committed, one.lag, one.since] for tp, one in sorted(seen.items())]
    return json.dumps({"format": _FORMAT, "group": group, "partitions": rows})


def from_text(group: str, text: str) -> dict[TopicPartition, PartitionSeen] | None:
    """Return the samples in a state file; None if the text is no state file of this group."""
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT or document["group"] != group:
            return None
        return {
            TopicPartition(str(topic), int(partition)): PartitionSeen(
                None if committed is None else int(committed), int(lag), float(since)
            )
            for topic, partition, committed, lag, since in document["partitions"]
        }
    except (ValueError, TypeError, KeyError):
        return None
