"""Logging of Spark's Python processes, which Spark does not configure: option `log.level`, `KAFKAGROUP_LOG_LEVEL`."""

from __future__ import annotations

import logging
import os

LEVEL = "KAFKAGROUP_LOG_LEVEL"
_PACKAGE = "kafka_source"
_HANDLER = "kafkagroup"


def set_up(level: str | None = None) -> None:
    """Log this package to standard error.

    Args:
        level: The option `log.level`; None: the level in the variable `KAFKAGROUP_LOG_LEVEL`. If neither is set, or if
            the program has configured this package's logging itself, this function changes nothing.
    """
    number = logging.getLevelName((level or os.environ.get(LEVEL, "")).upper())
    package = logging.getLogger(_PACKAGE)
    if not isinstance(number, int):
        return
    if package.handlers:
        # A worker process serves several queries. The level that a query asks for replaces the one of the last query.
        if level is not None and any(handler.name == _HANDLER for handler in package.handlers):
            package.setLevel(number)
        return
    handler = logging.StreamHandler()
    handler.set_name(_HANDLER)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    package.addHandler(handler)
    package.setLevel(number)
    package.propagate = False
