"""The driver commits: `commit=batch`, `assign` with a group, and `kafkagroup.pinned`.

Spark requests the next batch when the last one is durable; the driver commits before it plans.
"""

from __future__ import annotations

from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.commits.policy import CommitPolicy


class ByDriver(CommitPolicy):
    """The driver commits all that is finished."""

    keeps = signs = True
    driver_id = ""

    def before_plan(self, finished: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return all finished offsets."""
        return finished
