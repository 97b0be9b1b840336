"""Compare the rows that a task reads with the log."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType, TimestampType

from kafka_source.fetch.protocol import BY_ID
from kafka_source.kafka_client import topic_id_of
from kafka_source.source.read_task import ReadTask
from tests.simulation.brokers.cluster import Cluster, Range
from tests.simulation.brokers.reading import Row, name_of, row_of

READ_SCHEMA = (
    StructType()
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("partition", IntegerType())
)

_BLOCK = 20


def in_one_block(part: Range, offset: int) -> bool:
    """Return whether a sink writes this row and a range of rows as one record, if the row follows the range.

    So the number of records does not depend on the Arrow batches in which the rows come.
    """
    return part[3] // _BLOCK == offset // _BLOCK


class WrongRows(AssertionError):
    """Rows differ from the log."""


class Rows:
    """The rows of some read tasks. All rows must equal the log's, in the log's order, and none may be missing."""

    def __init__(self, cluster: Cluster, tasks: Sequence[ReadTask]) -> None:
        self._cluster = cluster
        # The rest of each range, from the offset after the last row on.
        self._ranges = [
            (r, topic_id_of(task.topics.get(r.topic_partition.topic)), list[int]())
            for task in tasks
            for r in task.ranges
        ]
        # A row of another topic, which a broker may return for a fetch by name. After it, the task must not succeed.
        self._of_others = ""

    def take(self, batch: pa.RecordBatch) -> Iterator[Range]:
        """Yield the rows of a batch as ranges of consecutive rows, each in one block."""
        columns = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns
        ]
        found: Range | None = None
        for offset, micros, key, value, partition in zip(*(one.to_pylist() for one in columns), strict=True):
            topic_id, number, epoch = self._check((offset, micros // 1000, key, value), partition)
            log = self._cluster.log_of(topic_id, number)
            follows = found is not None and found[:3] == (topic_id, number, epoch) and in_one_block(found, offset)
            if found is not None and follows and log is not None and log.read.skip(found[4]) == offset:
                found = (*found[:4], offset + 1)
                continue
            if found is not None:
                yield found
            found = topic_id, number, epoch, offset, offset + 1
        if found is not None:
            yield found

    def _check(self, row: Row, partition: int) -> tuple[str, int, int]:
        topic_id, number, epoch, offset, aborted = name_of(row)
        if row != row_of(topic_id, number, epoch, offset, aborted=aborted) or number != partition:
            raise WrongRows(f"partition {partition} has no row {row}")
        if aborted and self._cluster.read_committed:
            raise WrongRows(f"the transaction of {number}@{offset} was aborted")
        for r, planned, read in self._ranges:
            if r.partition == number and r.start <= offset < r.end:
                told = f"{number}@{offset} is of topic {topic_id} and epoch {epoch}, and {r} was planned"
                if planned is not None and str(planned) != topic_id and self._cluster.fetches.version < BY_ID:
                    self._of_others = told
                    return topic_id, number, epoch
                if (planned is not None and str(planned) != topic_id) or 0 <= r.epoch < epoch:
                    raise WrongRows(told)
                if read and offset <= read[-1]:
                    raise WrongRows(f"{number}@{offset} comes after {read[-1]}")
                read.append(offset)
                return topic_id, number, epoch
        raise WrongRows(f"{number}@{offset} was not planned")

    def end(self) -> None:
        """Check whether rows are missing, except rows that the log has lost in the meantime."""
        if self._of_others:
            raise WrongRows(self._of_others)
        for r, planned, read in self._ranges:
            topic = self._cluster.topics[r.topic_partition.topic]
            log = topic.partitions[r.partition]
            if planned not in (None, topic.id):
                continue
            kept = range(max(r.start, log.read.start), min(r.end, log.lost_from))
            missing = set(kept) - log.read.gaps - set(read)
            if missing:
                raise WrongRows(f"{r.topic_partition} misses {len(missing)} rows from {min(missing)} on")
