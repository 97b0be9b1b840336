"""The format `kafkagroup`: hands options to readers and writers, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from kafka_source.schema import schema_for

FORMAT = "kafkagroup"


class KafkaGroupSource(DataSource):
    """`format("kafkagroup")`: Spark's Kafka source and sink as a member of a consumer group."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Spark's Kafka schema; ask for less with `.schema("value binary")`."""
        return schema_for(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from kafka_source.source.batch import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A stream read."""
        from kafka_source.source.stream import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from kafka_source.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A stream write."""
        from kafka_source.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Make the format known to a session; needed only where Spark does not find `pyspark_kafkagroup` by itself."""
    spark.dataSource.register(KafkaGroupSource)
