"""Log lines with named fields, as text and as JSON, on standard error and in Spark's capture of a worker's log."""

import io
import json
import logging
import sys

import pytest

from kafka_source.runtime.logs import FORMAT, JsonFormatter, WorkerHandler, log_event, set_up_logging, spark_capture

capture = pytest.importorskip("pyspark.logger.worker_io", reason="Spark before 4.1 captures no logs of workers")
log = logging.getLogger("kafka_source.group.example")


def say() -> None:
    log_event(log, logging.INFO, "rebalance", group="g", reason="a member joined", took_ms=12, members=None, went="")


def test_the_text_has_every_field_in_order(package: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info")
    say()
    line = capsys.readouterr().err
    assert line.endswith(
        " INFO kafka_source.group.example: rebalance group=g reason='a member joined' took_ms=12 members=unknown "
        "went=''\n"
    )


def test_json_has_the_fields_by_name_and_with_their_types(
    package: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORMAT, "json")
    set_up_logging("info")
    say()
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("it failed: %s", "really")
    event, failure = map(json.loads, capsys.readouterr().err.splitlines())
    assert event["context"] == {
        "event": "rebalance",
        "group": "g",
        "reason": "a member joined",
        "took_ms": 12,
        "members": None,
        "went": "",
    }
    assert (event["level"], event["logger"]) == ("INFO", log.name)
    assert event["msg"].startswith("rebalance group=g ")
    assert event["ts"].endswith("Z")
    assert failure["msg"] == "it failed: really"
    assert failure["exception"].endswith("ValueError: no")
    assert "context" not in failure


def test_json_without_a_level_logs_warnings(package: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(None, "json")
    say()
    log.warning("look")
    assert [json.loads(line)["msg"] for line in capsys.readouterr().err.splitlines()] == ["look"]


def test_the_options_of_the_next_query_replace_those_of_the_last_one(
    package: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("info", "json")
    set_up_logging("warning", "text")
    say()
    log.warning("look")
    set_up_logging()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARN kafka_source.group.example: look")
    assert len(package.handlers) == 1


def test_spark_gets_records_with_level_and_fields_while_it_captures_the_log(
    package: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SPARK_SESSION_UUID", "any")
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    set_up_logging("info")
    with capture.capture_outputs():
        assert spark_capture() is not None
        say()
    assert spark_capture() is None
    assert err.getvalue() == "", "Spark would take each line of standard error as a record of level ERROR"
    marker, _, rest = out.getvalue().splitlines()[0].split(":", 2)
    assert marker == "PYTHON_WORKER_LOGGING"
    found = json.loads(rest)
    assert (found["level"], found["logger"]) == ("INFO", log.name)
    assert {**found["context"], "func_name": None}.items() >= {
        "event": "rebalance",
        "group": "g",
        "took_ms": 12,
    }.items()
    say()
    assert "rebalance group=g" in err.getvalue()


def test_a_stream_that_is_closed_does_not_stop_the_program(
    package: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    set_up_logging("info")
    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(sys, "stderr", closed)
    closed.close()
    say()
    assert isinstance(package.handlers[0], WorkerHandler)


def test_what_is_not_json_is_shown_as_text() -> None:
    record = logging.LogRecord("kafka_source", logging.INFO, "", 0, "x", None, None)
    record.__dict__["context"] = {"path": object}
    assert json.loads(JsonFormatter().format(record))["context"] == {"path": "<class 'object'>"}
