"""Say that a query starts at its group's committed offsets, which somebody else may have committed.

In Spark's own source `kafka.group.id` is a label, and a query without a checkpoint starts where the starting options
say. Here it starts where the group has committed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from assignors.model import TopicPartition
from kafka_source.options import ReadOptions
from kafka_source.runtime.first_time import first_time

log = logging.getLogger(__name__)


def tell(options: ReadOptions, committed: Collection[TopicPartition], *, commits: bool) -> None:
    """Log that these partitions start at committed offsets; once in this process, and at WARN if it may surprise.

    It is no surprise where the user has set `group.membership=true` or `startingOffsets=committed`.

    Args:
        options: Of a query in a group that has read nothing yet.
        committed: The partitions for which the group has committed an offset.
        commits: Whether the query commits the group's offsets, over those that are there.
    """
    if not committed or not first_time(("committed start", options.group_id)):
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
