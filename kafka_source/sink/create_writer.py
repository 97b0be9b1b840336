"""Create Spark's writers from the user's options and the DataFrame's schema."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from kafka_source.client_config import hidden
from kafka_source.client_config.java_settings import Role
from kafka_source.engine_selection import check_engine
from kafka_source.errors import InvalidConfigurationError, OptionError
from kafka_source.options import SinkOptions, sink_options
from kafka_source.quota.bounds import QuotaSettings
from kafka_source.sink.delivery import check_settings, writes_native
from kafka_source.sink.produce.producer_config import check_transactional
from kafka_source.sink.schema import sink_columns
from kafka_source.sink.target import ExactlyOnce, Target
from kafka_source.sink.writer import BatchWriter, StreamWriter


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Create the writer of a batch write.

    Args:
        options: The user's options.
        schema: The DataFrame's schema.
        overwrite: Whether the save mode is `overwrite`, which Kafka does not support.

    Raises:
        OptionError: An option is wrong.
        InvalidConfigurationError: The save mode is `overwrite`, or a column cannot be written to Kafka.
    """
    if overwrite:
        raise InvalidConfigurationError(
            "Save mode overwrite not allowed for Kafka: records can only be appended to a topic. Use mode append."
        )
    return BatchWriter(_target(options, schema, write_id=uuid.uuid4().hex))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """Create the writer of a stream, in any output mode: `complete` appends its whole result in each micro-batch.

    Args:
        options: The user's options.
        schema: The stream's schema.
        overwrite: Whether the output mode is `complete`; ignored.

    Raises:
        OptionError: An option is wrong.
        InvalidConfigurationError: A column cannot be written to Kafka.
    """
    return StreamWriter(_target(options, schema))


def _target(given: Mapping[str, str], schema: StructType, write_id: str | None = None) -> Target:
    options = sink_options(given)
    exactly_once = _exactly_once(options, write_id)
    check_settings(options.settings, options.engine)
    native = writes_native(options.settings, options.engine)
    check_engine(options.engine, options.settings, Role.PRODUCER, native=native)
    if exactly_once is not None:
        check_transactional(options.settings)
    return Target(options, sink_columns(schema, options.topic), exactly_once, QuotaSettings.of(options), _name(given))


def _exactly_once(options: SinkOptions, write_id: str | None) -> ExactlyOnce | None:
    prefix, group = options.transactional_id_prefix, options.commit_group
    if prefix is None:
        # `check_sink` ensures that there is a prefix if and only if `transactional` is true.
        return None
    if group is not None and write_id is not None:
        raise OptionError("commit.group", group, "nothing in a batch write: kafkagroup.pinned commits a batch read")
    return ExactlyOnce(prefix, write_id, group, replays=options.transactional_on_lost == "replay")


def _name(given: Mapping[str, str]) -> str:
    """Return a hash of all options without their secrets. Option names are case-insensitive."""
    public = hidden({name.lower(): value for name, value in given.items()})
    return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()[:16]
