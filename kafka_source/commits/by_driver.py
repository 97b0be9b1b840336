"""Commits by the driver: with `commit=batch`, with `assign` and a group, and in `kafkagroup.pinned`.

Spark requests the next batch when the last batch is durable; the driver commits the last batch before it plans.
"""

from collections.abc import Mapping

from assignors.model import TopicPartition
from kafka_source.commits.policy import CommitPolicy


class ByDriver(CommitPolicy):
    """The driver commits all finished offsets."""

    keeps = signs = True
    driver_id = ""

    def before_plan(self, finished: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return all finished offsets."""
        return finished
