"""The floor: the time that Spark takes for Arrow batches that a Python source already has in memory.

Each worker reads the first batch of its first partition with the native engine, once, and returns it repeatedly until
it has returned as many rows as a task's partition has. So a task does not wait for a broker, near or far; the plan
does, for the offsets. Its writer takes Spark's Arrow batches and drops them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kafka_source.schema import schema_for
from kafka_source.source.batch import BatchReader
from kafka_source.source.read_task import ReadTask

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
