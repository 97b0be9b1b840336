"""Logging of Spark's Python processes, which Spark does not configure: `KAFKAGROUP_LOG_LEVEL`."""

from __future__ import annotations

import logging
import os

LEVEL = "KAFKAGROUP_LOG_LEVEL"
_PACKAGE = "kafka_source"


def set_up() -> None:
    """Log this package to standard error at the level in `KAFKAGROUP_LOG_LEVEL`, if the variable is set."""
    level = logging.getLevelName(os.environ.get(LEVEL, "").upper())
    package = logging.getLogger(_PACKAGE)
    if not isinstance(level, int) or package.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    package.addHandler(handler)
    package.setLevel(level)
    package.propagate = False
