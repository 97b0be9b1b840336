"""A Kafka source and sink for PySpark that joins real consumer groups.

    spark.readStream.format("kafkagroup").option("kafka.bootstrap.servers", "…").option("subscribe", "orders") \
        .option("kafka.group.id", "billing").load()

`__all__` here and in the modules that docs/public-api.md lists is the public API. Everything else is internal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kafka_source.version import __version__

if TYPE_CHECKING:
    from kafka_source.client_config import Settings
    from kafka_source.datasource import FORMAT, KafkaGroupSource, register
    from kafka_source.pinned_read import pinned
    from kafka_source.sink.produce.partitioner import partition_of

__all__ = ["FORMAT", "KafkaGroupSource", "Settings", "__version__", "partition_of", "pinned", "register"]

# Importing Spark takes most of a second. The embedded broker and the command line do not need it, so that each name
# loads its module at first use.
_MODULES = {
    "FORMAT": "kafka_source.datasource",
    "KafkaGroupSource": "kafka_source.datasource",
    "Settings": "kafka_source.client_config",
    "partition_of": "kafka_source.sink.produce.partitioner",
    "pinned": "kafka_source.pinned_read",
    "register": "kafka_source.datasource",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
