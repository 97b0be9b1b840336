"""The sink: rows of a DataFrame as Kafka records, in batches and streams, at least once or exactly once.

The way of the data: Spark's Arrow batches -> `records` (columns as records) -> `delivery` ->
`produce/native` (`accumulator` encodes them, `sender` sends them) or `produce/librdkafka` -> brokers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from kafka_source.client_config import Settings, hidden
from kafka_source.engine_selection import check_engine
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import Options, Where, parse
from kafka_source.quota.settings import QuotaSettings
from kafka_source.sink.delivery import check_settings
from kafka_source.sink.produce.producer_config import producer_config, transactional_config
from kafka_source.sink.schema import sink_columns
from kafka_source.sink.writer import BatchWriter, ExactlyOnce, StreamWriter, Target

__all__ = ["batch_writer", "stream_writer"]

log = logging.getLogger(__name__)


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
    options = parse(given, Where.SINK)
    for warning in options.warnings:
        log.warning(warning)
    settings = Settings(options.kafka)
    exactly_once = _exactly_once(options, write_id)
    # Of the tasks; what is wrong with it is told here.
    _ = producer_config(settings) if exactly_once is None else transactional_config(settings)
    check_engine(options["engine"], settings)
    check_settings(settings, options["engine"])
    topic = options["topic"]
    return Target(
        settings,
        sink_columns(schema, topic),
        topic,
        exactly_once,
        options["engine"],
        QuotaSettings.of(options),
        _name(given),
    )


def _exactly_once(options: Options, write_id: str | None) -> ExactlyOnce | None:
    prefix, group = options["transactional.id.prefix"], options["commit.group"]
    if not options["transactional"]:
        for name in ("transactional.id.prefix", "transactional.lost", "commit.group"):
            if options.given(name):
                raise OptionError(name, options[name], "a value only with transactional=true")
        return None
    if prefix is None:
        raise OptionError(
            "transactional.id.prefix", None, "a name for this query's transactions, the same after every restart"
        )
    if group is not None and write_id is not None:
        raise OptionError("commit.group", group, "nothing in a batch write: kafka_source.pinned commits a batch read")
    return ExactlyOnce(prefix, write_id, group, replays=options["transactional.lost"] == "replay")


def _name(given: Mapping[str, str]) -> str:
    """A short name of all of these options, without their secrets; option names are case-insensitive."""
    public = hidden({name.lower(): value for name, value in given.items()})
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()[:16]
