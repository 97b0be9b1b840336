"""What every reader and writer does first: check the options, set up this process' log, log the warnings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

from kafka_source.options.catalog import ReadOptions, SinkOptions
from kafka_source.options.declaration import Where
from kafka_source.options.validation import check_load, check_read, check_sink
from kafka_source.runtime import log_setup

log = logging.getLogger(__name__)


def load_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read that is being loaded: Spark says later whether it is a batch or a stream.

    The warnings are left to `read_options`, which knows that.

    Raises:
        OptionError: See `check_load`.
    """
    log_setup.set_up()
    return check_load(given).options


def read_options(given: Mapping[str, str], where: Where) -> ReadOptions:
    """Return the options of a read.

    Args:
        given: The options as Spark passes them.
        where: BATCH or STREAM.

    Raises:
        OptionError: See `check_read`.
    """
    checked = check_read(given, where)
    log_setup.set_up(checked.options.log_level, checked.options.log_format)
    _warn(checked.warnings)
    return checked.options


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the options of a write.

    Raises:
        OptionError: See `check_sink`.
    """
    checked = check_sink(given)
    log_setup.set_up(checked.options.log_level, checked.options.log_format)
    _warn(checked.warnings)
    return checked.options


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        _warn_once(warning)


@cache
def _warn_once(warning: str) -> None:
    """Log a warning, in this process for the first time only: Spark makes a writer for every micro-batch."""
    log.warning("%s", warning)
