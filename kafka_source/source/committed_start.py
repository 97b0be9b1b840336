"""Say that a query starts, or continues, at its group's committed offsets, which somebody else has committed.

In Spark's own source `kafka.group.id` is a label, and a query without a checkpoint starts where the starting options
say. Here it starts where the group has committed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.options import ReadOptions
from kafka_source.runtime.logs import once

log = logging.getLogger(__name__)

# The maximum number of partitions that a line names.
_MOST_NAMED = 5


def log_committed_start(options: ReadOptions, committed: Collection[TopicPartition], *, commits: bool) -> None:
    """Log that these partitions start at committed offsets; once in this process, and at WARN if it may surprise.

    It is no surprise where the user has set `group.membership=true` or `startingOffsets=committed`.

    Args:
        options: Of a query in a group that has read nothing yet.
        committed: The partitions for which the group has committed an offset.
        commits: Whether the query commits the group's offsets, over those that are there.
    """
    if not committed or not once(("committed start", options.group_id)):
        return
    is_meant = options.group_membership is True or options.starting_offsets == "committed"
    log.log(
        logging.INFO if is_meant else logging.WARNING,
        "group=%s has committed offsets in %d of this query's partitions, and this query has no checkpoint: it starts "
        "there at the committed offsets, not where startingOffsets or the other starting options say.%s To start where "
        "the options say, set group.start=starting. If kafka.group.id is meant as a label, as in Spark's own source, "
        "set group.membership=false. If the query is meant to continue where the group is, set group.membership=true, "
        "and this line is logged at INFO.",
        options.group_id,
        len(committed),
        " It commits its own offsets over them (commit=none commits nothing)." if commits else "",
    )


def log_moves(options: ReadOptions, moves: Mapping[TopicPartition, tuple[int, int]], *, of_spark: bool) -> None:
    """Log that a query leaves out what others of its group have read; one line for all partitions.

    Args:
        options: Of the query.
        moves: The query's own position and the group's offset, by partition; empty: nothing is logged.
        of_spark: Whether the checkpoint is of Spark's own Kafka source, where the group's id was only a label.
    """
    if not moves:
        return
    log.warning(
        "group=%s has committed offsets ahead of this query's checkpoint, and not by this query: it continues there, "
        "and leaves out what is in between: %s.%s",
        options.group_id,
        named(moves),
        " The checkpoint is of Spark's own Kafka source, where kafka.group.id is only a label: if others used the same "
        "one, stop this query, and start it with group.membership=false or with a group of its own."
        if of_spark
        else "",
    )


def named(moves: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Return some partitions with where they go from and to, and how many more there are."""
    texts = [f"{tp.topic}-{tp.partition} from={before} to={to}" for tp, (before, to) in sorted(moves.items())]
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return ", ".join(texts[:_MOST_NAMED]) + more
