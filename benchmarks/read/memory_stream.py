"""The floor of a trigger: a Python source of streams that has its rows in memory, and does nothing else.

What a trigger takes with it is Spark's part for any Python source: two calls of the driver's Python process for the
offsets and the plan, a job of two Python tasks, and Spark's two log files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kafka_source.model.arrow_schema import arrow_schema
from kafka_source.schema import columns_of, schema_for

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
