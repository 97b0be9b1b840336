"""Register the format `kafkagroup`: Spark imports every module named `pyspark_*` and registers its `DefaultSource`."""

from kafka_source.datasource import KafkaGroupSource as DefaultSource

__all__ = ["DefaultSource"]
