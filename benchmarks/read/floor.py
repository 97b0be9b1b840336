"""The floor: the time that Spark takes for Arrow batches that a Python source already has in memory.

Each worker reads the first batch of its first partition once, with the native engine. A task returns this batch again
until its rows are as many as its partition's. So no task waits for a broker; only the plan does, because it looks up
offsets. The writer drops Spark's Arrow batches.

The floor of a trigger is `MemoryStreamSource`, which only returns rows. Its trigger has Spark's part for any Python
source: two calls of the driver's Python process for offsets and plan, a job of two Python tasks, and two log files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.schema import columns_of, schema_for
from kafka_source.source.batch import BatchReader
from kafka_source.source.read_task import ReadTask

TASKS = 2
_ROW: Mapping[str, object] = {
    "key": None,
    "value": b"." * 100,
    "topic": "memory",
    "partition": 0,
    "offset": 0,
    "timestamp": 0,
    "timestampType": 0,
}
_batches: dict[tuple[object, ...], pa.RecordBatch] = {}


class FloorSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> StructType:
        return schema_for(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return FloorReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return FloorWriter()


class FloorReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._reader = BatchReader(options, schema)
        self._columns = tuple(schema.names)

    def partitions(self) -> list[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        (whole,) = partition.ranges
        key = (whole.topic, self._columns)
        if key not in _batches:
            _batches.clear()
            _batches[key] = next(iter(self._reader.read(partition)))
        left = whole.size
        while left > 0:
            batch = _batches[key].slice(0, left)
            left -= batch.num_rows
            yield batch


class FloorWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class MemoryStreamSource(DataSource):
    """Returns `rowsPerBatch` rows in each micro-batch, in two tasks."""

    @classmethod
    def name(cls) -> str:
        return "memory-stream"

    def schema(self) -> StructType:
        return schema_for({})

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return MemoryStreamReader(int(self.options["rowsPerBatch"]), schema)


@dataclass(frozen=True, slots=True)
class Rows(InputPartition):
    """The rows of one task."""

    count: int


class MemoryStreamReader(DataSourceStreamReader):
    def __init__(self, rows: int, schema: StructType) -> None:
        self._rows = rows
        self._schema = arrow_schema(columns_of(schema))
        self._latest = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"row": 0}

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, int]:  # noqa: N802 - Spark's name
        self._latest += self._rows
        return {"row": self._latest}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [Rows((end["row"] - start["row"]) // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        yield pa.RecordBatch.from_pylist([_ROW] * partition.count, self._schema)
