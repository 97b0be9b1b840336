"""The documents of commands that need no cluster fit their schemas, and CSV has the same names."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from docs.json_documents import DOCUMENTS
from kafkagroup.cli.app import app

ABOUT = '{"batchWatermarkMs":7,"batchTimestampMs":8,"conf":{}}'


def output(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


def document(name: str, *arguments: object) -> Any:
    found = json.loads(output(*name.split(), *arguments, "-o", "json"))
    Draft202012Validator(DOCUMENTS[name].schema()).validate(found)
    return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of Spark's own Kafka source whose first batch is planned and not finished."""
    for name in ("offsets", "commits", "sources/0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "offsets" / "0").write_text("\n".join(("v1", ABOUT, '{"orders":{"0":5,"1":7}}')))
    (tmp_path / "sources" / "0" / "0").write_text('v1\n{"orders":{"0":2,"1":3}}')
    return tmp_path


def test_options() -> None:
    (found,) = document("options", "subscribePattern")
    assert found["option"] == "subscribePattern"
    rows = list(csv.DictReader(io.StringIO(output("options", "-o", "csv"))))
    assert len(rows) > 40
    assert set(rows[0]) == {"option", "takes", "default", "does"}
    assert document("options", "no-such-option") == []


def test_a_checkpoint(checkpoint: Path) -> None:
    assert document("checkpoint show", checkpoint) == [
        {"source": "0", "topic": "orders", "partition": 0, "next_offset": 2, "pending_end": 5},
        {"source": "0", "topic": "orders", "partition": 1, "next_offset": 3, "pending_end": 7},
    ]
    assert json.loads(output("checkpoint", "show", checkpoint, "--starting-offsets")) == {"orders": {"0": 2, "1": 3}}


def test_a_checkpoint_that_is_imported(checkpoint: Path) -> None:
    assert set(document("import-checkpoint", checkpoint)) == {"positions"}
    assert '"version"' not in (checkpoint / "offsets" / "0").read_text()
    document("import-checkpoint", checkpoint, "--yes")
    assert '"version"' in (checkpoint / "offsets" / "0").read_text()


def test_the_use_of_a_quota(tmp_path: Path) -> None:
    figures = {
        "clientId": "etl",
        "usedPercent": 50,
        "bytesPerSecond": 1000.0,
        "recordsPerSecond": None,
        "observedBytesPerSecond": 500,
        "observedRecordsPerSecond": 5,
        "slots": {"0": {"bytes": 10, "records": 1, "delayMs": 1500, "throttleMs": 0}},
    }
    report = tmp_path / "report.json"
    report.write_text(json.dumps(figures))
    assert json.loads(output("quota", "show", report, "-o", "json")) == figures
    (row,) = csv.DictReader(io.StringIO(output("quota", "show", report, "-o", "csv")))
    assert row == {
        "slot": "0", "bytes": "10", "records": "1", "throttle_seconds": "1.5", "broker_throttle_seconds": "0"
    }  # fmt: skip
    assert "client etl: 50 % used of 1,000 bytes/s, any records/s" in output("quota", "show", report)


def test_a_doctors_findings(tmp_path: Path) -> None:
    found = json.loads(output("doctor", "-o", "json", "--report", tmp_path / "report.json"))
    assert json.loads((tmp_path / "report.json").read_text()) == found
    rows = list(csv.DictReader(io.StringIO(output("doctor", "-o", "csv"))))
    assert found["healthy"] is True
    assert [row["name"] for row in rows] == [one["name"] for one in found["findings"]]


def test_an_assignment_without_a_cluster() -> None:
    rows = document("plan", "redundant", "-t", "orders=4", "--slots", 3, "--options", '{"copies": 3}')
    assert [row["count"] for row in rows] == [4, 4, 4]
    assert sum(len(row["standby"]) for row in rows) == 8
    table = output("plan", "range", "-t", "orders=4", "--slots", 2)
    assert "orders 0-1" in table
    assert "standby" not in table
