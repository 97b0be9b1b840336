"""The options of the format: declared once, checked, typed, and described.

Names are case-insensitive, as in Spark. Options with the prefix `kafka.` that are not declared here go to the Kafka
clients unchanged (`kafka_source.client_config`).
"""

from kafka_source.options.catalog import OPTIONS, ReadOptions, SinkOptions
from kafka_source.options.common import CommonOptions
from kafka_source.options.declaration import KAFKA_PREFIX, Where
from kafka_source.options.validation import (
    check_load,
    check_read,
    check_sink,
    column_options,
    load_options,
    read_options,
    sink_options,
)

__all__ = [
    "KAFKA_PREFIX",
    "OPTIONS",
    "CommonOptions",
    "ReadOptions",
    "SinkOptions",
    "Where",
    "check_load",
    "check_read",
    "check_sink",
    "column_options",
    "load_options",
    "read_options",
    "sink_options",
]
