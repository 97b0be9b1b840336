"""A Kafka source and sink for PySpark that joins real consumer groups.

    spark.readStream.format("kafkagroup").option("kafka.bootstrap.servers", "…").option("subscribe", "orders") \
        .option("kafka.group.id", "billing").load()

`__all__` here and in the modules that docs/public-api.md lists is the public API. Everything else is internal.
"""

from __future__ import annotations

import sys
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
    try:
        module = import_module(_MODULES[name])
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        # Spark is not a dependency, because another pyspark would replace a vendor's own. So this is the usual error
        # of an incomplete installation, and one line says what to do.
        raise ImportError(_spark_is_missing(error), name="pyspark") from None
    return getattr(module, name)


def _spark_is_missing(error: ImportError) -> str:
    what = "there is none" if error.name == "pyspark" else f"this one is older ({error})"
    return (
        f"kafkagroup needs pyspark 4.0 or newer, and in {sys.prefix} {what}. Run `pip install 'kafkagroup[spark]'`; "
        "for Spark Connect alone `pip install pyspark-client`; on Databricks or with databricks-connect use theirs."
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
