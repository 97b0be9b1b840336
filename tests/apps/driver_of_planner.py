"""Print the id of the driver's process as a planner of a Python data source sees it, and the JVM's own.

python -m tests.apps.driver_of_planner USE_DAEMON
"""

import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafka_source.runtime.spark_processes import driver_pid


class DriverOfPlanner(DataSource):
    """One row: what `driver_pid` returns in the process that plans."""

    @classmethod
    def name(cls) -> str:
        return "driver-of-planner"

    def schema(self) -> str:
        return "pid bigint"

    def reader(self, schema: object) -> DataSourceReader:
        return _Reader()


class _Reader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(driver_pid())]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


def seen_and_real(spark: SparkSession) -> tuple[int, int]:
    """Return the id that a planner sees, and that of the JVM."""
    spark.dataSource.register(DriverOfPlanner)
    seen: int = spark.read.format("driver-of-planner").load().collect()[0][0]
    assert spark._jvm is not None
    real: int = spark._jvm.java.lang.ProcessHandle.current().pid()
    return seen, real


def main(use_daemon: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.use.daemon", use_daemon).getOrCreate()
    print(*seen_and_real(spark), sep="\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
