"""The format `kafkagroup`: Spark's entry point, which passes the options to readers and writers."""

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
    """`format("kafkagroup")`: a Kafka source and sink for Spark whose queries join a consumer group."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema of Spark's Kafka source; select fewer columns with, e.g., `.schema("value binary")`."""
        return schema_for(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from kafka_source.source.batch import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        from kafka_source.source.stream import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch query."""
        from kafka_source.sink.create_writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a streaming query."""
        from kafka_source.sink.create_writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Register the format in a session; needed only if Spark does not find the module `pyspark_kafkagroup` itself."""
    spark.dataSource.register(KafkaGroupSource)
