"""The log of Spark's Python processes, set by an option or by an environment variable."""

import logging
import re

import pytest

from kafka_source.options import Where, check_read
from kafka_source.runtime.logs import LEVEL, set_up_logging


def test_without_a_level_warnings_look_like_sparks(
    package: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    set_up_logging()
    package.info("not this")
    package.warning("a thought")
    line = capsys.readouterr().err
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN kafka_source: a thought\n", line), line


def test_without_a_level_the_programs_own_handlers_get_the_warnings(
    package: logging.Logger, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    set_up_logging()
    package.warning("a thought")
    assert caplog.messages == ["a thought"]
    assert "a thought" not in capsys.readouterr().err


def test_the_level_of_a_query_ends_with_it(
    package: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    set_up_logging("info", "json")
    package.info("of this query")
    set_up_logging()
    package.info("of the next one")
    package.warning("once")
    lines = capsys.readouterr().err.splitlines()
    assert ["of this query" in lines[0], lines[0][0], lines[1][-4:], len(lines)] == [True, "{", "once", 2]


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
    assert package.level == logging.ERROR


def test_logging_that_the_program_has_configured_stays(package: logging.Logger) -> None:
    package.addHandler(logging.NullHandler())
    set_up_logging("debug")
    assert len(package.handlers) == 1
    assert package.level == logging.NOTSET


def test_a_query_has_the_level_of_its_option() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    assert check_read({**given, "log.level": "INFO"}, Where.BATCH).options.log_level == "info"
    assert check_read(given, Where.BATCH).options.log_level is None
