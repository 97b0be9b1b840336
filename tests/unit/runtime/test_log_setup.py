"""The log of Spark's Python processes, set by an option or by an environment variable."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kafka_source.options import Where, check_read
from kafka_source.runtime.logs import LEVEL, set_up_logging


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """This package's logger without handlers, as in a new process."""
    logger = logging.getLogger("kafka_source")
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers, logger.level, logger.propagate = [], logging.NOTSET, True
    monkeypatch.delenv(LEVEL, raising=False)
    yield logger
    logger.handlers, _, logger.propagate = before
    logger.setLevel(before[1])


def test_without_a_level_nothing_is_changed(package: logging.Logger) -> None:
    set_up_logging()
    assert package.handlers == []


def test_the_option_takes_precedence_over_the_variable(
    package: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEVEL, "ERROR")
    set_up_logging()
    assert package.level == logging.ERROR
    set_up_logging("debug")
    assert package.level == logging.DEBUG
    assert len(package.handlers) == 1
    set_up_logging()
    assert package.level == logging.DEBUG


def test_logging_that_the_program_has_configured_stays(package: logging.Logger) -> None:
    package.addHandler(logging.NullHandler())
    set_up_logging("debug")
    assert len(package.handlers) == 1
    assert package.level == logging.NOTSET


def test_a_query_has_the_level_of_its_option() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    assert check_read({**given, "log.level": "INFO"}, Where.BATCH).options.log_level == "info"
    assert check_read(given, Where.BATCH).options.log_level is None
