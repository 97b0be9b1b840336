"""A Kafka source and sink for PySpark that joins real consumer groups.

    spark.readStream.format("kafkagroup").option("kafka.bootstrap.servers", "…").option("subscribe", "orders") \
        .option("kafka.group.id", "billing").load()

The way of the data: `options` → `positions` → `group` → `plan` → Spark's input partitions → `tasks` with an engine of
`fetch` → Arrow record batches → Spark → `commit`. Readers: `batch`, `stream`. Writer: `sink`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_source.datasource import FORMAT, KafkaGroupSource, register
    from kafka_source.pinned_read import pinned

__all__ = ["FORMAT", "KafkaGroupSource", "pinned", "register"]


def __getattr__(name: str) -> object:
    # Importing Spark takes most of a second, which the embedded broker and the command line can do without.
    if name == "pinned":
        from kafka_source import pinned_read

        return pinned_read.pinned
    if name in __all__:
        from kafka_source import datasource

        return getattr(datasource, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
