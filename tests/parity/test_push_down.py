"""Why kafkagroup pushes no filters: Spark keeps the plan of one filter for the whole DataFrame.

Spark stores the planned read of a Python source in the DataFrame, and uses it for each later action, whatever its
filter was. This test shows that with a source of its own. If it fails, Spark has mended that, and filters can be
pushed.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition
from pyspark.sql.types import StructType

from kafka_source.source.batch import BatchReader


class _Numbers(DataSource):
    """A source that gives 0 to 9, and reads only what an equality filter asks for."""

    @classmethod
    def name(cls) -> str:
        return "numbers_with_filters"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def __init__(self) -> None:
        self.only: int | None = None

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        for one in filters:
            if isinstance(one, EqualTo):
                self.only = one.value
            # Spark applies the filter too, so that what is read may be more than what is asked for.
            yield one

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(n,) for n in range(10) if self.only in (None, n)])


@pytest.mark.forced("Spark keeps the plan of a pushed filter for all actions of a DataFrame")
def test_spark_reads_the_plan_of_one_filter_for_a_frame_without_a_filter(spark: SparkSession) -> None:
    spark.dataSource.register(_Numbers)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("numbers_with_filters").load()
        assert frame.count() == 10
        frame = spark.read.format("numbers_with_filters").load()
        assert frame.filter("n = 3").count() == 1
        # Ten rows are right.
        assert frame.count() == 1, "Spark has mended its push-down: kafkagroup can push filters on offsets and times"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_kafkagroup_pushes_no_filters() -> None:
    assert BatchReader.pushFilters is DataSourceReader.pushFilters
