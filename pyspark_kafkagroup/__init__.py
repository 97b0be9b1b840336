"""Spark imports every module named `pyspark_*` and registers its `DefaultSource`; that makes the format known."""

from kafka_source.datasource import KafkaGroupSource as DefaultSource

__all__ = ["DefaultSource"]
