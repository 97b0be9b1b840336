"""The sink: rows of a DataFrame as Kafka records, in batches and streams, at least once or exactly once.

The way of the data: Spark's Arrow batches -> `records` (columns as records) -> `delivery` ->
`produce/native` (`accumulator` encodes them, `sender` sends them) or `produce/librdkafka` -> brokers.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from kafka_source.client_config import hidden
from kafka_source.engine_selection import check_engine
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import SinkOptions, sink_options
from kafka_source.quota.settings import QuotaSettings
from kafka_source.sink.delivery import check_settings
from kafka_source.sink.produce.producer_config import producer_config, transactional_config
from kafka_source.sink.schema import sink_columns
from kafka_source.sink.writer import BatchWriter, ExactlyOnce, StreamWriter, Target

__all__ = ["batch_writer", "stream_writer"]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """The writer of a batch.

    Args:
        options: As the user gave them.
        schema: Of the DataFrame.
        overwrite: Whether the mode is `overwrite`, which Kafka cannot do.

    Raises:
        OptionError: An option is wrong.
        InvalidConfigurationError: The mode, or a column of the DataFrame, is not for Kafka.
    """
    if overwrite:
        raise InvalidConfigurationError(
            "Save mode overwrite not allowed for Kafka: records are only ever added to a topic. Use mode append."
        )
    return BatchWriter(_target(options, schema, write_id=uuid.uuid4().hex))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """The writer of a stream, in every output mode: `complete` writes its whole result anew in each batch.

    Args:
        options: As the user gave them.
        schema: Of the stream.
        overwrite: Whether the output mode is `complete`; nothing hangs on it here.

    Raises:
        OptionError: An option is wrong.
        InvalidConfigurationError: A column of the stream is not for Kafka.
    """
    return StreamWriter(_target(options, schema))


def _target(given: Mapping[str, str], schema: StructType, write_id: str | None = None) -> Target:
    options = sink_options(given)
    exactly_once = _exactly_once(options, write_id)
    # The tasks make the producers' configuration; its errors are raised here already.
    _ = producer_config(options.settings) if exactly_once is None else transactional_config(options.settings)
    check_engine(options.engine, options.settings)
    check_settings(options.settings, options.engine)
    return Target(options, sink_columns(schema, options.topic), exactly_once, QuotaSettings.of(options), _name(given))


def _exactly_once(options: SinkOptions, write_id: str | None) -> ExactlyOnce | None:
    prefix, group = options.transactional_id_prefix, options.commit_group
    if prefix is None:
        # The prefix is given if, and only if, `transactional` is true: `check_sink` sees to it.
        return None
    if group is not None and write_id is not None:
        raise OptionError("commit.group", group, "nothing in a batch write: kafka_source.pinned commits a batch read")
    return ExactlyOnce(prefix, write_id, group, replays=options.transactional_on_lost == "replay")


def _name(given: Mapping[str, str]) -> str:
    """A short name of all of these options, without their secrets; option names are case-insensitive."""
    public = hidden({name.lower(): value for name, value in given.items()})
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()[:16]
