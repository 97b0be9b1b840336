"""Prepare a Python worker of Spark for a task: its logging, and what a garbage collection looks at."""

from __future__ import annotations

import itertools

from kafka_source.runtime import garbage, log_setup

_tasks = itertools.count()


def prepare(log_level: str | None, log_format: str | None = None) -> None:
    """Set up logging; from the second task on, leave what the process has loaded out of garbage collections.

    Spark's daemon collects garbage after every task, while Spark writes the batch's commit. The first task loads the
    modules.

    Args:
        log_level: The option `log.level`.
        log_format: The option `log.format`.
    """
    log_setup.set_up(log_level, log_format)
    if next(_tasks) == 1:
        garbage.leave_out_what_is_loaded()
