"""The offsets that the target of a rewind means at this moment, looked up in the cluster."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.lookup import Cluster
from kafka_source.model.rewind_target import Known, Move, Target, resolve, timestamps


def moves_now(
    cluster: Cluster,
    target: Target,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    other: Mapping[TopicPartition, int],
) -> tuple[Move, ...]:
    """Return the new positions of a group, sorted; partitions that the target leaves as they are are left out.

    Args:
        cluster: The cluster, which is asked for the bounds of the logs, and for the offsets of a time.
        target: Where the group shall continue.
        partitions: The partitions to move.
        committed: The committed offsets of the group.
        other: The committed offsets of the target's `other_group`; empty if it has none.

    Raises:
        OptionError: A partition has no committed offset that could be shifted.
        UnknownTopicError: A partition does not exist.
        KafkaGroupError: The brokers do not answer, or refuse a request.
    """
    starts, ends = cluster.bounds(partitions, partitions, read_committed=False)
    times = timestamps(target, partitions, round(time.time() * 1000))
    found = cluster.at_times(times) if times else {}
    return resolve(target, partitions, Known(starts, ends, committed, found, other))
