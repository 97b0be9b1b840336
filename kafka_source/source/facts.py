"""Look up the facts that decide where partitions continue.

| need | request | in which trigger |
| --- | --- | --- |
| `GROUP` | OffsetFetch | at a start, after a rebalance, for a new partition |
| `START` | ListOffsets | where neither the query nor its group has read a partition |
| `LATEST` | ListOffsets | in each trigger |
| `EPOCH_END` | OffsetForLeaderEpoch | where a leader has changed (KIP-320) |
| `BOUNDS` | ListOffsets, twice | where a log ends before the read position |

A decision names one need at a time, in the table's order, so a trigger has at most one lookup for each need. A trigger
without a rebalance or a loss has only one lookup. `standstill` looks up halts, and `log_times` the records' timestamps.
"""

from collections.abc import Collection, Mapping

from assignors.model import TopicPartition
from kafka_source.cluster.list_offsets import ListedOffset
from kafka_source.cluster.lookup import Cluster
from kafka_source.commits.offsets import Offsets
from kafka_source.model.commits import CommitOffset
from kafka_source.options import ReadOptions
from kafka_source.source import start_and_end
from kafka_source.source.decision import Start
from kafka_source.source.option_bounds import Bound
from kafka_source.source.positions import Positions


class Look:
    """Look up the offsets of a stream's group and the logs of its partitions.

    Args:
        options: The stream's options.
        cluster: The stream's cluster.
        offsets: The offsets of the stream's group.
        positions: The known facts of the stream's partitions and topics.
    """

    def __init__(self, options: ReadOptions, cluster: Cluster, offsets: Offsets, positions: Positions) -> None:
        self._options, self._cluster = options, cluster
        self._offsets, self._positions = offsets, positions

    def committed(
        self, partitions: Collection[TopicPartition], lost_topics: Collection[str]
    ) -> dict[TopicPartition, CommitOffset]:
        """Return the group's committed offsets that count.

        Args:
            partitions: The partitions.
            lost_topics: The topics that were created again. A committed offset may still be of the deleted topic.
        """
        return {
            tp: entry
            for tp, entry in self._offsets.committed([*partitions]).items()
            if tp.topic not in lost_topics or self._positions.is_of_new_topic(tp, entry)
        }

    def starts(
        self, bounds: Mapping[TopicPartition, Bound], begins: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, int]:
        """Return the starts of partitions.

        Args:
            bounds: The starts that the options give for partitions.
            begins: The partitions that begin at their first offset.

        Raises:
            DataLossError: A partition that was added does not begin at offset 0, and `failOnDataLoss` is set.
            InvalidConfigurationError: A partition has no record at or after its starting timestamp.
            NoLeaderError: A partition begins at `latest` or at a time, and has no leader.
        """
        looked_up = start_and_end.look_up(self._cluster, self._options, bounds, matches=True)
        found = {tp: one.offset for tp, one in looked_up.items()}
        added = [tp for tp, one in begins.items() if one is Start.ADDED]
        found |= start_and_end.earliest_of_added(self._cluster, self._options, added)
        return found | self._cluster.earliest([tp for tp, one in begins.items() if one is Start.FIRST])

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, ListedOffset]:
        """Return the latest offsets; with `read_committed` the last stable offsets."""
        return self._cluster.latest_with_epochs(partitions, read_committed=self._options.read_committed)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of these epochs in the current leaders' logs; -1: unknown."""
        return dict.fromkeys(epochs, -1) | self._cluster.epoch_ends(epochs)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end of each log; before the end there may be open transactions."""
        earliest = self._cluster.earliest(partitions)
        ends = self._cluster.latest_with_epochs(partitions, read_committed=False)
        return {tp: (earliest[tp], ends[tp].offset) for tp in partitions}
