"""A Kafka source and sink for PySpark that joins real consumer groups: the public names and the tools.

    spark.readStream.format("kafkagroup").option("kafka.bootstrap.servers", "…").option("subscribe", "orders") \
        .option("kafka.group.id", "billing").load()

The public API is `__all__` here and in the modules that docs/public-api.md lists. docs/public-api.md also lists the
provisional names. Everything else is internal, including `kafka_source`, the connector that Spark runs.
"""

# Provisional names are re-exported by `name as name`, in the same statements as the public ones.
# ruff: noqa: I001

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from kafka_source.version import __version__

if TYPE_CHECKING:
    from kafka_source.arrow_function import arrow_function
    from kafka_source.client_config import Settings
    from kafka_source.datasource import FORMAT as FORMAT, KafkaGroupSource as KafkaGroupSource, register
    from kafka_source.errors import (
        AbortableError,
        ApplicationRecoverableError,
        AssignmentFailed as AssignmentFailed,
        AuthenticationError,
        BootstrapError as BootstrapError,
        CorruptRecordsError as CorruptRecordsError,
        DataLossError,
        DeliveryError as DeliveryError,
        FencedError,
        InvalidConfigurationError,
        KafkaGroupError,
        LostTransactionsError,
        NotVisibleError as NotVisibleError,
        OptionError,
        RefreshRetriableError,
        RetriableError,
        UnknownGroupError,
        UnknownOutcomeError,
        UnknownTopicError,
        UnreadableRecordError as UnreadableRecordError,
        category as category,
        code_name as code_name,
        error_for_code as error_for_code,
        from_confluent as from_confluent,
    )
    from kafka_source.group import (
        GenericMember as GenericMember,
        MemberSettings as MemberSettings,
        MemberState as MemberState,
        RebalanceTimeout as RebalanceTimeout,
    )
    from kafka_source.mapped_read import map_in_arrow
    from kafka_source.pinned_read import pinned
    from kafka_source.transactions import (
        Transaction as Transaction,
        TransactionalProducers as TransactionalProducers,
        run_transaction as run_transaction,
    )
    from kafkagroup import progress as progress
    from kafkagroup.partitioner import partition_of as partition_of
    from kafkagroup.progress import StopListener

__all__ = [
    "AbortableError",
    "ApplicationRecoverableError",
    "AuthenticationError",
    "DataLossError",
    "FencedError",
    "InvalidConfigurationError",
    "KafkaGroupError",
    "LostTransactionsError",
    "OptionError",
    "RefreshRetriableError",
    "RetriableError",
    "Settings",
    "StopListener",
    "UnknownGroupError",
    "UnknownOutcomeError",
    "UnknownTopicError",
    "__version__",
    "arrow_function",
    "map_in_arrow",
    "pinned",
    "register",
]

# Each name loads its module at first use: importing Spark takes most of a second, and the embedded broker and the
# command line do not need Spark. Names that are missing in this table are classes and functions of
# `kafka_source.errors`.
_MODULES = {
    "FORMAT": "kafka_source.datasource",
    "GenericMember": "kafka_source.group",
    "KafkaGroupSource": "kafka_source.datasource",
    "MemberSettings": "kafka_source.group",
    "MemberState": "kafka_source.group",
    "RebalanceTimeout": "kafka_source.group",
    "Settings": "kafka_source.client_config",
    "StopListener": "kafkagroup.progress",
    "Transaction": "kafka_source.transactions",
    "TransactionalProducers": "kafka_source.transactions",
    "arrow_function": "kafka_source.arrow_function",
    "map_in_arrow": "kafka_source.mapped_read",
    "partition_of": "kafkagroup.partitioner",
    "pinned": "kafka_source.pinned_read",
    "progress": "kafkagroup.progress",
    "register": "kafka_source.datasource",
    "run_transaction": "kafka_source.transactions",
}


# The errors among the provisional names of docs/public-api.md.
_PROVISIONAL_ERRORS = (
    "AssignmentFailed",
    "BootstrapError",
    "CorruptRecordsError",
    "DeliveryError",
    "NotVisibleError",
    "UnreadableRecordError",
    "category",
    "code_name",
    "error_for_code",
    "from_confluent",
)


def __getattr__(name: str) -> object:
    if name not in {*__all__, *_MODULES, *_PROVISIONAL_ERRORS}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_MODULES.get(name, "kafka_source.errors"))
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        # Spark is often missing: pyspark is no dependency, because pip would replace a vendor's pyspark.
        raise ImportError(_spark_is_missing(error), name="pyspark") from None
    return module if name == "progress" else getattr(module, name)


def _spark_is_missing(error: ImportError) -> str:
    what = "has none" if error.name == "pyspark" else f"has an older version ({error})"
    return (
        f"kafkagroup needs pyspark 4.0 or newer, and {sys.prefix} {what}. Run `pip install 'kafkagroup[spark]'`; "
        "for Spark Connect alone `pip install pyspark-client`; Databricks and databricks-connect include pyspark."
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, *_PROVISIONAL_ERRORS})
